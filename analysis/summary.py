"""The summary of a sweep: every figure derives from its rows and the facts of its manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from analysis.metrics import (
    Metric,
    MetricAtK,
    Recall,
    Ties,
    recall_at,
    recall_within,
    summarised_metrics,
    tied_with_others,
)
from analysis.rows import Reranking, SweepRow
from analysis.statistics import Bootstrap, Interval
from recallbed.errors import UserError
from recallbed.harness.failures import Failures

TENTHS_FROM = 100
"""Places in a prompt from which on it is cut into tenths, else into thirds."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of a metric over queries: its 95 % interval, and what it is to be compared with.

    `interval` names the method, `chance` is the value of a scorer that gives all memories one
    score, `trivial_pools` counts the pools of which every order has the same value. Figures that a
    metric does not have are None.
    """

    mean: float
    low: float
    high: float
    interval: str
    chance: float
    worst: float | None = None
    best: float | None = None
    ceiling: float | None = None
    trivial: bool | None = None
    trivial_pools: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the figures that there are."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class PromptPart:
    """Recall by k of the golds shown in one part of a prompt; empty without golds."""

    start: float
    end: float
    golds: int
    recall: Mapping[int, float]

    def to_json(self) -> dict[str, Any]:
        """Return it with the keys of summary.json."""
        head = {"from": self.start, "to": self.end, "golds": self.golds}
        return {**head, "recall": _by_k(self.recall)}


@dataclass(frozen=True, slots=True)
class RerankReport:
    """What the replies of chat models took, and what reranking could reach at best.

    `cost` is of all rows, in the currency of the table of prices: None if the price is unknown or
    the tokens of a call are an estimate. Calls of failed rows are unknown to their rows, and not in
    it. `first_stage_recall` is by k the best recall@k of any order of the best `depth`.
    """

    per_query: Mapping[str, float]
    estimated_calls: int
    cost: float | None
    depth: int | None
    first_stage_recall: Mapping[int, float]
    recall_by_place: Sequence[PromptPart]

    def to_json(self) -> dict[str, Any]:
        """Return it with the keys of summary.json."""
        found: dict[str, Any] = {
            "per_query": dict(self.per_query),
            "estimated_calls": self.estimated_calls,
            "cost": self.cost,
        }
        if self.depth is not None:
            found |= {"depth": self.depth, "first_stage_recall": _by_k(self.first_stage_recall)}
        if self.recall_by_place:
            found["recall_by_place"] = [part.to_json() for part in self.recall_by_place]
        return found


@dataclass(frozen=True, slots=True)
class Cell:
    """One retriever at one number of distractors.

    A failed row is counted by cause and enters no mean: `estimates` is empty and `tie_rate` None
    without a scored row. `all_tied` counts the pools in which all memories have one score,
    `pool_sizes` is (smallest, median, largest).
    """

    retriever: str
    distractors: int
    pool_sizes: tuple[int, float, int]
    attempted: int
    scored: int
    failures: Mapping[str, int]
    reasons: Mapping[str, str]
    calls: int
    tokens_in: int
    tokens_out: int
    repairs: Mapping[str, int]
    estimates: Mapping[Metric, Estimate] = field(default_factory=dict)
    tie_rate: float | None = None
    all_tied: int = 0
    reranked: RerankReport | None = None

    @property
    def failed(self) -> int:
        """How many rows have an error."""
        return self.attempted - self.scored

    @property
    def several_golds(self) -> bool:
        """Whether a query has several golds."""
        return any(metric.several_golds for metric in self.estimates)

    def recalls(self) -> dict[int, Estimate]:
        """Return recall by k."""
        return {m.k: one for m, one in self.estimates.items() if type(m) is Recall}

    def to_json(self) -> dict[str, Any]:
        """Return the cell as summary.json has it."""
        smallest, median, largest = self.pool_sizes
        found: dict[str, Any] = {
            "retriever": self.retriever,
            "distractors": self.distractors,
            "pool_size": largest,
            "attempted": self.attempted,
            "scored": self.scored,
            "failed": self.failed,
            "failures": dict(self.failures),
            "reasons": dict(self.reasons),
            "calls": self.calls,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "repairs": dict(self.repairs),
        }
        if smallest < largest:
            found["pool_sizes"] = {"min": smallest, "median": median, "max": largest}
        for metric, estimate in self.estimates.items():
            if isinstance(metric, MetricAtK):
                found.setdefault(metric.key, {})[str(metric.k)] = estimate.to_json()
            else:
                found[metric.key] = estimate.to_json()
        if self.tie_rate is not None:
            found |= {"tie_rate": self.tie_rate, "all_tied": self.all_tied}
        return found if self.reranked is None else found | self.reranked.to_json()


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """What summary.json of a sweep holds: one cell per label and size, in the order of the rows."""

    ks: tuple[int, ...]
    cells: tuple[Cell, ...]
    facts: Mapping[str, Any]
    """`data`, `pools` and `seed` of the fingerprint, and what the manifest says about the data."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of summary.json."""
        cells = [cell.to_json() for cell in self.cells]
        return {"ks": list(self.ks), "cells": cells, **self.facts}


def summarise(
    manifest: Mapping[str, Any],
    rows: Sequence[SweepRow],
    ks: Sequence[int],
    more: Sequence[Metric] = (),
) -> SweepSummary:
    """Compute the summary for `ks` and `more` metrics.

    Intervals are bootstrapped over sessions with the run's seed.
    """
    fingerprint = manifest["fingerprint"]
    cells: dict[tuple[str, int], list[SweepRow]] = {}
    for row in rows:
        cells.setdefault((row.retriever, row.distractors), []).append(row)
    maker = _Cells(manifest, tuple(ks), more)
    facts = {
        **{key: fingerprint[key] for key in ("data", "pools", "seed")},
        **{key: manifest[key] for key in ("notes", "repaired", "pools_with_repeated_ids")},
        "fitted_on_these_rows": manifest.get("fitted_on_these_rows", []),
        "abstentions": manifest.get("abstentions", 0),
        **({"left_out": len(manifest["left_out"])} if manifest.get("left_out") else {}),
        **({"chat_models": manifest["chat_models"]} if "chat_models" in manifest else {}),
    }
    return SweepSummary(
        tuple(ks), tuple(maker.cell(*key, members) for key, members in cells.items()), facts
    )


@dataclass(frozen=True, slots=True)
class _Scored:
    """What the metrics of one scored row are computed from."""

    ties: Ties
    pool: int
    duplicates: int


class _Cells:
    def __init__(
        self, manifest: Mapping[str, Any], ks: tuple[int, ...], more: Sequence[Metric]
    ) -> None:
        self.manifest, self.ks, self.more = manifest, ks, more
        self.sessions = manifest["sessions"]
        self.duplicates = manifest["duplicate_queries"]
        self.pool_sizes = manifest.get("pool_sizes", {})
        self.seeds = manifest["fingerprint"]["pools"]["seeds"]
        self.seed = manifest["fingerprint"]["seed"]
        self._bootstraps: dict[tuple[str, ...], Bootstrap] = {}

    def _bootstrap(self, scored: Sequence[SweepRow]) -> Bootstrap:
        # All cells without failures share the resamples, so their differences are paired.
        names = [self.sessions.get(row.query, row.query) for row in scored]
        key = tuple(names)
        if key not in self._bootstraps:
            self._bootstraps[key] = Bootstrap(names, self.seed)
        return self._bootstraps[key]

    def cell(self, label: str, distractors: int, rows: Sequence[SweepRow]) -> Cell:
        failures = Failures(row.error for row in rows)
        ranked = [row for row in rows if row.error is None]
        scored = self._scored(distractors, rows)
        pools = [one.pool for one in scored] or [distractors + 1]
        repairs: Counter[str] = Counter()
        for row in rows:
            repairs.update(row.repairs)
        reranked = None
        if any(row.calls or row.reranked for row in rows):
            reranked = self._reranked(label, ranked, [one.pool for one in scored])
        return Cell(
            retriever=label,
            distractors=distractors,
            pool_sizes=(min(pools), float(np.median(pools)), max(pools)),
            attempted=len(rows),
            scored=len(scored),
            failures=dict(sorted(failures.counts.items())),
            reasons=dict(sorted(failures.reasons.items())),
            calls=sum(row.calls for row in rows),
            tokens_in=sum(row.tokens_in for row in rows),
            tokens_out=sum(row.tokens_out for row in rows),
            repairs=dict(sorted(repairs.items())),
            estimates=self._estimates(scored, self._bootstrap(ranked)) if scored else {},
            tie_rate=_r(np.mean([tied_with_others(s.ties) for s in scored])) if scored else None,
            all_tied=sum(one.ties[0][1] == one.pool > 1 for one in scored),
            reranked=reranked,
        )

    def _scored(self, distractors: int, rows: Sequence[SweepRow]) -> list[_Scored]:
        seen: Counter[str] = Counter()
        found = []
        for row in rows:
            key = f"{distractors}/{self.seeds[seen[row.query]]}"
            seen[row.query] += 1
            if row.error is None:
                pool = self.pool_sizes.get(key, {}).get(row.query, distractors + 1)
                duplicates = self.duplicates.get(key, {}).get(row.query, 1)
                if len(row.ties) > pool:
                    raise UserError(f"manifest.json: `{row.query}` has more golds than memories")
                found.append(_Scored(row.ties, pool, duplicates))
        return found

    def _estimates(self, scored: Sequence[_Scored], bootstrap: Bootstrap) -> dict[Metric, Estimate]:
        several = any(len(one.ties) > 1 for one in scored)
        metrics = summarised_metrics(self.ks, several)
        metrics += [metric for metric in self.more if metric not in metrics]
        distinct = {tuple(one.ties) for one in scored}
        value = {metric: {ties: metric.value(ties) for ties in distinct} for metric in metrics}
        values = np.array([[value[m][tuple(one.ties)] for one in scored] for m in metrics])
        # Of all metrics at once: one pass over the draws.
        intervals = bootstrap.intervals(values)
        return {
            metric: _estimate(metric, interval, scored)
            for metric, interval in zip(metrics, intervals, strict=True)
        }

    def _reranked(self, label: str, rows: Sequence[SweepRow], pools: Sequence[int]) -> RerankReport:
        keys = ("calls", "tokens_in", "tokens_out")
        total = {key: sum(getattr(row, key) for row in rows) for key in keys}
        estimated = sum(row.reranked.estimated for row in rows if row.reranked)
        models = self.manifest.get("chat_models", {}).get(label, ())
        # Of a label that asks several models, rows have only the sum of the tokens.
        price = self.manifest.get("prices", {}).get(models[0]) if len(models) == 1 else None
        cost = None
        if not total["calls"]:
            cost = 0.0
        elif price is not None and not estimated:
            cost = (total["tokens_in"] * price["in"] + total["tokens_out"] * price["out"]) / 1e6
        known = [
            (one.depth, one.first)
            for row in rows
            if (one := row.reranked) and one.first is not None and one.depth is not None
        ]
        return RerankReport(
            per_query={key: round(n / max(len(rows), 1), 4) for key, n in total.items()},
            estimated_calls=estimated,
            cost=None if cost is None else round(cost, 9),
            depth=max((depth for depth, _ in known), default=None),
            first_stage_recall={
                k: _r(np.mean([recall_within(k, depth, first) for depth, first in known]))
                for k in (self.ks if known else ())
            },
            recall_by_place=_recall_by_place(rows, pools, self.ks),
        )


def _estimate(metric: Metric, interval: Interval, scored: Sequence[_Scored]) -> Estimate:
    pools = [(len(one.ties), one.pool) for one in scored]
    by_pool = {pool: metric.chance(*pool) for pool in set(pools)}
    chance = _r(np.mean([by_pool[pool] for pool in pools]))
    context: dict[str, Any] = {}
    bounds = [pair for one in scored if (pair := metric.bounds(one.ties)) is not None]
    if bounds:
        context["worst"], context["best"] = map(_r, np.mean(bounds, axis=0))
        context["trivial_pools"] = sum(metric.trivial(one.pool) for one in scored)
        context["trivial"] = context["trivial_pools"] == len(scored)
    ceilings = [metric.ceiling(len(one.ties), one.duplicates) for one in scored]
    known = [ceiling for ceiling in ceilings if ceiling is not None]
    if known:
        context["ceiling"] = _r(np.mean(known))
    ends = _r(interval.mean), _r(interval.low), _r(interval.high)
    return Estimate(*ends, interval.method, chance, **context)


def _recall_by_place(
    rows: Sequence[SweepRow], pools: Sequence[int], ks: Sequence[int]
) -> list[PromptPart]:
    """Recall of the golds by their place in the prompt, in equal parts of its length.

    `pools` has the size of each row's pool. Empty if no place is known.
    """
    found: list[tuple[float, int, int]] = []
    longest = 0
    for row, pool in zip(rows, pools, strict=True):
        reranked = row.reranked or Reranking()
        length = min(reranked.depth or pool, pool)
        for place, tie in zip(reranked.shown or (), row.ties, strict=False):
            if place is not None:
                found.append((place / length, *tie))
                longest = max(longest, length)
    parts = 10 if longest >= TENTHS_FROM else 3
    table = []
    for part in range(parts if found else 0):
        mine = [tie for place, *tie in found if min(int(place * parts), parts - 1) == part]
        recall = {k: _r(np.mean([recall_at(k, *tie) for tie in mine])) for k in ks if mine}
        start, end = round(part / parts, 4), round((part + 1) / parts, 4)
        table.append(PromptPart(start, end, len(mine), recall))
    return table


def _by_k(figures: Mapping[int, float]) -> dict[str, float]:
    return {str(k): value for k, value in figures.items()}


def _r(value: float | np.floating[Any]) -> float:
    return round(float(value), 6)
