"""The one place where scores become ranks and ranks become metrics. Pure functions, no room.

Ties: with `above` scores strictly higher than the gold's and `tied` equal to it (gold included),
every figure is the expectation under a random order of the tied, in closed form; `worst` and
`best` put the gold last or first among them. Scores are compared in float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

EULER = 0.57721566490153286


def ranked(scores: object, size: int) -> NDArray[np.float32]:
    """`scores` as float32 of shape (size,), the precision in which they are compared.

    Raises ValueError for a wrong shape or a value that isn't finite, naming its position.
    """
    try:
        values = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"scores are not numbers ({error})") from None
    if values.shape != (size,):
        raise ValueError(f"scores of shape {values.shape} for a pool of {size}")
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    if not np.isfinite(single).all():
        raise ValueError(f"score not finite at position {int(np.argmin(np.isfinite(single)))}")
    return single


def above_tied(scores: NDArray[np.float32], gold: int) -> tuple[int, int]:
    """How many score strictly above position `gold`, and how many equal it, itself included."""
    mine = scores[gold]
    return int((scores > mine).sum()), int((scores == mine).sum())


def display_order(scores: NDArray[np.float32], k: int) -> list[int]:
    """The first `k` positions by (-score, position): an order to show, never to measure by."""
    return [int(i) for i in np.argsort(-scores, kind="stable")[:k]]


def recall_at(k: int, above: int, tied: int) -> float:
    """Recall@k (= success@k) for one gold: clip((k - above) / tied, 0, 1)."""
    return min(max((k - above) / tied, 0.0), 1.0)


def recall_bounds(k: int, above: int, tied: int) -> tuple[float, float]:
    """Recall@k with the gold last among the tied, and first."""
    return float(above + tied <= k), float(above + 1 <= k)


@cache
def harmonic(n: int) -> float:
    """The n-th harmonic number, H(0) = 0."""
    if n < 10_000:
        return math.fsum(1 / i for i in range(1, n + 1))
    return math.log(n) + EULER + 1 / (2 * n) - 1 / (12 * n * n)


def reciprocal_rank(above: int, tied: int) -> float:
    """E[1 / rank] = (H(above + tied) - H(above)) / tied."""
    return (harmonic(above + tied) - harmonic(above)) / tied


def chance_recall(k: int, pool: int) -> float:
    """Recall@k of a scorer that knows nothing: min(k / |pool|, 1)."""
    return min(k / pool, 1.0)


def ceiling(golds: int, k: int) -> tuple[float, float]:
    """The best recall@k and reciprocal rank that a query can expect among rivals.

    Rivals are queries with the same words and `golds` different golds, all standing in the pool.
    """
    return min(k / golds, 1.0), harmonic(golds) / golds


def recall_of_ranking(ranking: Sequence[object], golds: Iterable[object], k: int) -> float:
    """Share of the distinct `golds` among the first `k` of a ranking without ties.

    Raises ValueError for a ranking that names something twice, and for no golds.
    """
    wanted = set(golds)
    if not wanted:
        raise ValueError("recall needs at least one gold")
    if len(set(ranking)) < len(ranking):
        twice = next(item for i, item in enumerate(ranking) if item in ranking[:i])
        raise ValueError(f"the ranking names {twice!r} more than once")
    return len(wanted & set(ranking[:k])) / len(wanted)


@dataclass(frozen=True, slots=True)
class QueryMean:
    """A mean over queries with everything that it left out."""

    macro: float
    micro: float
    n: int
    without_gold: int
    unanswered: int


def mean_recall(
    golds: Mapping[str, Iterable[object]], rankings: Mapping[str, Sequence[object]], k: int
) -> QueryMean:
    """Recall@k over queries: `macro` a mean over queries, `micro` pooled over golds.

    A query without gold can't be scored and is counted apart; one with gold that has no ranking
    counts 0. Raises ValueError where no query has gold, or a ranking belongs to no query.
    """
    stray = sorted(set(rankings) - set(golds))
    if stray:
        raise ValueError(f"ranking for an unknown query: {stray[0]}")
    wanted = {query: set(items) for query, items in golds.items()}
    scored = {query: items for query, items in wanted.items() if items}
    if not scored:
        raise ValueError("no query has a gold, so there is nothing to score")
    recalls = {q: recall_of_ranking(rankings.get(q, ()), items, k) for q, items in scored.items()}
    found = sum(recalls[query] * len(items) for query, items in scored.items())
    return QueryMean(
        macro=math.fsum(recalls.values()) / len(scored),
        micro=found / sum(map(len, scored.values())),
        n=len(scored),
        without_gold=len(wanted) - len(scored),
        unanswered=sum(not rankings.get(query) for query in scored),
    )
