"""What a report shows: figures of curves and runs, as JSON for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.curves import gaps
from analysis.frontier import AXES, frontier, frontier_remarks, points_of
from analysis.metrics import METRICS, Metric, MetricAtK, Recall
from analysis.published import CAPTION
from analysis.runs import Run, names_apart, origin_of
from analysis.summary import Cell, Estimate, SweepSummary
from analysis.tables import remarks, title
from recallbed.errors import UserError
from recallbed.harness.fingerprint import difference
from recallbed.harness.terminal import visible

TITLES = {
    "R": "recall@k",
    "any": "at least one gold in the first k",
    "all": "every gold in the first k",
    "nDCG": "nDCG@k",
    "E[RR]": "mean reciprocal rank",
}
"""What the page calls a metric; others are named by their symbol."""


@dataclass(frozen=True, slots=True)
class ReportCurve:
    """A label of a run under a name that no other has; `source` numbers the runs."""

    name: str
    run: Run
    label: str
    retriever: int
    source: int


def check_one_origin(runs: Sequence[Run]) -> None:
    """Raise UserError unless all runs are on the same data and pools, of any sizes.

    Nor may a run be named twice.
    """
    paths = [run.path.resolve() for run in runs]
    for run, path in zip(runs, paths, strict=True):
        if paths.count(path) > 1:
            raise UserError(f"{run.path}: named twice. Name each run once")
    first, *others = (origin_of(run) for run in runs)
    for run, other in zip(runs[1:], others, strict=True):
        found = difference(first, other)
        if found:
            raise UserError(
                f"{run.path}: not on the data and pools of {runs[0].path}: {found}. One report"
                " compares runs on the same queries and pools: make one for each"
            )


def of_all_sizes(runs: Sequence[Run]) -> Run:
    """Return the first run as if it had been made over the pool sizes of all of them."""
    sizes = {size for run in runs for size in sizes_of(run)}
    prints = runs[0].manifest["fingerprint"]
    pools = {**prints["pools"], "distractors": sorted(sizes)}
    manifest = {**runs[0].manifest, "fingerprint": {**prints, "pools": pools}}
    return replace(runs[0], manifest=manifest, summaries={})


def sizes_of(run: Run) -> list[int]:
    """Return the numbers of distractors that a run was made for, or else has rows of."""
    named = run.manifest["fingerprint"]["pools"].get("distractors")
    if isinstance(named, list) and all(type(size) is int for size in named):
        return sorted(named)
    return sorted({row.distractors for row in run.rows})


def folder_names(runs: Sequence[Run]) -> list[str]:
    """Return the name of each run's folder, with its parent if two have one name."""
    folders = [run.path.resolve() for run in runs]
    counts = Counter(folder.name for folder in folders)
    return [
        visible(f.name if counts[f.name] == 1 else f"{f.parent.name}/{f.name}") for f in folders
    ]


def report_curves(runs: Sequence[Run]) -> list[ReportCurve]:
    """Return every label of every run that has a row, scored or failed."""
    pairs = [(run, label) for run in runs for label in run.labels]
    retrievers = list(dict.fromkeys(label for _, label in pairs))
    found = []
    for (run, label), name in zip(pairs, names_apart(pairs), strict=True):
        if any(row.retriever == label for row in run.rows):
            source = next(i for i, one in enumerate(runs) if one is run)
            found.append(ReportCurve(name, run, label, retrievers.index(label), source))
    return found


def summary_of(run: Run, ks: Sequence[int]) -> SweepSummary:
    """Return the summary of a run for `ks`, which then serves for each of these k, too."""
    found = run.summary(ks)
    for k in ks:
        run.summaries.setdefault(((k,), ()), found)
    return found


def figures_of(
    runs: Sequence[Run],
    curves: Sequence[ReportCurve],
    ks: Sequence[int],
    published: dict[str, dict[int, float]],
) -> dict[str, Any]:
    """Return what the page's table and curves show, with the remarks of all runs."""
    summaries = [summary_of(run, ks) for run in runs]
    cells = [cell for summary in summaries for cell in summary.cells]
    lines = [f"{name}: {line}" if len(runs) > 1 else line for name, line in _remarks(runs, ks)]
    return {
        "subtitle": list(dict.fromkeys(title(summary) for summary in summaries)),
        "sample": bool(runs[0].manifest["fingerprint"]["data"]["sample"]),
        "remarks": lines,
        "ks": list(ks),
        "metrics": [_metric(kind) for kind in METRICS if _shown(kind, cells)],
        "sizes": sorted({cell.distractors for cell in cells}),
        "seeds": runs[0].manifest["fingerprint"]["pools"]["seeds"],
        "curves": [_curve(curve, summaries[curve.source]) for curve in curves],
        "published": [
            {"name": f"{name}, published", "values": list(map(list, values.items()))}
            for name, values in published.items()
        ],
        "publishedCaption": CAPTION,
    }


def _remarks(runs: Sequence[Run], ks: Sequence[int]) -> Iterator[tuple[str, str]]:
    for name, run in zip(folder_names(runs), runs, strict=True):
        lines = [*remarks(summary_of(run, ks))]
        lines += [line.removeprefix(f"{run.path}: ") for line in gaps([run], Recall(ks[0]))]
        yield from ((name, line) for line in dict.fromkeys(lines))


def _shown(kind: type[Metric], cells: Sequence[Cell]) -> bool:
    """Whether a cell has it; recall always, so that a page without a scored row has a metric."""
    return kind is Recall or any(type(m) is kind for cell in cells for m in cell.estimates)


def _metric(kind: type[Metric]) -> dict[str, Any]:
    symbol = kind.symbol
    return {
        "symbol": symbol,
        "title": TITLES.get(symbol, symbol),
        "atK": issubclass(kind, MetricAtK),
    }


def _curve(curve: ReportCurve, summary: SweepSummary) -> dict[str, Any]:
    mine = [cell for cell in summary.cells if cell.retriever == curve.label]
    return {
        "name": curve.name,
        "label": curve.label,
        "run": curve.source,
        "look": [curve.retriever, curve.source],
        "cells": {str(cell.distractors): _cell(cell, curve.run.rows_of_a_cell) for cell in mine},
    }


def _cell(cell: Cell, rows: int) -> dict[str, Any]:
    report = cell.reranked
    return {
        "pool": list(cell.pool_sizes),
        "rows": rows,
        "attempted": cell.attempted,
        "scored": cell.scored,
        "failed": cell.failed,
        "failures": dict(cell.failures),
        "tied": cell.tie_rate,
        "calls": report.per_query["calls"] if report else None,
        "tokensIn": report.per_query["tokens_in"] if report else None,
        "tokensOut": report.per_query["tokens_out"] if report else None,
        "cost": report.cost if report else None,
        "metrics": {metric.name: _estimate(one) for metric, one in cell.estimates.items()},
    }


def _estimate(one: Estimate) -> dict[str, Any]:
    keys = ("mean", "low", "high", "worst", "best", "chance", "ceiling", "trivial")
    return {key: value for key in keys if (value := getattr(one, key)) is not None}


def frontier_of(runs: Sequence[Run], ks: Sequence[int], sizes: Sequence[int]) -> dict[str, Any]:
    """Return the points of each size and k with who is on the frontier, or why there are none."""
    found: dict[str, Any] = {"axes": AXES, "sizes": {}, "reasons": {}}
    for size in sizes:
        try:
            found["sizes"][str(size)] = {
                str(k): _points(*points_of(runs, size, Recall(k))) for k in ks
            }
        except UserError as error:
            found["reasons"][str(size)] = visible(error).removeprefix("--distractors ")
    return found


def _points(size: int, points: Sequence[Any]) -> dict[str, Any]:
    best = {axis: {point.label for point in frontier(points, axis)} for axis in AXES}
    return {
        "points": [
            {
                "name": point.label,
                "recall": point.recall,
                "low": point.low,
                "high": point.high,
                "amounts": {axis: _rounded(point.amounts[axis]) for axis in AXES},
                "calls": point.calls,
                "on": [axis for axis in AXES if point.label in best[axis]],
            }
            for point in points
        ],
        "remarks": {axis: frontier_remarks(points, axis) for axis in AXES},
    }


def _rounded(amount: float | None) -> float | None:
    return None if amount is None else float(f"{amount:.6g}")


def manifests_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return of each run what its manifest says: data, pools, settings, versions, notes."""
    found = []
    for name, run in zip(folder_names(runs), runs, strict=True):
        prints, manifest = run.manifest["fingerprint"], run.manifest
        expected = run.rows_of_a_cell * len(run.labels) * len(sizes_of(run))
        found.append(
            {
                "name": name,
                "rows": len(run.rows),
                "expected": expected,
                "failed": sum(row.error is not None for row in run.rows),
                "facts": {
                    key: prints[key] for key in ("data", "pools", "seed", "code") if key in prints
                },
                "libraries": prints.get("libraries", {}),
                "retrievers": prints["retrievers"],
                "notes": manifest["notes"],
                "more": {
                    key: manifest[key]
                    for key in (
                        "fitted_on_these_rows",
                        "repaired",
                        "pools_with_repeated_ids",
                        "abstentions",
                        "chat_models",
                        "prices",
                    )
                    if manifest.get(key)
                },
            }
        )
    return found
