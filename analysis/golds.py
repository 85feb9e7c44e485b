"""Metrics of a query with one gold or several, from (above, tied) of each. Pure functions.

As in `analysis.metrics`, every figure is the expectation under a random order of equal scores, in
closed form. Golds with equal scores carry the same (above, tied). At most one group of equal
scores straddles rank k; golds above it are found for certain, golds below it are not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from analysis.metrics import recall_at, reciprocal_rank

Ties = Sequence[tuple[int, int]]
"""(above, tied) of every gold of a query, at least one."""


def ties_of(row: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The ties of a row of a run, whether it keeps them as numbers (one gold) or as lists."""
    above, tied = row["above"], row["tied"]
    if isinstance(above, list):
        return list(zip(above, tied, strict=True))
    return [(above, tied)]


def recall(k: int, ties: Ties) -> float:
    """The expected share of the golds among the first k; with one gold, success@k."""
    return math.fsum(recall_at(k, *tie) for tie in ties) / len(ties)


def recall_any(k: int, ties: Ties) -> float:
    """The probability that at least one gold is among the first k."""
    certain, open_golds, tied, slots = _straddling(k, ties)
    if certain or not open_golds:
        return float(certain > 0)
    return 1 - math.comb(tied - open_golds, slots) / math.comb(tied, slots)


def recall_all(k: int, ties: Ties) -> float:
    """The probability that all golds are among the first k."""
    certain, open_golds, tied, slots = _straddling(k, ties)
    if certain + open_golds < len(ties) or slots < open_golds:
        return 0.0
    return math.comb(tied - open_golds, slots - open_golds) / math.comb(tied, slots)


def ceiling_within(k: int, depth: int, ties: Ties) -> float:
    """The best recall@k to be expected of an order that differs inside the first `depth` only.

    Where a group of equal scores straddles the depth, how many of its golds come in is
    hypergeometric.
    """
    if k >= depth:
        return recall(k, ties)
    certain, open_golds, tied, slots = _straddling(depth, ties)
    if not open_golds:
        return min(k, certain) / len(ties)
    chances = (
        math.comb(open_golds, more) * math.comb(tied - open_golds, slots - more) * found
        for more in range(min(open_golds, slots) + 1)
        if (found := min(k, certain + more))
    )
    return sum(chances) / math.comb(tied, slots) / len(ties)


def recall_bounds(k: int, ties: Ties) -> tuple[float, float]:
    """Recall@k with the golds last among their ties, and first."""
    certain, open_golds, tied, slots = _straddling(k, ties)
    worst = max(slots - (tied - open_golds), 0)
    best = min(slots, open_golds)
    return (certain + worst) / len(ties), (certain + best) / len(ties)


def _straddling(k: int, ties: Ties) -> tuple[int, int, int, int]:
    """Golds found for certain; golds of the group across rank k, its size, and its places."""
    certain = sum(above + tied <= k for above, tied in ties)
    across = [(above, tied) for above, tied in ties if above < k < above + tied]
    if not across:
        return certain, 0, 0, 0
    above, tied = across[0]
    return certain, len(across), tied, k - above


def tied_with_others(ties: Ties) -> bool:
    """Whether something that is no gold scores as a gold does."""
    return any(tied > count for (_, tied), count in Counter(ties).items())


def first_reciprocal_rank(ties: Ties) -> float:
    """E[1 / rank of the first gold].

    With g golds among t equal scores, the first of them is j-th with probability
    C(t - j, g - 1) / C(t, g).
    """
    above, tied = min(ties)
    golds = Counter(ties)[above, tied]
    if golds == 1:
        return reciprocal_rank(above, tied)
    chance, terms = golds / tied, []
    for j in range(1, tied - golds + 2):
        terms.append(chance / (above + j))
        chance *= (tied - j - golds + 1) / (tied - j) if tied > j else 0
    return math.fsum(terms)


def ndcg(k: int, ties: Ties) -> float:
    """E[nDCG@k] with gain 1 for a gold and discount 1 / log2(rank + 1) (Jarvelin & Kekalainen)."""
    gained = math.fsum(
        (_discounts(min(k, above + tied)) - _discounts(min(k, above))) / tied
        for above, tied in ties
    )
    return gained / _discounts(min(k, len(ties)))


@cache
def _discounts(n: int) -> float:
    """The sum of the discounts of ranks 1 to n."""
    return math.fsum(1 / math.log2(rank + 1) for rank in range(1, n + 1))
