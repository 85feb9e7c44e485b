"""A metric by groups of queries: `python -m analysis.breakdown RUN... --by NAME`."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from analysis.figure_options import SCREEN, FigureOptions
from analysis.groups import Grouping, Where, group_of, parse_where
from analysis.metric_option import MetricNames, one_metric
from analysis.metrics import Metric, Recall
from analysis.pictures import check_out
from analysis.ranked_pools import RankedPool, material_of, ranked_pools
from analysis.row_options import OfLabel, SweepRuns
from analysis.rows import SweepRow
from analysis.runs import Run, names_apart, read_run
from analysis.statistics import Bootstrap, Interval
from analysis.tables import measured
from recallbed.corpus.material import Material
from recallbed.corpus.options import Data
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical
from recallbed.harness.options import AsJson, Without, numbers
from recallbed.harness.run_options import Overwrite
from recallbed.harness.terminal import note, say, say_json, visible
from recallbed.harness.text_table import TextTable, print_tables

FEW = 10
"""Groups of fewer queries are marked: their figures say little."""
TOTAL = "all queries"
app = App()


@dataclass(frozen=True, slots=True)
class BreakdownCell:
    """A metric of one retriever over the queries of one group, at one size.

    `n` counts the scored queries, `failed` the rows that failed; `estimate` is None if no query was
    scored. `few` marks fewer than `FEW` queries, `total` the cell of all groups.
    """

    group: str
    retriever: str
    distractors: int
    n: int
    estimate: Interval | None
    few: bool
    failed: int = 0
    total: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields; mean, low, high and interval are null without a scored query."""
        figures: dict[str, Any] = dict.fromkeys(("mean", "low", "high", "interval"))
        if self.estimate is not None:
            found = self.estimate.to_json()
            figures |= {**found, "interval": found.pop("method")}
            del figures["method"]
        return {
            "retriever": self.retriever,
            "distractors": self.distractors,
            "group": self.group,
            "total": self.total,
            "n": self.n,
            "failed": self.failed,
            "few": self.few,
            **figures,
        }


def breakdown(
    run: Run,
    material: Material,
    by: str,
    metric: Metric,
    sizes: Collection[int] | None = None,
    labels: Collection[str] | None = None,
    keep: Callable[[RankedPool], bool] | None = None,
) -> list[BreakdownCell]:
    """Return a cell for each size, group and retriever, and for each size those of all groups.

    Sizes ascend, groups are in the order of their grouping, then `TOTAL`; retrievers in that of the
    run. Intervals are bootstrapped over sessions with the run's seed. Only rows that `keep` lets
    through count. Raise UserError for an unknown grouping.
    """
    grouping = group_of(by, material)
    ranked = (one for one in ranked_pools(run, material, labels, sizes) if not keep or keep(one))
    return breakdown_of_rows(run, ranked, grouping, [metric])[metric]


def breakdown_of_rows(
    run: Run,
    ranked_rows: Iterable[RankedPool],
    grouping: Grouping,
    metrics: Sequence[Metric],
    with_total: bool = True,
) -> dict[Metric, list[BreakdownCell]]:
    """Return `breakdown` of rows of a run for each metric, all over the same resamples.

    The cells of all groups, which do not depend on the grouping, are left out unless `with_total`.
    """
    rows: dict[tuple[int, str | None, str], list[SweepRow]] = {}
    queries: dict[str, set[str]] = {}
    for ranked in ranked_rows:
        row, group = ranked.row, grouping(ranked)
        queries.setdefault(group, set()).add(row.query)
        for name in (group, None) if with_total else (group,):
            rows.setdefault((row.distractors, name, row.retriever), []).append(row)
    place = {name: i for i, name in enumerate(grouping.ordered(_lengths(queries)))}
    order = {label: i for i, label in enumerate(run.labels)}
    scored = {key: [row for row in found if row.error is None] for key, found in rows.items()}
    estimates = _estimates(scored, metrics, run)
    cells: dict[Metric, list[BreakdownCell]] = {metric: [] for metric in metrics}
    for key in sorted(rows, key=lambda k: (k[0], place.get(k[1] or "", len(place)), order[k[2]])):
        size, group_or_all, label = key
        n = len({row.query for row in scored[key]})
        failed = len(rows[key]) - len(scored[key])
        total = group_or_all is None
        group = TOTAL if group_or_all is None else group_or_all
        for metric in metrics:
            found = estimates.get((metric, *key))
            cell = BreakdownCell(group, label, size, n, found, n < FEW, failed, total)
            cells[metric].append(cell)
    return cells


def _lengths(groups: Mapping[str, Collection[str]]) -> dict[str, int]:
    return {name: len(found) for name, found in groups.items()}


def _estimates(
    rows: Mapping[tuple[int, str | None, str], Sequence[SweepRow]],
    metrics: Sequence[Metric],
    run: Run,
) -> dict[tuple[Metric, int, str | None, str], Interval]:
    """The intervals; cells over the same queries share one pass over the resamples."""
    alike: dict[tuple[str, ...], list[tuple[int, str | None, str]]] = {}
    for key, found in rows.items():
        alike.setdefault(tuple(row.query for row in found), []).append(key)
    sessions, seed = run.manifest["sessions"], run.manifest["fingerprint"]["seed"]
    distinct = {row.ties for found in rows.values() for row in found}
    value = {metric: {ties: metric.value(ties) for ties in distinct} for metric in metrics}
    estimates: dict[tuple[Metric, int, str | None, str], Interval] = {}
    for queries, keys in alike.items():
        if queries:
            asked = [(metric, key) for metric in metrics for key in keys]
            values = np.array([[value[m][row.ties] for row in rows[key]] for m, key in asked])
            clusters = [sessions.get(query, query) for query in queries]
            intervals = Bootstrap(clusters, seed).intervals(values)
            for (metric, key), interval in zip(asked, intervals, strict=True):
                estimates[(metric, *key)] = interval
    return estimates


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The cells of one or several runs by one grouping.

    Retrievers are named apart; `runs` has the run folder of each name. `where` says which queries
    are left.
    """

    grouping: Grouping
    metric: Metric
    cells: Sequence[BreakdownCell]
    titles: Sequence[str]
    runs: Mapping[str, str]
    where: str = ""

    @property
    def groups(self) -> list[str]:
        """The groups in their order, without `TOTAL`."""
        counts: dict[str, int] = {}
        for cell in self.cells:
            if not cell.total:
                counts[cell.group] = max(counts.get(cell.group, 0), cell.n + cell.failed)
        return self.grouping.ordered(counts)

    @property
    def retrievers(self) -> list[str]:
        """The names of the retrievers, in order."""
        return list(dict.fromkeys(cell.retriever for cell in self.cells))

    @property
    def sizes(self) -> list[int]:
        """The numbers of distractors, ascending."""
        return sorted({cell.distractors for cell in self.cells})

    @property
    def heading(self) -> str:
        """What the figures are, in one line."""
        where = f", only {self.where}" if self.where else ""
        return f"{self.metric.title} by {self.grouping.name} ({self.grouping.text}){where}"

    def of(self, size: int) -> dict[tuple[str | None, str], BreakdownCell]:
        """Return the cells of a size by group, None for all of them, and retriever."""
        return {
            (None if cell.total else cell.group, cell.retriever): cell
            for cell in self.cells
            if cell.distractors == size
        }

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            "by": self.grouping.name,
            "definition": self.grouping.text,
            "metric": self.metric.name,
            "where": self.where or None,
            "few_below": FEW,
            "groups": self.groups,
            "cells": [{"run": self.runs[c.retriever], **c.to_json()} for c in self.cells],
        }


def breakdown_of_runs(
    runs: Sequence[Run],
    data: Path | None,
    by: str,
    metric: Metric,
    sizes: Collection[int] | None = None,
    labels: Sequence[str] = (),
    where: Sequence[str] = (),
) -> Breakdown:
    """Return the breakdown of several runs, whose pools are built again from `data`.

    Raise UserError if a run was made on other data, and if no row is left.
    """
    _check(runs, sizes, labels)
    pairs = [(run, label) for run in runs for label in run.labels]
    names = names_apart(pairs)
    materials: dict[str, Material] = {}
    cells: list[BreakdownCell] = []
    for run in runs:
        prints = run.manifest["fingerprint"]
        key = canonical({name: prints[name] for name in ("data", "pools")})
        if key not in materials:
            materials[key] = material_of(run, data)
        keep = parse_where(where, materials[key]) if where else None
        chosen = [label for label in run.labels if not labels or label in labels]
        mine = {label: name for (of, label), name in zip(pairs, names, strict=True) if of is run}
        for cell in breakdown(run, materials[key], by, metric, sizes, chosen, keep):
            cells.append(replace(cell, retriever=mine[cell.retriever]))
    if not cells:
        raise UserError("no row is left to break down")
    material = next(iter(materials.values()))
    return Breakdown(
        group_of(by, material),
        metric,
        cells,
        list(dict.fromkeys(measured(run.manifest["fingerprint"]) for run in runs)),
        {name: run.path.resolve().name for (run, _), name in zip(pairs, names, strict=True)},
        str(parse_where(where, material)),
    )


def _check(runs: Sequence[Run], sizes: Collection[int] | None, labels: Sequence[str]) -> None:
    """Refuse a label and a size that no run has."""
    known = dict.fromkeys(label for run in runs for label in run.labels)
    if odd := [label for label in labels if label not in known]:
        raise UserError(f"--retriever {odd[0]}: no such retriever (labels: {', '.join(known)})")
    held = sorted({row.distractors for run in runs for row in run.rows})
    if odd_sizes := sorted(set(sizes or ()) - set(held)):
        there = ", ".join(map(str, held))
        raise UserError(f"--distractors {odd_sizes[0]}: no such rows (there are: {there})")


def breakdown_table(found: Breakdown) -> TextTable:
    """Return one line per size and group, with a column for each retriever."""
    retrievers = found.retrievers
    heads = ["distractors", "group", "queries", *(f"{name} [95 %]" for name in retrievers)]
    title = f"{found.heading}. {'; '.join(found.titles)}"
    table = TextTable(title, heads, keys=3, texts=("group",))
    for size in found.sizes:
        cells = found.of(size)
        for group in (*found.groups, None):
            row = [cells.get((group, name)) for name in retrievers]
            held = [cell for cell in row if cell is not None]
            if not held:
                continue
            most = max(cell.n for cell in held)
            queries = f"{most} (few)" if most < FEW else most
            figures = [_figure(cell, most) for cell in row]
            table.add(size, TOTAL if group is None else group, queries, *figures)
    return table


def _figure(cell: BreakdownCell | None, queries: int) -> str:
    """The mean with its interval; the number of queries if it is not that of the line."""
    if cell is None:
        return "-"
    count = "" if cell.n == queries else f" (of {cell.n}{', few' if cell.few else ''})"
    if cell.estimate is None:
        return f"-{count}"
    one = cell.estimate
    return f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]{count}"


def breakdown_csv(found: Breakdown) -> str:
    """Return the cells as CSV, one line each."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    keys = ("retriever", "distractors", "group", "total", "n", "failed", "few")
    figures = ("mean", "low", "high", "interval")
    writer.writerow(["run", *keys[:2], "metric", "by", *keys[2:], *figures])
    for cell in found.cells:
        values = cell.to_json()
        head, tail = ([values[key] for key in part] for part in (keys[:2], (*keys[2:], *figures)))
        run = visible(found.runs[cell.retriever])
        writer.writerow([run, *head, found.metric.name, found.grouping.name, *tail])
    return stream.getvalue()


def remarks_on(found: Breakdown) -> list[str]:
    """Return what a reader must know besides the figures."""
    lines = []
    few = {cell.group for cell in found.cells if cell.few and not cell.total}
    if few:
        lines.append(
            f"few: fewer than {FEW} queries ({len(few)} of {len(found.groups)} groups):"
            " read these figures as examples"
        )
    failed: Counter[str] = Counter()
    for cell in found.cells:
        failed[cell.retriever] += cell.failed if cell.total else 0
    rows = ((name, count, "s"[: count != 1]) for name, count in failed.items() if count)
    return [*lines, *(f"{name}: {count} row{s} failed, not scored" for name, count, s in rows)]


@app.command(
    name="breakdown",
    examples=(
        "recallbed breakdown runs/a --by language",
        "recallbed breakdown runs/a --by category --data my.jsonl --out map.png",
    ),
)
def breakdown_command(
    runs: SweepRuns,
    by: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What queries are grouped by: language, script_match, label, label_path, length,"
            " overlap, near_duplicates, position, direct, or a further field of your own data.",
        ),
    ],
    metric: MetricNames = (),
    distractors: Annotated[
        tuple[int, ...] | None,
        typer.Option(
            metavar="N,...",
            help="Distractors per pool. Default: 100,300,500,700,1000, or as stated above.",
        ),
        numbers(0),
    ] = None,
    retriever: OfLabel = (),
    where: Where = (),
    data: Data = None,
    print_as: Annotated[
        Literal["text", "markdown", "csv", "json"],
        typer.Option("--format", help="Format of the table."),
    ] = "text",
    as_json: AsJson = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Heat map to write: .png, .pdf or .svg, and a .csv next to it."
        ),
    ] = None,
    figure: Annotated[FigureOptions, Without("logy")] = SCREEN,
    overwrite: Overwrite = False,
) -> None:
    """Break a metric down by groups of queries.

    Prints the mean of each group with its 95 % bootstrap interval over sessions and its number of
    queries; groups of fewer than ten queries are marked. Without --distractors, all sizes are
    shown. The data of the run are read again, which --data names unless they are the embedded
    sample. docs/breakdowns.md defines the groups.
    """
    if out is not None:
        check_out(out, overwrite)
    elif figure != SCREEN:
        raise UserError("--title, --size, --names and --style change the heat map: pass --out, too")
    read = [read_run(path) for path in runs]
    chosen = one_metric(metric, Recall(1))
    found = breakdown_of_runs(read, data, by, chosen, distractors, retriever, where)
    if out is not None:
        from analysis.heat_map import draw_heat_map

        out.parent.mkdir(parents=True, exist_ok=True)
        draw_heat_map(found, out, figure)
        write_atomically(out.with_suffix(".csv"), breakdown_csv(found))
    if as_json or print_as == "json":
        say_json(canonical(found.to_json()))
    elif print_as == "csv":
        say(*breakdown_csv(found).rstrip("\n").split("\n"))
    elif print_as == "markdown":
        say(*breakdown_table(found).markdown())
    else:
        print_tables([breakdown_table(found)])
    note(*([out] if out is not None else []), *remarks_on(found))


if __name__ == "__main__":
    app()
