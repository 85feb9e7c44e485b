"""One retriever of a run as a side of a comparison, and the queries that two sides share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from analysis.metrics import Metric
from analysis.rows import SweepRow
from analysis.runs import Run, read_run
from recallbed.errors import UserError

QueryRows = Mapping[str, Sequence[SweepRow]]
"""The rows of each query at one size, one per pool seed."""


class Side(NamedTuple):
    """One retriever of a run."""

    run: Run
    label: str

    @property
    def sizes(self) -> list[int]:
        """The numbers of distractors at which it has rows, ascending."""
        return sorted({row.distractors for row in self.run.rows if row.retriever == self.label})

    def rows(self, distractors: int) -> dict[str, list[SweepRow]]:
        """Return the rows of each query at a size, one per pool seed."""
        found: dict[str, list[SweepRow]] = {}
        for row in self.run.rows:
            if row.retriever == self.label and row.distractors == distractors:
                found.setdefault(row.query, []).append(row)
        return found


def parse_side(word: str) -> Side:
    """Return the side named by `RUN:LABEL`, or by `RUN` if the run has one retriever."""
    path, colon, label = word.rpartition(":")
    if not colon:
        path, label = word, ""
    run = read_run(Path(path))
    if not label and len(run.labels) == 1:
        label = run.labels[0]
    if label not in run.labels:
        asked = f"no retriever `{label}` in this run" if label else "the run has several retrievers"
        raise UserError(
            f"{word}: {asked} (labels: {', '.join(run.labels)})."
            f" Name one, as in {path}:{run.labels[0]}"
        )
    return Side(run, label)


def side_names(sides: Sequence[Side]) -> list[str]:
    """Return a distinct name for each side: its label, or `RUN:LABEL` if several have that label.

    A side that is named twice gets a number.
    """
    labels = Counter(side.label for side in sides)
    names = [s.label if labels[s.label] == 1 else f"{s.run.path}:{s.label}" for s in sides]
    return numbered(names)


def numbered(names: Sequence[str]) -> list[str]:
    """Return the names, those that are repeated with a number: `x`, `x (2)`."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def paired_places(count: int, baseline: int | None) -> list[tuple[int, int]]:
    """Return the pairs of `count` sides: of one with all others, or (None) of all."""
    if baseline is None:
        return list(combinations(range(count), 2))
    return [(baseline, other) for other in range(count) if other != baseline]


def scored_in_both(one: QueryRows, other: QueryRows, size: int) -> list[str]:
    """Return the queries that did not fail on either side, in order.

    Raise UserError if the two do not have the same queries and pools.
    """
    odd = one.keys() ^ other.keys()
    if odd:
        raise UserError(
            f"not the same queries at {size} distractors: {len(odd)} are in one run only,"
            f" such as `{min(odd)}`"
        )
    scored = [q for q in sorted(one) if all(r.error is None for r in (*one[q], *other[q]))]
    for query in scored:
        if [row.pool for row in one[query]] != [row.pool for row in other[query]]:
            raise UserError(f"not the same pools: `{query}` at {size} distractors")
    return scored


def query_value(metric: Metric, rows: Sequence[SweepRow]) -> float:
    """Return a metric of a query, averaged over pool seeds."""
    return sum(metric.value(row.ties) for row in rows) / len(rows)


def area_weights(run: Run, sizes: Sequence[int]) -> list[float]:
    """Return the weight of each size in the area under a curve against log10 of the pool's size.

    By the trapezoidal rule, over the range of the logarithms: the weights add up to 1. `sizes` are
    numbers of distractors; that of a pool is the median over the queries. Raise UserError for fewer
    than two sizes of pools.
    """
    logs = [math.log10(_pool_size(run, size)) for size in sizes]
    if len(sizes) < 2 or logs != sorted(set(logs)):
        at = f"{sizes[0]} distractors only" if len(sizes) == 1 else "these sizes"
        raise UserError(
            f"{run.path}: no area under the curve at {at}: it needs pools of two sizes or more"
        )
    steps = np.diff(logs) / (logs[-1] - logs[0]) / 2
    return [float(w) for w in np.concatenate([steps, [0]]) + np.concatenate([[0], steps])]


def _pool_size(run: Run, distractors: int) -> float:
    """The median size of the run's pools at a size."""
    known = run.manifest.get("pool_sizes", {})
    queries = {row.query for row in run.rows if row.distractors == distractors}
    seeds = run.manifest["fingerprint"]["pools"]["seeds"]
    return float(
        np.median(
            [
                known.get(f"{distractors}/{seed}", {}).get(query, distractors + 1)
                for seed in seeds
                for query in sorted(queries)
            ]
        )
    )
