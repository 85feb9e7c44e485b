"""One-to-one pairs of gold and predicted memories, by equality or by similarity."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory_scoring.similarity import pair_scores
from recallbed.corpus.records import MemoryItem

Scores = NDArray[np.float64]
Assignment = Callable[[Scores], list[tuple[int, int]]]
ACCEPTED_FROM = 0.30
QUALITY, COVERAGE = 0.60, 0.40
_ROUNDING = 1e-9  # 0.3 as a sum of products may come out slightly lower


class Pair(NamedTuple):
    """Positions in the two lists, each in one pair at most, and their pair score (0 to 1)."""

    gold: int
    predicted: int
    score: float


def coverage(matched: int, predicted: int, gold: int) -> tuple[float, float, float]:
    """Return precision, recall and F1 = 2PR / (P + R) of `matched` pairs.

    If both lists are empty, all are 1; if one of the two is empty, all are 0.
    """
    if not predicted and not gold:
        return 1.0, 1.0, 1.0
    if not matched:
        return 0.0, 0.0, 0.0
    precision, recall = matched / predicted, matched / gold
    return precision, recall, 2 * precision * recall / (precision + recall)


def identity(item: MemoryItem) -> tuple[str, ...]:
    """Return the six fields that AlpsBench's public scorer (src/benchmark/metrics.py) compares.

    In lower case, with runs of white space as one space; a missing field equals an empty one.
    """
    fields = (item.label, item.text, item.type, item.attitude, item.time_scope, item.emotion)
    return tuple(" ".join((field or "").lower().split()) for field in fields)


def exact_pairs(gold: Sequence[MemoryItem], predicted: Sequence[MemoryItem]) -> tuple[Pair, ...]:
    """Return the multiset intersection by `identity`; equal memories are paired in list order."""
    free: defaultdict[tuple[str, ...], deque[int]] = defaultdict(deque)
    for position, item in enumerate(predicted):
        free[identity(item)].append(position)
    found = []
    for position, item in enumerate(gold):
        if equals := free.get(identity(item)):
            found.append(Pair(position, equals.popleft(), 1.0))
    return tuple(found)


def hungarian(scores: Scores) -> list[tuple[int, int]]:
    """Return the (row, column) pairs with the largest sum of scores, by row (Kuhn 1955).

    Raise ModuleNotFoundError, with a message for the user, if scipy is not installed.
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "--assign hungarian needs scipy: pip install scipy, or pass --assign greedy"
        ) from None
    rows, columns = linear_sum_assignment(scores, maximize=True)
    return [(int(row), int(column)) for row, column in zip(rows, columns, strict=True)]


def greedy(scores: Scores) -> list[tuple[int, int]]:
    """Return pairs from the highest score down; of equal scores the first by position."""
    free = np.array(scores, float)
    found = []
    for _ in range(min(free.shape)):
        row, column = divmod(int(free.argmax()), free.shape[1])
        found.append((row, column))
        free[row, :] = free[:, column] = -np.inf
    return sorted(found)


ASSIGNMENTS: Mapping[str, Assignment] = {"hungarian": hungarian, "greedy": greedy}


def similar_pairs(
    gold: Sequence[MemoryItem], predicted: Sequence[MemoryItem], assign: Assignment = hungarian
) -> tuple[Pair, ...]:
    """Return one-to-one pairs by `assign`, without those whose pair score is below 0.30.

    This is the matcher of AlpsBench's leaderboard of tasks 1 and 2.
    """
    scores = pair_scores(gold, predicted)
    pairs = (Pair(i, j, float(scores[i, j])) for i, j in (assign(scores) if scores.size else ()))
    return tuple(pair for pair in pairs if pair.score >= ACCEPTED_FROM - _ROUNDING)


def mean_score(pairs: Sequence[Pair]) -> float:
    """Return the mean pair score, 0 without pairs."""
    return sum(pair.score for pair in pairs) / len(pairs) if pairs else 0.0


def algorithmic_score(pairs: Sequence[Pair], f1: float) -> float:
    """Return the leaderboard's 100 (0.60 mean pair score + 0.40 F1) of one session."""
    return 100 * (QUALITY * mean_score(pairs) + COVERAGE * f1)
