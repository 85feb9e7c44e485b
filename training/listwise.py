"""Weights of features by which the right memory of a pool comes first (listwise softmax).

The loss of a pool is the cross-entropy between its targets and the softmax of its values, as in
ListNet (Cao et al. 2007); with one right memory it is the log-likelihood of a conditional logit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrievers.candidate_order import LinearOrder

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lists:
    """Pools or shortlists, one after another.

    `rows` holds the features of every member, (members, features), `starts` the first member of
    each list, (lists,), and `targets` the share of each member in what is right, (members,): they
    add up to 1 in each list.
    """

    rows: Floats
    starts: NDArray[np.int64]
    targets: Floats

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of members of each list."""
        return np.diff(np.append(self.starts, len(self.rows)))


def fit_listwise(lists: Lists, l2: float, nonnegative: bool = False) -> Floats:
    """Return weights, (features,), that minimise the mean loss plus `l2` / 2 times their square.

    With `nonnegative` none is below 0. The problem is convex: the start does not matter.
    """
    from scipy.optimize import minimize

    rows, starts, targets = lists.rows, lists.starts, lists.targets
    sizes, count = lists.sizes, len(lists.starts)
    wanted = rows.T @ targets

    def loss(weights: Floats) -> tuple[float, Floats]:
        values = rows @ weights
        top = np.maximum.reduceat(values, starts)
        shares = np.exp(values - np.repeat(top, sizes))
        totals = np.add.reduceat(shares, starts)
        shares /= np.repeat(totals, sizes)
        total = float((top + np.log(totals)).sum() - wanted @ weights)
        gradient = (rows.T @ shares - wanted) / count + l2 * weights
        return total / count + l2 / 2 * float(weights @ weights), gradient

    size = rows.shape[1]
    bounds = [(0.0 if nonnegative else None, None)] * size
    start = np.full(size, 1.0 / size if nonnegative else 0.0)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(found.x, np.float64)


def fit_linear(lists: Lists, l2: float) -> LinearOrder:
    """Return the linear order of candidates with these features, which are standardised."""
    mean, scale = lists.rows.mean(axis=0), lists.rows.std(axis=0)
    scale[scale < 1e-9] = 1.0
    standardised = Lists((lists.rows - mean) / scale, lists.starts, lists.targets)
    return LinearOrder(mean, scale, fit_listwise(standardised, l2))
