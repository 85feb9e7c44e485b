"""Which of several retrievers differ: paired comparisons of all metrics and sizes as one family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from string import ascii_lowercase
from typing import Any

import numpy as np

from analysis.metrics import METRICS, Metric, MetricAtK, Recall
from analysis.p_values import flips_of, holm
from analysis.paired import Paired, paired_figures
from analysis.runs import Run
from analysis.side_values import SideValues, SizedMetric
from analysis.sides import (
    Side,
    area_weights,
    paired_places,
)
from analysis.statistics import Bootstrap, Interval
from recallbed.errors import UserError

ALPHA = 0.05
"""The level of a significance superscript, after Holm's correction."""
_AT_ONCE = 256


@dataclass(frozen=True)
class Pairing:
    """A metric of two sides at one size, paired by query, or the area under its curve.

    `unpaired` counts the queries that failed on either side, of those that were to be compared.
    `holm` is the p-value of the randomisation test, adjusted for all pairings of the same call. Of
    an area, `sizes` has the numbers of distractors, and `distractors` is the largest.
    """

    distractors: int
    metric: Metric
    a: str
    b: str
    paired: Paired
    unpaired: int
    holm: float | None
    sizes: tuple[int, ...] = ()

    @property
    def mcnemar(self) -> float | None:
        """The p-value of McNemar's exact test; None if it does not apply."""
        return self.paired.mcnemar

    @property
    def effect(self) -> float | None:
        """The standardised mean difference over sessions; None if it is not defined."""
        return self.paired.effect

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it; without a `metric`, it is of recall@k."""
        at = {"area": list(self.sizes)} if self.sizes else {"distractors": self.distractors}
        found: dict[str, Any] = at | asdict(self.paired)
        found |= {"unpaired": self.unpaired, "holm": self.holm, "sides": [self.a, self.b]}
        return found | metric_json(self.metric)


def metric_json(metric: Metric) -> dict[str, Any]:
    """Return the keys that name a metric: `k`, and `metric` unless it is recall."""
    found: dict[str, Any] = {"k": metric.k} if isinstance(metric, MetricAtK) else {}
    return found if type(metric) is Recall else found | {"metric": metric.name}


def compared_metrics(ks: Sequence[int]) -> list[Metric]:
    """Return the metrics of a comparison that names none."""
    return [metric for kind in METRICS if kind.compared for metric in kind.at(ks)]


def pairings(
    sides: Sequence[Side],
    metrics: Sequence[Metric],
    *,
    sizes: Sequence[int] | None = None,
    baseline: int | None = 0,
    keep: Callable[[str], bool] | None = None,
) -> list[Pairing]:
    """Compare sides at each size and for each metric, over the queries to `keep`.

    The baseline, by its place, is side `a` of every pair; None compares all pairs. Without `sizes`,
    a pair is compared at all that both sides have. A value is averaged over pool seeds; intervals
    draw whole sessions. Holm's family is everything that one call compares. Results are in the
    order of size, metric and pair. Raise UserError if two sides were not scored on the same queries
    and pools, or no query is left.
    """
    table = SideValues(sides, keep)
    for size in sizes or ():
        table.check_size(size)
    asked = [
        (i, j, SizedMetric(metric, (size,)))
        for i, j in paired_places(len(sides), baseline)
        for size in (sorted(set(sizes)) if sizes is not None else table.common_sizes(i, j))
        for metric in metrics
    ]
    places = {metric: place for place, metric in enumerate(metrics)}
    asked.sort(key=lambda one: (one[2].sizes, places[one[2].metric]))  # pairs stay in order
    return _compare(table, asked)


def area_pairings(
    sides: Sequence[Side],
    metrics: Sequence[Metric],
    *,
    sizes: Sequence[int] | None = None,
    baseline: int | None = 0,
    keep: Callable[[str], bool] | None = None,
) -> list[Pairing]:
    """Compare the areas under the curves of sides against log pool size, as `pairings` does.

    Holm's family is the areas of one call. Raise UserError for fewer than two sizes, too.
    """
    table = SideValues(sides, keep)
    asked = []
    for i, j in paired_places(len(sides), baseline):
        common = tuple(sorted(set(sizes)) if sizes is not None else table.common_sizes(i, j))
        for size in common:
            table.check_size(size)
        weights = tuple(area_weights(sides[i].run, common))
        asked += [(i, j, SizedMetric(metric, common, weights)) for metric in metrics]
    places = {metric: place for place, metric in enumerate(metrics)}
    asked.sort(key=lambda one: places[one[2].metric])
    return _compare(table, asked, area=True)


@dataclass(frozen=True, slots=True)
class SideArea:
    """The area under a side's curve against log pool size, over `n` queries."""

    side: str
    metric: Metric
    sizes: tuple[int, ...]
    n: int
    mean: Interval

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        found = {"area": list(self.sizes), "side": self.side, "n": self.n}
        return found | self.mean.to_json() | metric_json(self.metric)


def side_areas(
    sides: Sequence[Side],
    metrics: Sequence[Metric],
    *,
    sizes: Sequence[int] | None = None,
    keep: Callable[[str], bool] | None = None,
) -> list[SideArea]:
    """Return the area under each metric of each side, between 0 and 1.

    By the trapezoidal rule against log10 of the pool's size, over the range of the logarithms.
    Sessions are drawn with all of their pools. Only queries scored at every size count. Raise
    UserError for fewer than two sizes, or if no query is left.
    """
    table = SideValues(sides, keep)
    found = []
    for place, (side, name) in enumerate(zip(sides, table.names, strict=True)):
        chosen = tuple(table.sizes[place] if sizes is None else sorted(set(sizes)))
        for size in chosen:
            table.check_size(size)
        weights = tuple(area_weights(side.run, chosen))
        kept = table.scored(place, place, chosen)
        if not kept:
            raise UserError(f"{name}: no query is scored at all of its sizes")
        bootstrap = Bootstrap(table.sessions(place, kept), table.seed(place))
        figures = [SizedMetric(metric, chosen, weights) for metric in metrics]
        values = np.array([table.values(place, kept, one) for one in figures]).clip(0, 1)
        for metric, interval in zip(metrics, bootstrap.intervals(values), strict=True):
            found.append(SideArea(name, metric, chosen, len(kept), interval))
    return found


def recall_area(run: Run, label: str, k: int) -> Interval:
    """Return the area under recall@k of a label, as `side_areas` does."""
    return side_areas([Side(run, label)], [Recall(k)])[0].mean


def superscripts(
    pairs: Sequence[Pairing], names: Sequence[str], alpha: float = ALPHA
) -> dict[tuple[int, Metric], dict[str, str]]:
    """Return by size and metric which sides each side is significantly better than, as letters.

    The sides have the letters a, b, c, ... in the order of `names`. A side is better if its mean is
    higher and the adjusted p-value of the randomisation test is at most `alpha`.
    """
    letters = dict(zip(names, side_letters(len(names)), strict=True))
    better: dict[tuple[int, Metric], dict[str, set[str]]] = {}
    for pair in pairs:
        cell = better.setdefault((pair.distractors, pair.metric), {name: set() for name in names})
        if pair.holm is not None and pair.holm <= alpha and pair.paired.difference:
            one, other = (pair.a, pair.b) if pair.paired.difference > 0 else (pair.b, pair.a)
            cell[one].add(other)
    return {
        key: {
            name: "".join(letter for other, letter in letters.items() if other in worse)
            for name, worse in cell.items()
        }
        for key, cell in better.items()
    }


def side_letters(count: int) -> list[str]:
    """Return a, b, c, ...; from the 27th on with a number: a1, b1, ..."""
    many = len(ascii_lowercase)
    return [ascii_lowercase[i % many] + (str(i // many) if i >= many else "") for i in range(count)]


def _compare(
    table: SideValues, asked: Sequence[tuple[int, int, SizedMetric]], area: bool = False
) -> list[Pairing]:
    """Compare figures of two sides by their places, in the order given, as one family."""
    groups: dict[tuple[int, tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for place, (a, b, figure) in enumerate(asked):
        kept = table.scored(a, b, figure.sizes)
        if not kept:
            at = "all of these" if len(figure.sizes) > 1 else figure.sizes[0]
            raise UserError(f"no query is left to compare at {at} distractors")
        key = table.seed(a), tuple(kept), tuple(table.sessions(a, kept))
        groups.setdefault(key, []).append(place)
    results: dict[int, Paired] = {}
    flips = flips_of(len(asked))
    for (seed, queries, sessions), places in groups.items():
        for start in range(0, len(places), _AT_ONCE):
            part = places[start : start + _AT_ONCE]
            pairs = [asked[place] for place in part]
            first = np.array([table.values(a, queries, figure) for a, _, figure in pairs])
            second = np.array([table.values(b, queries, figure) for _, b, figure in pairs])
            found = paired_figures(first, second, sessions, seed, flips=flips)
            results |= dict(zip(part, found, strict=True))
    adjusted = holm([results[place].p for place in range(len(asked))])
    return [
        Pairing(
            distractors=figure.sizes[-1],
            metric=figure.metric,
            a=table.names[a],
            b=table.names[b],
            paired=results[place],
            unpaired=len(table.asked(a, figure.sizes)) - results[place].n,
            holm=adjusted[place],
            sizes=figure.sizes if area else (),
        )
        for place, (a, b, figure) in enumerate(asked)
    ]
