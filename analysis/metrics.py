"""From scores to ranks, and from ranks to metrics. Pure functions.

`above` counts the scores higher than a gold's, `tied` those equal to it, itself included. A value
is the expectation under a random order of equal scores, in closed form; the bounds have the golds
last and first among their ties. Scores are compared in float32. Golds with equal scores have equal
(above, tied), and at most one group of equal scores straddles rank k: golds above it are found for
certain, golds below it are not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

EULER = 0.57721566490153286
Ties = Sequence[tuple[int, int]]
"""(above, tied) of every gold of a query, at least one."""


def ranked(scores: object, size: int) -> NDArray[np.float32]:
    """Return `scores` as float32 of shape (size,), the precision in which they are compared.

    Raise ValueError for a wrong shape or a value that is not finite, naming its position.
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
    """Count the scores above that of position `gold`, and those equal to it, itself included."""
    mine = scores[gold]
    return int((scores > mine).sum()), int((scores == mine).sum())


def display_order(scores: NDArray[np.float32], k: int) -> list[int]:
    """Return the first `k` positions by (-score, position), for display; metrics never use it."""
    return [int(i) for i in np.argsort(-scores, kind="stable")[:k]]


def recall_at(k: int, above: int, tied: int) -> float:
    """Return recall@k of one gold: clip((k - above) / tied, 0, 1)."""
    return min(max((k - above) / tied, 0.0), 1.0)


def reciprocal_rank(above: int, tied: int) -> float:
    """Return E[1 / rank] of one gold: (H(above + tied) - H(above)) / tied."""
    return (harmonic(above + tied) - harmonic(above)) / tied


@cache
def harmonic(n: int) -> float:
    """Return the n-th harmonic number, H(0) = 0."""
    if n < 10_000:
        return math.fsum(1 / i for i in range(1, n + 1))
    return math.log(n) + EULER + 1 / (2 * n) - 1 / (12 * n * n)


def tied_with_others(ties: Ties) -> bool:
    """Return whether a memory that is not a gold has the score of a gold."""
    return any(tied > count for (_, tied), count in Counter(ties).items())


def recall_within(k: int, depth: int, ties: Ties) -> float:
    """Return the best expected recall@k of an order that differs within the first `depth` only.

    How many golds of a group of equal scores that straddles the depth come in is hypergeometric.
    """
    if k >= depth:
        return Recall(k).value(ties)
    certain, open_golds, tied, places = _straddling(depth, ties)
    if not open_golds:
        return min(k, certain) / len(ties)
    chances = (
        math.comb(open_golds, more) * math.comb(tied - open_golds, places - more) * found
        for more in range(min(open_golds, places) + 1)
        if (found := min(k, certain + more))
    )
    return sum(chances) / math.comb(tied, places) / len(ties)


def _straddling(k: int, ties: Ties) -> tuple[int, int, int, int]:
    """Golds found for certain; golds of the group across rank k, its size, its places up to k."""
    certain = sum(above + tied <= k for above, tied in ties)
    across = [(above, tied) for above, tied in ties if above < k < above + tied]
    if not across:
        return certain, 0, 0, 0
    above, tied = across[0]
    return certain, len(across), tied, k - above


@cache
def _discounts(n: int) -> float:
    """The sum of the discounts of ranks 1 to n."""
    return math.fsum(1 / math.log2(rank + 1) for rank in range(1, n + 1))


class Metric(ABC):
    """A figure of one query. Instances are equal if their names are.

    A subclass with `@register_metric` can be named on input and appears in the outputs that its
    class variables choose; nothing else has to be changed.
    """

    symbol: ClassVar[str]
    """The name without its k, in tables and curve.csv."""
    key: ClassVar[str]
    """The key in summary.json."""
    summarised: ClassVar[bool] = True
    """Whether summary.json and curve.csv have it."""
    tabulated: ClassVar[bool] = False
    """Whether the table of a sweep has it."""
    compared: ClassVar[bool] = False
    """Whether a comparison of two retrievers has it."""
    several_golds: ClassVar[bool] = False
    """Whether it is of interest only if some query has several golds."""

    @property
    def name(self) -> str:
        """The name that `parse_metric` reads, such as `R@10`."""
        return self.symbol

    @property
    def title(self) -> str:
        """The name in a picture, such as `recall@10`."""
        return self.name

    @classmethod
    @abstractmethod
    def at(cls, ks: Sequence[int]) -> list[Self]:
        """Return the metric at each of `ks`, or once if it has no k."""

    @abstractmethod
    def value(self, ties: Ties) -> float:
        """Return the expected value for a query, between 0 and 1."""

    def chance(self, golds: int, pool: int) -> float:
        """Return the value of a scorer that gives all memories of a pool one score."""
        return self.value([(0, pool)] * golds)

    def bounds(self, ties: Ties) -> tuple[float, float] | None:
        """Return the worst and the best case of the ties; None if they are not reported."""
        return None

    def ceiling(self, golds: int, duplicates: int) -> float | None:
        """Return the best value that can be expected; None if it is not reported.

        `duplicates` counts the queries with the same text and different golds in the pool, itself
        included: one ranking has to serve them all. It is used for queries with one gold only.
        """
        return None

    def trivial(self, pool: int) -> bool:
        """Return whether every order of a pool has the same value."""
        return False


METRICS: list[type[Metric]] = []
"""The registered metrics, in the order of tables and of curve.csv."""
_M = TypeVar("_M", bound=type[Metric])


def register_metric(kind: _M) -> _M:
    """Register a class of metrics."""
    METRICS.append(kind)
    return kind


@dataclass(frozen=True)
class MetricAtK(Metric):
    """A metric of the first k ranks."""

    k: int

    @property
    @override
    def name(self) -> str:
        return f"{self.symbol}@{self.k}"

    @classmethod
    @override
    def at(cls, ks: Sequence[int]) -> list[Self]:
        return [cls(k) for k in ks]


@register_metric
class Recall(MetricAtK):
    """The share of a query's golds among the first k."""

    symbol, key = "R", "recall"
    tabulated = compared = True

    @property
    @override
    def title(self) -> str:
        return f"{self.key}@{self.k}"

    @override
    def value(self, ties: Ties) -> float:
        return math.fsum(recall_at(self.k, *tie) for tie in ties) / len(ties)

    @override
    def bounds(self, ties: Ties) -> tuple[float, float]:
        certain, open_golds, tied, places = _straddling(self.k, ties)
        worst = max(places - (tied - open_golds), 0)
        best = min(places, open_golds)
        return (certain + worst) / len(ties), (certain + best) / len(ties)

    @override
    def ceiling(self, golds: int, duplicates: int) -> float:
        return min(self.k / (golds if golds > 1 else duplicates), 1.0)

    @override
    def trivial(self, pool: int) -> bool:
        return self.k >= pool


@register_metric
class Success(MetricAtK):
    """Whether at least one gold is among the first k (success@k)."""

    symbol, key = "any", "recall_any"
    tabulated = several_golds = True

    @override
    def value(self, ties: Ties) -> float:
        certain, open_golds, tied, places = _straddling(self.k, ties)
        if certain or not open_golds:
            return float(certain > 0)
        return 1 - math.comb(tied - open_golds, places) / math.comb(tied, places)


@register_metric
class AllGolds(MetricAtK):
    """Whether every gold is among the first k."""

    symbol, key = "all", "recall_all"
    tabulated = several_golds = True

    @override
    def value(self, ties: Ties) -> float:
        certain, open_golds, tied, places = _straddling(self.k, ties)
        if certain + open_golds < len(ties) or places < open_golds:
            return 0.0
        return math.comb(tied - open_golds, places - open_golds) / math.comb(tied, places)


@register_metric
class Precision(Recall):
    """The share of golds among the first k."""

    symbol, key = "P", "precision"
    summarised = tabulated = compared = False

    @override
    def value(self, ties: Ties) -> float:
        return super().value(ties) * len(ties) / self.k

    @override
    def bounds(self, ties: Ties) -> tuple[float, float]:
        worst, best = super().bounds(ties)
        return worst * len(ties) / self.k, best * len(ties) / self.k

    @override
    def ceiling(self, golds: int, duplicates: int) -> float:
        return super().ceiling(golds, duplicates) * golds / self.k


@register_metric
class NDCG(MetricAtK):
    """nDCG@k with gain 1 for a gold and discount 1 / log2(rank + 1) (Jarvelin & Kekalainen)."""

    symbol, key = "nDCG", "ndcg"

    @override
    def value(self, ties: Ties) -> float:
        gained = math.fsum(
            (_discounts(min(self.k, above + tied)) - _discounts(min(self.k, above))) / tied
            for above, tied in ties
        )
        return gained / _discounts(min(self.k, len(ties)))


@register_metric
@dataclass(frozen=True)
class ReciprocalRank(Metric):
    """1 / rank of the first gold; its mean is MRR.

    With g golds among t equal scores, the first of them is j-th with probability
    C(t - j, g - 1) / C(t, g).
    """

    symbol, key = "E[RR]", "reciprocal_rank"
    tabulated = True

    @classmethod
    @override
    def at(cls, ks: Sequence[int]) -> list[Self]:
        return [cls()]

    @override
    def value(self, ties: Ties) -> float:
        above, tied = min(ties)
        golds = Counter(ties)[above, tied]
        if golds == 1:
            return reciprocal_rank(above, tied)
        chance, terms = golds / tied, []
        for j in range(1, tied - golds + 2):
            terms.append(chance / (above + j))
            chance *= (tied - j - golds + 1) / (tied - j) if tied > j else 0
        return math.fsum(terms)

    @override
    def ceiling(self, golds: int, duplicates: int) -> float:
        return 1.0 if golds > 1 else harmonic(duplicates) / duplicates


def summarised_metrics(ks: Sequence[int], several_golds: bool) -> list[Metric]:
    """Return the metrics of a summary, for queries with one gold or with several."""
    kinds = [kind for kind in METRICS if kind.summarised]
    return [m for kind in kinds if several_golds or not kind.several_golds for m in kind.at(ks)]


def parse_metric(name: str) -> Metric:
    """Return the metric of a name such as `R@10`; raise ValueError for any other text."""
    k = name.partition("@")[2]
    for kind in METRICS:
        for metric in kind.at([int(k)] if k.isascii() and k.isdecimal() and int(k) else [1]):
            if metric.name == name:
                return metric
    known = ", ".join(kind.at([10])[0].name for kind in METRICS)
    raise ValueError(f"{name}: not a metric, such as {known}")
