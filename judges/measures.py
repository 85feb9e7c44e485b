"""How far two raters agree. Pure functions of a table of counts, so that resamples are cheap.

A table is (..., levels, levels): how often rater A gave level i and rater B level j of the same
item, over any number of resamples at once. A measure gives (...,), NaN if it is not defined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def cohen_kappa(table: Floats) -> Floats:
    """Agreement beyond chance, (observed - expected) / (1 - expected) (Cohen 1960).

    Expected is that of two independent raters with these marginals. Not defined if both give
    one and the same level only.
    """
    levels = table.shape[-1]
    return _weighted(table, 1 - np.eye(levels))


def quadratic_kappa(table: Floats, levels: Sequence[float]) -> Floats:
    """Kappa with disagreement weighed by the squared distance of the levels (Cohen 1968)."""
    steps = np.asarray(levels, float)
    return _weighted(table, (steps[:, None] - steps[None, :]) ** 2)


def _weighted(table: Floats, weights: Floats) -> Floats:
    """1 - observed / expected disagreement; for 0/1 weights that is Cohen's kappa."""
    n = table.sum((-2, -1))
    expected = table.sum(-1)[..., :, None] * table.sum(-2)[..., None, :]
    wanted = (expected * weights).sum((-2, -1)) / n
    found: Floats = 1 - _divided((table * weights).sum((-2, -1)), wanted)
    return found


def spearman(table: Floats) -> Floats:
    """Spearman's rank correlation with mid-ranks for ties; levels ascend.

    It is Pearson's over the ranks, which for ratings are given by the marginals alone. Not
    defined if a rater gives one level only.
    """
    n = table.sum((-2, -1))[..., None]
    # A level's mid-rank, as a deviation from the mean rank (n + 1) / 2.
    rows, columns = table.sum(-1), table.sum(-2)
    a = np.cumsum(rows, -1) - rows / 2 - n / 2
    b = np.cumsum(columns, -1) - columns / 2 - n / 2
    both = (table * a[..., :, None] * b[..., None, :]).sum((-2, -1))
    spread = np.sqrt((rows * a**2).sum(-1) * (columns * b**2).sum(-1))
    return _divided(both, spread)


def f1(table: Floats, positive: int) -> Floats:
    """2 tp / (2 tp + fp + fn) for the level at `positive`; the same whichever rater is the truth.

    Not defined if neither ever gives it.
    """
    given = table[..., positive, :].sum(-1) + table[..., :, positive].sum(-1)
    return _divided(2 * table[..., positive, positive], given)


def _divided(above: Floats, below: Floats) -> Floats:
    found: Floats = np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)
    return found
