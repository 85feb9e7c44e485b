"""Comparisons of a report: significance of all pairs, areas under curves, breakdowns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from analysis.breakdown import FEW, TOTAL, BreakdownCell, breakdown_of_rows
from analysis.groups import group_of
from analysis.metrics import Metric, summarised_metrics
from analysis.p_values import holm
from analysis.ranked_pools import ranked_pools
from analysis.report_data import ReportCurve
from analysis.sides import Side
from analysis.significance import ALPHA, Pairing, pairings, side_areas
from analysis.statistics import rounded
from recallbed.corpus.material import Material
from recallbed.errors import UserError
from recallbed.harness.terminal import visible


def compared_by_report(curves: Sequence[ReportCurve], ks: Sequence[int]) -> list[Metric]:
    """Return the metrics of the matrix: those of the table, nDCG at the largest k only."""
    several = any(len(row.golds) > 1 for curve in curves for row in curve.run.rows)
    largest = summarised_metrics(ks[-1:], several)
    return [m for m in summarised_metrics(ks, several) if m.tabulated or m in largest]


def grouped_by_report(ks: Sequence[int]) -> list[Metric]:
    """Return the metrics of the breakdowns: recall and what else a table has for single golds."""
    return [m for m in summarised_metrics(ks, several_golds=False) if m.tabulated]


def significance_of(
    curves: Sequence[ReportCurve], sizes: Sequence[int], metrics: Sequence[Metric]
) -> dict[str, Any]:
    """Return the comparisons of all pairs at each size, and the area under each curve.

    Holm's family is the pairs of one size and metric, which the page shows as one matrix. What
    cannot be compared has its reason in `reasons`.
    """
    scored = [i for i, curve in enumerate(curves) if any(r.error is None for r in _rows(curve))]
    sides = {i: Side(curves[i].run, curves[i].label) for i in scored}
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    reasons: list[str] = []
    for size in sizes:
        here = {i: side for i, side in sides.items() if size in side.sizes}
        compared = _compared(here, curves, size, metrics, reasons)
        found[str(size)] = {metric.name: compared.of(metric) for metric in metrics}
    areas: dict[str, list[dict[str, Any]]] = {metric.name: [] for metric in metrics}
    for i, side in sides.items():
        try:
            for area in side_areas([side], metrics):
                one = {"curve": i, "n": area.n, "sizes": list(area.sizes)}
                areas[area.metric.name].append({**one, **area.mean.to_json()})
        except UserError as error:
            reasons.append(f"{curves[i].name}: no area under the curve ({visible(error)})")
    return {"alpha": ALPHA, "sizes": found, "areas": areas, "reasons": list(dict.fromkeys(reasons))}


def _rows(curve: ReportCurve) -> Any:
    return (row for row in curve.run.rows if row.retriever == curve.label)


@dataclass(slots=True)
class _Compared:
    """Pairs of curves by their numbers, with the pairing of each metric."""

    pairs: list[tuple[int, int, Pairing]] = field(default_factory=list)

    def of(self, metric: Metric) -> list[dict[str, Any]]:
        mine = [one for one in self.pairs if one[2].metric == metric]
        adjusted = holm([pairing.paired.p for _, _, pairing in mine])
        return [_pair(a, b, pairing, p) for (a, b, pairing), p in zip(mine, adjusted, strict=True)]


def _compared(
    sides: dict[int, Side],
    curves: Sequence[ReportCurve],
    size: int,
    metrics: Sequence[Metric],
    reasons: list[str],
) -> _Compared:
    """Compare all pairs at a size: at once, or one by one if some of them cannot be compared."""
    numbers = list(sides)
    pairs = list(combinations(numbers, 2))
    found = _Compared()
    if not pairs:
        return found
    try:
        results = pairings(list(sides.values()), metrics, sizes=[size], baseline=None)
        _keep(found, pairs, results, metrics)
    except UserError:
        for a, b in pairs:
            try:
                results = pairings([sides[a], sides[b]], metrics, sizes=[size])
                _keep(found, [(a, b)], results, metrics)
            except UserError as error:
                names = f"{curves[a].name} and {curves[b].name} at {size} distractors"
                reasons.append(f"{names}: {visible(error)}")
    return found


def _keep(
    found: _Compared,
    pairs: Sequence[tuple[int, int]],
    results: Sequence[Pairing],
    metrics: Sequence[Metric],
) -> None:
    """Results are in the order of metric and pair."""
    expected = [pair for _ in metrics for pair in pairs]
    found.pairs += [(a, b, one) for (a, b), one in zip(expected, results, strict=True)]


def _pair(a: int, b: int, pairing: Pairing, adjusted: float | None) -> dict[str, Any]:
    one = pairing.paired
    figures = {
        "difference": one.difference,
        "low": one.low,
        "high": one.high,
        "p": one.p,
        "holm": adjusted,
        "mcnemar": one.mcnemar,
        "effect": one.effect,
    }
    counts = {"n": one.n, "unpaired": pairing.unpaired}
    counts |= {"wins": one.wins, "ties": one.ties, "losses": one.losses}
    shown: dict[str, Any] = {"a": a, "b": b, **counts, **rounded(figures)}
    return shown if one.reason is None else {**shown, "reason": one.reason}


def breakdowns_of(
    curves: Sequence[ReportCurve],
    material: Material,
    names: Sequence[str],
    metrics: Sequence[Metric],
) -> dict[str, Any]:
    """Return the metrics of each curve over the groups of each grouping.

    A cell is [group, -1 for all queries; curve, queries, failed rows, mean, low, high].
    """
    runs = list({id(curve.run): curve.run for curve in curves}.values())
    rows = [list(ranked_pools(run, material)) for run in runs] if names else []
    by: dict[str, Any] = {}
    totals: list[tuple[Metric, int, BreakdownCell]] = []
    for name in names:
        grouping = group_of(name, material)
        cells = list(totals)
        for run, ranked in zip(runs, rows, strict=True):
            number = {curve.label: i for i, curve in enumerate(curves) if curve.run is run}
            broken = breakdown_of_rows(run, ranked, grouping, metrics, with_total=not totals)
            for metric, mine in broken.items():
                cells += [(metric, number[cell.retriever], cell) for cell in mine]
        totals = totals or [one for one in cells if one[2].total]
        counts: dict[str, int] = {}
        for _, _, cell in cells:
            if not cell.total:
                counts[cell.group] = max(counts.get(cell.group, 0), cell.n + cell.failed)
        groups = grouping.ordered(counts)
        place = {group: i for i, group in enumerate(groups)}
        found: dict[str, dict[str, list[Any]]] = {metric.name: {} for metric in metrics}
        for metric, curve, cell in cells:
            group = -1 if cell.total else place[cell.group]
            shown = [group, curve, cell.n, cell.failed, *_figures(cell)]
            found[metric.name].setdefault(str(cell.distractors), []).append(shown)
        by[name] = {"title": grouping.text, "groups": groups, "cells": found}
    names_of_metrics = [metric.name for metric in metrics]
    return {"by": by, "metrics": names_of_metrics, "few": FEW, "total": TOTAL}


def _figures(cell: BreakdownCell) -> list[float | None]:
    one = cell.estimate
    return [None] * 3 if one is None else [round(x, 6) for x in (one.mean, one.low, one.high)]
