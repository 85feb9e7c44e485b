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
from analysis.sides import (
    QueryRows,
    Side,
    area_weights,
    paired_places,
    query_value,
    scored_in_both,
    side_names,
)
from analysis.statistics import Bootstrap, Floats, Interval
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
    table = _Table(sides, keep)
    for size in sizes or ():
        table.check_size(size)
    asked = [
        _Asked(i, j, (size,), (1.0,), metric)
        for i, j in paired_places(len(sides), baseline)
        for size in (sorted(set(sizes)) if sizes is not None else table.common_sizes(i, j))
        for metric in metrics
    ]
    places = {metric: place for place, metric in enumerate(metrics)}
    asked.sort(key=lambda one: (one.sizes, places[one.metric]))  # stable: pairs stay in order
    return table.compare(asked)


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
    table = _Table(sides, keep)
    asked = []
    for i, j in paired_places(len(sides), baseline):
        common = tuple(sorted(set(sizes)) if sizes is not None else table.common_sizes(i, j))
        for size in common:
            table.check_size(size)
        weights = tuple(area_weights(sides[i].run, common))
        asked += [_Asked(i, j, common, weights, metric) for metric in metrics]
    places = {metric: place for place, metric in enumerate(metrics)}
    asked.sort(key=lambda one: places[one.metric])
    return table.compare(asked, area=True)


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
        return found | asdict(self.mean) | metric_json(self.metric)


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
    table = _Table(sides, keep)
    found = []
    for place, (side, name) in enumerate(zip(sides, table.names, strict=True)):
        chosen = tuple(table.sizes[place] if sizes is None else sorted(set(sizes)))
        for size in chosen:
            table.check_size(size)
        weights = tuple(area_weights(side.run, chosen))
        kept = table.scored(place, place, chosen)
        if not kept:
            raise UserError(f"{name}: no query is scored at all of its sizes")
        sessions = side.run.manifest["sessions"]
        bootstrap = Bootstrap([sessions.get(q, q) for q in kept], table.seed(place))
        asked = [_Asked(place, place, chosen, weights, metric) for metric in metrics]
        values = np.array([table.values(place, kept, one) for one in asked]).clip(0, 1)
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


@dataclass(frozen=True, slots=True)
class _Asked:
    """A figure of two sides by their places: a weighted sum of a metric over sizes."""

    a: int
    b: int
    sizes: tuple[int, ...]
    weights: tuple[float, ...]
    metric: Metric


class _Table:
    """The values of sides by size and query, read once."""

    def __init__(self, sides: Sequence[Side], keep: Callable[[str], bool] | None) -> None:
        self.sides, self.keep = sides, keep
        self.names = side_names(sides)
        self.sizes = [side.sizes for side in sides]
        self._rows: dict[tuple[int, int], QueryRows] = {}
        self._values: dict[tuple[int, int, Metric], dict[str, float]] = {}
        self._scored: dict[tuple[int, int, tuple[int, ...]], list[str]] = {}

    def seed(self, side: int) -> int:
        """The seed of a side's run."""
        return int(self.sides[side].run.manifest["fingerprint"]["seed"])

    def common_sizes(self, a: int, b: int) -> list[int]:
        """The sizes of two sides; raise UserError if they share none."""
        found = sorted(set(self.sizes[a]) & set(self.sizes[b]))
        if not found:
            raise UserError(f"{self.names[a]} and {self.names[b]} have no pool size in common")
        return found

    def check_size(self, size: int) -> None:
        """Raise UserError if a side has no rows at a size."""
        for known, name in zip(self.sizes, self.names, strict=True):
            if size not in known:
                has = ", ".join(map(str, known))
                raise UserError(f"{name}: no rows at {size} distractors (it has {has})")

    def rows(self, side: int, size: int) -> QueryRows:
        """The rows of a side by query."""
        if (side, size) not in self._rows:
            self._rows[side, size] = self.sides[side].rows(size)
        return self._rows[side, size]

    def asked(self, side: int, sizes: Sequence[int]) -> list[str]:
        """The queries that are to be compared."""
        queries = {query for size in sizes for query in self.rows(side, size)}
        return sorted(q for q in queries if self.keep is None or self.keep(q))

    def scored(self, a: int, b: int, sizes: Sequence[int]) -> list[str]:
        """Those that did not fail on either side at any of `sizes`."""
        key = a, b, tuple(sizes)
        if key not in self._scored:
            found = set(self.asked(a, sizes))
            for size in sizes:
                found &= set(scored_in_both(self.rows(a, size), self.rows(b, size), size))
            self._scored[key] = sorted(found)
        return self._scored[key]

    def values(self, side: int, queries: Sequence[str], of: _Asked) -> Floats:
        """The values of a side in the order of `queries`."""
        found = np.zeros(len(queries))
        for size, weight in zip(of.sizes, of.weights, strict=True):
            key = side, size, of.metric
            if key not in self._values:
                rows = self.rows(side, size).items()
                scored = {q: mine for q, mine in rows if all(r.error is None for r in mine)}
                self._values[key] = {q: query_value(of.metric, r) for q, r in scored.items()}
            by_query = self._values[key]
            found += weight * np.array([by_query[query] for query in queries])
        return found

    def compare(self, asked: Sequence[_Asked], area: bool = False) -> list[Pairing]:
        """Compare everything that is asked for, in its order, as one family."""
        groups: dict[tuple[int, tuple[str, ...], tuple[str, ...]], list[int]] = {}
        for place, one in enumerate(asked):
            queries = self.scored(one.a, one.b, one.sizes)
            if not queries:
                at = f"{one.sizes[0]}" if len(one.sizes) == 1 else "all of these"
                raise UserError(f"no query is left to compare at {at} distractors")
            sessions = self.sides[one.a].run.manifest["sessions"]
            clusters = tuple(sessions.get(query, query) for query in queries)
            groups.setdefault((self.seed(one.a), tuple(queries), clusters), []).append(place)
        results: dict[int, Paired] = {}
        for (seed, queries_, clusters), places in groups.items():
            for start in range(0, len(places), _AT_ONCE):
                part = places[start : start + _AT_ONCE]
                first, second = (
                    np.array([self.values(side, queries_, asked[p]) for p, side in of])
                    for of in ([(p, asked[p].a) for p in part], [(p, asked[p].b) for p in part])
                )
                flips = flips_of(len(asked))
                found = paired_figures(first, second, clusters, seed, flips=flips)
                results |= dict(zip(part, found, strict=True))
        adjusted = holm([results[place].p for place in range(len(asked))])
        return [
            Pairing(
                distractors=one.sizes[-1],
                metric=one.metric,
                a=self.names[one.a],
                b=self.names[one.b],
                paired=results[place],
                unpaired=len(self.asked(one.a, one.sizes)) - results[place].n,
                holm=adjusted[place],
                sizes=one.sizes if area else (),
            )
            for place, one in enumerate(asked)
        ]
