"""Fusion of the scores of several retrievers: pure functions of scores, weights and masks.

A leg is one retriever's scores of the pool, shape (n,), with a mask of the positions it found any
evidence for. A leg adds nothing at unmatched positions, and nothing at all if its scores are all
equal. Sums are exactly rounded, so that no result depends on the order of the pool.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.metrics import ranked

Floats = NDArray[np.float64]
Fusion = Literal["weighted", "rrf"]
Scale = Literal["minmax", "zscore"]


class Leg(NamedTuple):
    """Scores as they are ranked (float32), and the mask of positions with any evidence, (n,)."""

    scores: NDArray[np.float32]
    matched: NDArray[np.bool_]


def as_leg(scores: ArrayLike, matched: ArrayLike | None = None) -> Leg:
    """Return a leg of `scores`, (n,); with `matched` None, all positions are matched.

    Raises ValueError for scores or a mask of a wrong shape, and for scores that are not finite.
    """
    size = np.size(scores)
    values = ranked(scores, size)
    mask = np.ones(size, np.bool_) if matched is None else np.asarray(matched, np.bool_)
    if mask.shape != (size,):
        raise ValueError(f"a mask of shape {mask.shape} for {size} scores")
    return Leg(values, mask)


def minmax(one: Leg) -> Floats:
    """Return (s - min) / (max - min) over the whole pool, (n,); 0 if unmatched or all equal.

    The minimum is that of the pool, not of the matched: a single hit gets 1.
    """
    return _masked(_above_least(one) / (_spread(one) or 1.0), one)


def zscore(one: Leg) -> Floats:
    """Return standard scores over the whole pool, (n,), shifted to a minimum of 0; 0 if unmatched.

    Shifting a leg by a constant changes no fused order. The deviation is that of the population.
    """
    values = one.scores.astype(np.float64).tolist()
    if not _spread(one):
        return np.zeros(len(values))
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))
    return _masked(_above_least(one) / deviation, one)


def ranks(one: Leg) -> Floats:
    """Return ranks among the matched positions, (n,), 1 for the best; infinite if unmatched.

    Equal scores share the mean of their ranks, the expectation under random tie order.
    """
    found = np.full(len(one.scores), np.inf)
    scores = one.scores[one.matched]
    ordered = np.sort(scores)
    above = len(scores) - np.searchsorted(ordered, scores, "right")
    at_least = len(scores) - np.searchsorted(ordered, scores, "left")
    found[one.matched] = (above + 1 + at_least) / 2
    return found


def weighted_sum(legs: Sequence[Leg], weights: Sequence[float], scale: Scale = "minmax") -> Floats:
    """Return the weighted sum of the legs on a common scale, (n,)."""
    common = {"minmax": minmax, "zscore": zscore}[scale]
    return _sum([weight * common(one) for one, weight in zip(legs, weights, strict=True)])


def reciprocal_rank_fusion(
    legs: Sequence[Leg], weights: Sequence[float], rrf_k: float = 60
) -> Floats:
    """Return the sum of weight / (rrf_k + rank), (n,) (Cormack et al. 2009).

    A larger `rrf_k` gives more weight to agreement and less to the first place of one leg.
    """
    shares = [weight / (rrf_k + ranks(one)) for one, weight in zip(legs, weights, strict=True)]
    return _sum(shares)


def _spread(one: Leg) -> float:
    return float(np.ptp(one.scores.astype(np.float64))) if len(one.scores) else 0.0


def _above_least(one: Leg) -> Floats:
    values = one.scores.astype(np.float64)
    return values - values.min() if len(values) else values


def _masked(values: Floats, one: Leg) -> Floats:
    return np.where(one.matched, values, 0.0)


def _sum(parts: Sequence[Floats]) -> Floats:
    if len(parts) == 2:
        return parts[0] + parts[1]
    # More than two would round differently in another order of legs.
    return np.array([math.fsum(column) for column in zip(*parts, strict=True)], np.float64)
