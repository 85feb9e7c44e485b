"""The summary of a run: every figure derives from its rows and the facts of its manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis import reranking
from analysis.metrics import METRICS, Metric, MetricAtK, Ties, tied_with_others
from analysis.rows import ties_of
from analysis.statistics import Bootstrap, Interval
from recallbed.errors import UserError
from recallbed.harness.failures import Failures
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical

Row = Mapping[str, Any]


def summarise(
    manifest: Mapping[str, Any], rows: Sequence[Row], ks: Sequence[int]
) -> dict[str, Any]:
    """The content of summary.json: one cell a label and size, in the order of the rows.

    A failed row is counted in its cell and enters no mean. Intervals are 95 %, bootstrapped over
    sessions with the run's seed.
    """
    fingerprint = manifest["fingerprint"]
    cells: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["retriever"], row["distractors"]), []).append(row)
    maker = _Cells(manifest, tuple(ks))
    return {
        "data": fingerprint["data"],
        "pools": fingerprint["pools"],
        "seed": fingerprint["seed"],
        "ks": list(ks),
        "cells": [maker.cell(*key, members) for key, members in cells.items()],
        "notes": manifest["notes"],
        "fitted_on_these_rows": manifest.get("fitted_on_these_rows", []),
        "mended": manifest["mended"],
        "abstentions": manifest.get("abstentions", 0),
        "pools_with_repeated_ids": manifest["pools_with_repeated_ids"],
        **({"chat_models": manifest["chat_models"]} if "chat_models" in manifest else {}),
    }


@dataclass(frozen=True, slots=True)
class _Scored:
    """What the metrics of one scored row rest on."""

    ties: Ties
    pool: int
    rivals: int


class _Cells:
    def __init__(self, manifest: Mapping[str, Any], ks: tuple[int, ...]) -> None:
        self.manifest = manifest
        self.sessions = manifest["sessions"]
        self.rivals = manifest["rivals"]
        self.pool_sizes = manifest.get("pool_sizes", {})
        self.seeds = manifest["fingerprint"]["pools"]["seeds"]
        self.seed = manifest["fingerprint"]["seed"]
        self.ks = ks
        self._bootstraps: dict[tuple[str, ...], Bootstrap] = {}

    def _bootstrap(self, scored: Sequence[Row]) -> Bootstrap:
        # All cells without failures share the resamples, so their differences are paired.
        names = [self.sessions.get(row["query"], row["query"]) for row in scored]
        key = tuple(names)
        if key not in self._bootstraps:
            self._bootstraps[key] = Bootstrap(names, self.seed)
        return self._bootstraps[key]

    def cell(self, label: str, distractors: int, rows: Sequence[Row]) -> dict[str, Any]:
        failures = Failures(row["error"] for row in rows)
        scored = self._scored(distractors, rows)
        pools = [one.pool for one in scored] or [distractors + 1]
        found: dict[str, Any] = {
            "retriever": label,
            "distractors": distractors,
            "pool_size": max(pools),
            "attempted": len(rows),
            "scored": len(scored),
            "failed": len(rows) - len(scored),
            "failures": dict(sorted(failures.counts.items())),
            "reasons": dict(sorted(failures.reasons.items())),
        }
        if min(pools) < max(pools):
            found["pool_sizes"] = {
                "min": min(pools),
                "median": float(np.median(pools)),
                "max": max(pools),
            }
        if scored:
            found.update(
                self._figures(scored, self._bootstrap([r for r in rows if not r["error"]]))
            )
        for key in ("calls", "tokens_in", "tokens_out"):
            found[key] = sum(row[key] for row in rows)
        repairs: Counter[str] = Counter()
        for row in rows:
            repairs.update(row["repairs"])
        found["repairs"] = dict(sorted(repairs.items()))
        if found["calls"] or any("estimated" in row for row in rows):
            found.update(reranking.spent(rows, reranking.price_of(self.manifest, label)))
            found.update(reranking.first_stage_recall(rows, self.ks))
            ranked = [row for row in rows if row["error"] is None]
            sizes = [one.pool for one in scored]
            places = reranking.recall_by_place(list(zip(ranked, sizes, strict=True)), self.ks)
            if places:
                found["recall_by_place"] = places
        return found

    def _scored(self, distractors: int, rows: Sequence[Row]) -> list[_Scored]:
        seen: Counter[str] = Counter()
        found = []
        for row in rows:
            key = f"{distractors}/{self.seeds[seen[row['query']]]}"
            seen[row["query"]] += 1
            if row["error"] is None:
                pool = self.pool_sizes.get(key, {}).get(row["query"], distractors + 1)
                rivals = self.rivals.get(key, {}).get(row["query"], 1)
                ties = ties_of(row)
                if len(ties) > pool:
                    raise UserError(f"manifest.json: `{row['query']}` has more golds than memories")
                found.append(_Scored(ties, pool, rivals))
        return found

    def _figures(self, scored: Sequence[_Scored], bootstrap: Bootstrap) -> dict[str, Any]:
        several = any(len(one.ties) > 1 for one in scored)
        metrics = [
            metric
            for kind in METRICS
            if kind.summarised and (several or not kind.several_golds)
            for metric in kind.at(self.ks)
        ]
        values = np.array([[metric.value(one.ties) for one in scored] for metric in metrics])
        # Of all metrics at once: one pass over the draws.
        intervals = bootstrap.intervals(values)
        found: dict[str, Any] = {}
        for metric, interval in zip(metrics, intervals, strict=True):
            figures = _interval(interval) | _context(metric, scored)
            if isinstance(metric, MetricAtK):
                found.setdefault(metric.key, {})[str(metric.k)] = figures
            else:
                found[metric.key] = figures
        found["tie_rate"] = _r(np.mean([tied_with_others(one.ties) for one in scored]))
        found["all_tied"] = sum(one.ties[0][1] == one.pool > 1 for one in scored)
        return found


def _context(metric: Metric, scored: Sequence[_Scored]) -> dict[str, Any]:
    """What the mean of a metric is to be compared with."""
    found: dict[str, Any] = {
        "chance": _r(np.mean([metric.chance(len(one.ties), one.pool) for one in scored]))
    }
    bounds = [b for one in scored if (b := metric.bounds(one.ties)) is not None]
    if bounds:
        worst, best = np.mean(bounds, axis=0)
        trivial = sum(metric.trivial(one.pool) for one in scored)
        found |= {"worst": _r(worst), "best": _r(best)}
        found |= {"trivial": trivial == len(scored), "trivial_pools": trivial}
    ceilings = [metric.ceiling(len(one.ties), one.rivals) for one in scored]
    known = [ceiling for ceiling in ceilings if ceiling is not None]
    if known:
        found["ceiling"] = _r(np.mean(known))
    return found


def _interval(interval: Interval) -> dict[str, Any]:
    return {
        "mean": _r(interval.mean),
        "low": _r(interval.low),
        "high": _r(interval.high),
        "interval": interval.method,
    }


def _r(value: float | np.floating[Any]) -> float:
    return round(float(value), 6)


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Write summary.json into the run folder `path`."""
    write_atomically(path / "summary.json", canonical(summary) + "\n")
