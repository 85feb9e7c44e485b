"""The summary of a run: every figure derives from its rows and the facts of its manifest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.metrics import ceiling, chance_recall, recall_at, recall_bounds, reciprocal_rank
from analysis.statistics import Bootstrap, Interval
from harness.files import write_atomically
from harness.fingerprint import canonical

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
        "mended": manifest["mended"],
        "pools_with_repeated_ids": manifest["pools_with_repeated_ids"],
    }


class _Cells:
    def __init__(self, manifest: Mapping[str, Any], ks: tuple[int, ...]) -> None:
        self.sessions = manifest["sessions"]
        self.rivals = manifest["rivals"]
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
        scored = [row for row in rows if row["error"] is None]
        causes = Counter(row["error"] for row in rows if row["error"] is not None)
        pool = distractors + 1
        found: dict[str, Any] = {
            "retriever": label,
            "distractors": distractors,
            "pool_size": pool,
            "attempted": len(rows),
            "scored": len(scored),
            "failed": len(rows) - len(scored),
            "failures": dict(sorted(causes.items())),
        }
        if scored:
            ties = [(row["above"], row["tied"]) for row in scored]
            bootstrap = self._bootstrap(scored)
            rivals = self._rival_counts(distractors, rows)
            found["recall"] = {
                str(k): self._recall(k, ties, pool, bootstrap, rivals) for k in self.ks
            }
            ranks = np.array([reciprocal_rank(*tie) for tie in ties])
            found["reciprocal_rank"] = {
                **_interval(bootstrap.interval(ranks)),
                "chance": _r(reciprocal_rank(0, pool)),
                "ceiling": _r(np.mean([ceiling(n, 1)[1] for n in rivals])),
            }
            found["tie_rate"] = _r(np.mean([tied > 1 for _, tied in ties]))
            found["all_tied"] = sum(tied == pool for _, tied in ties)
        for key in ("calls", "tokens_in", "tokens_out"):
            found[key] = sum(row[key] for row in rows)
        repairs: Counter[str] = Counter()
        for row in rows:
            repairs.update(row["repairs"])
        found["repairs"] = dict(sorted(repairs.items()))
        return found

    def _rival_counts(self, distractors: int, rows: Sequence[Row]) -> list[int]:
        """For each scored row the golds that no scorer can tell from its own (1 = none)."""
        seen: Counter[str] = Counter()
        counts = []
        for row in rows:
            seed = self.seeds[seen[row["query"]]]
            seen[row["query"]] += 1
            if row["error"] is None:
                counts.append(self.rivals.get(f"{distractors}/{seed}", {}).get(row["query"], 1))
        return counts

    @staticmethod
    def _recall(
        k: int,
        ties: Sequence[tuple[int, int]],
        pool: int,
        bootstrap: Bootstrap,
        rivals: Sequence[int],
    ) -> dict[str, Any]:
        bounds = np.array([recall_bounds(k, *tie) for tie in ties]).mean(axis=0)
        return {
            **_interval(bootstrap.interval(np.array([recall_at(k, *tie) for tie in ties]))),
            "worst": _r(bounds[0]),
            "best": _r(bounds[1]),
            "chance": _r(chance_recall(k, pool)),
            "ceiling": _r(np.mean([ceiling(n, k)[0] for n in rivals])),
            "trivial": k >= pool,
        }


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
