"""An order of candidates by gradient-boosted trees, fitted by scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from recallbed.errors import UserError
from retrievers.candidate_order import BoostedOrder
from training.listwise import Lists

RATE, LEAVES, LEAST_IN_LEAF, L2 = 0.05, 8, 60, 5.0


def fit_boosted(lists: Lists, rounds: int, seed: int) -> BoostedOrder:
    """Return trees that tell right candidates from wrong ones, by logistic loss per candidate.

    A candidate with target t counts as right with weight t and as wrong with 1 - t. Raise UserError
    if scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ImportError:
        raise UserError(
            "boosted trees need scikit-learn. Run: pip install 'recallbed[training]'"
        ) from None
    right, wrong = lists.targets > 0, lists.targets < 1
    model = HistGradientBoostingClassifier(
        max_iter=rounds,
        learning_rate=RATE,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=LEAST_IN_LEAF,
        l2_regularization=L2,
        early_stopping=False,
        random_state=seed,
    )
    model.fit(
        np.concatenate([lists.rows[right], lists.rows[wrong]]),
        np.repeat([1, 0], [right.sum(), wrong.sum()]),
        sample_weight=np.concatenate([lists.targets[right], 1 - lists.targets[wrong]]),
    )
    return _order_of(model)


def _order_of(model: Any) -> BoostedOrder:
    """The trees as arrays; their constant, the same for all candidates, is left out."""
    nodes = [tree[0].nodes for tree in model._predictors]
    starts = np.cumsum([0, *map(len, nodes)])[:-1]
    every = np.concatenate(nodes)
    offset = np.repeat(starts, [len(one) for one in nodes])
    leaf = every["is_leaf"].astype(bool)
    return BoostedOrder(
        roots=starts.astype(np.int64),
        feature=np.where(leaf, -1, every["feature_idx"]).astype(np.int64),
        threshold=np.where(leaf, 0.0, every["num_threshold"]).astype(np.float64),
        left=np.where(leaf, 0, every["left"] + offset).astype(np.int64),
        right=np.where(leaf, 0, every["right"] + offset).astype(np.int64),
        leaf=np.where(leaf, every["value"], 0.0).astype(np.float64),
    )
