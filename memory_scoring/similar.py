"""Memories that are alike enough: the matcher behind AlpsBench's leaderboard of tasks 1 and 2."""

from __future__ import annotations

from collections.abc import Sequence

from memory_scoring.assignment import Assignment, hungarian
from memory_scoring.pairs import Pair
from memory_scoring.similarity import pair_scores
from recallbed.corpus.records import MemoryItem

ACCEPTED_FROM = 0.30
QUALITY, COVERAGE = 0.60, 0.40
_ROUNDING = 1e-9  # 0.3 as a sum of products may come out a hair below


def similar_pairs(
    gold: Sequence[MemoryItem], predicted: Sequence[MemoryItem], assign: Assignment = hungarian
) -> tuple[Pair, ...]:
    """One-to-one pairs by `assign`, those with a pair score below 0.30 dropped afterwards."""
    scores = pair_scores(gold, predicted)
    pairs = (Pair(i, j, float(scores[i, j])) for i, j in (assign(scores) if scores.size else ()))
    return tuple(pair for pair in pairs if pair.score >= ACCEPTED_FROM - _ROUNDING)


def mean_score(pairs: Sequence[Pair]) -> float:
    """The mean pair score of accepted pairs, 0 where there are none."""
    return sum(pair.score for pair in pairs) / len(pairs) if pairs else 0.0


def algorithmic_score(pairs: Sequence[Pair], f1: float) -> float:
    """The leaderboard's 100 (0.60 mean pair score + 0.40 F1) of one session."""
    return 100 * (QUALITY * mean_score(pairs) + COVERAGE * f1)
