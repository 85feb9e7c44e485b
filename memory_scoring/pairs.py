"""A gold memory and the predicted one that stands for it, and what a list of such pairs covers."""

from __future__ import annotations

from typing import NamedTuple


class Pair(NamedTuple):
    """Positions in the two lists, each in one pair at most, and how alike the two are (0 to 1)."""

    gold: int
    predicted: int
    score: float


def coverage(matched: int, predicted: int, gold: int) -> tuple[float, float, float]:
    """Precision, recall and F1 = 2PR / (P + R) of `matched` pairs.

    With nothing to find and nothing predicted all are 1; with one of the two empty all are 0.
    """
    if not predicted and not gold:
        return 1.0, 1.0, 1.0
    if not matched:
        return 0.0, 0.0, 0.0
    precision, recall = matched / predicted, matched / gold
    return precision, recall, 2 * precision * recall / (precision + recall)
