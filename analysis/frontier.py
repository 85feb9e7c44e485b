"""Recall against tokens, cost or time per query: `python -m analysis.frontier RUN...`."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

import typer

from analysis.curves import scored_cells
from analysis.figure_options import FigureOptions
from analysis.metrics import Metric, Recall
from analysis.pictures import check_out
from analysis.row_options import SweepRuns
from analysis.rows import SweepRow
from analysis.runs import Run, read_run, seconds_per_row
from analysis.tables import title
from recallbed.corpus.options import PoolOptions
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical
from recallbed.harness.options import Ks, Without, only_one
from recallbed.harness.run_options import Overwrite
from recallbed.harness.terminal import note as say_note
from recallbed.harness.terminal import visible
from recallbed.harness.text_table import TextTable, print_tables

app = App()
AXES = {
    "tokens": "tokens in and out per query",
    "cost": "cost per query",
    "ms": "milliseconds per query",
}


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A configuration: recall with its 95 % interval, and amounts per query by axis.

    An amount is None if unknown and 0 if nothing of the kind was used. `estimated` counts the
    calls for which the server did not report tokens; `rows` are those of the finished run, more
    than `attempted` if it was stopped.
    """

    run: str
    label: str
    recall: float
    low: float
    high: float
    amounts: Mapping[str, float | None]
    calls: float
    estimated: int
    attempted: int
    scored: int
    rows: int = 0


def points_of(
    runs: Sequence[Run], distractors: int | None, metric: Metric
) -> tuple[int, list[FrontierPoint]]:
    """Return the size, by default the largest that all have, and one point per configuration.

    A configuration with the same outcome in several runs (such as a first stage) counts once,
    from the first; others of one label are named with their folder. Raise UserError if two were
    not scored on the same pools, or one has no scored row.
    """
    size = _size(runs, distractors)
    chosen: dict[Any, tuple[Run, str]] = {}
    for run in runs:
        for entry in run.manifest["fingerprint"]["retrievers"]:
            rows = _rows(run, entry["label"], size)
            outcome = tuple(
                (r.query, r.pool, r.ties, r.calls, r.tokens_in, r.tokens_out, r.error) for r in rows
            )
            chosen.setdefault((canonical(entry), outcome), (run, entry["label"]))
    _check_pools(list(chosen.values()), size)
    labels = Counter(label for _, label in chosen.values())
    points = []
    for run, label in chosen.values():
        folder = run.path.resolve().name
        name = label if labels[label] == 1 else f"{label} ({folder})"
        points.append(_point(run, label, name, size, metric))
    return size, points


def _rows(run: Run, label: str, size: int) -> list[SweepRow]:
    return [r for r in run.rows if (r.retriever, r.distractors) == (label, size)]


def _size(runs: Sequence[Run], wish: int | None) -> int:
    sizes = [
        {row.distractors for row in run.rows if row.retriever == label}
        for run in runs
        for label in run.labels
    ]
    common = set.intersection(*sizes)
    if not common:
        raise UserError("these runs have no pool size in common, or one of them is not finished")
    if wish is not None and wish not in common:
        known = ", ".join(map(str, sorted(common)))
        raise UserError(f"--distractors {wish}: not a size that all runs have (they have: {known})")
    return max(common) if wish is None else wish


def _check_pools(chosen: Sequence[tuple[Run, str]], size: int) -> None:
    first: dict[str, list[str]] | None = None
    for run, label in chosen:
        pools: dict[str, list[str]] = {}
        for row in _rows(run, label, size):
            pools.setdefault(row.query, []).append(row.pool)
        first = pools if first is None else first
        odd = set(first) ^ set(pools)
        if odd:
            raise UserError(
                f"{run.path}: `{label}` does not have the same queries at {size} distractors:"
                f" {len(odd)} are in one run only, such as `{min(odd)}`"
            )
        for query in sorted(pools):
            if pools[query] != first[query]:
                raise UserError(
                    f"{run.path}: not the same pools: `{query}` at {size} distractors, `{label}`"
                )


def _point(run: Run, label: str, name: str, size: int, metric: Metric) -> FrontierPoint:
    cells = [c for c in scored_cells(run, label, metric) if c.distractors == size]
    if not cells:
        raise UserError(f"{run.path}: `{label}` has no scored row at {size} distractors")
    cell, report = cells[0], cells[0].reranked
    estimate = cell.estimates[metric]
    cost = report.cost if report else 0.0
    seconds = seconds_per_row(run.path, label, size)
    return FrontierPoint(
        run.path.resolve().name,
        name,
        estimate.mean,
        estimate.low,
        estimate.high,
        {
            "tokens": report.per_query["tokens_in"] + report.per_query["tokens_out"]
            if report
            else 0.0,
            "cost": None if cost is None else cost / cell.scored,
            "ms": 1000 * fmean(seconds) if seconds else None,
        },
        report.per_query["calls"] if report else 0.0,
        report.estimated_calls if report else 0,
        cell.attempted,
        cell.scored,
        run.rows_of_a_cell,
    )


def frontier(points: Sequence[FrontierPoint], axis: str) -> list[FrontierPoint]:
    """Return the points with more recall than all that take as much or less, ascending.

    A point of unknown amount is on no frontier.
    """
    best, found = -1.0, []
    known = [(point.amounts[axis], point) for point in points]
    ordered = sorted(
        ((amount, point) for amount, point in known if amount is not None),
        key=lambda one: (one[0], -one[1].recall),
    )
    for _, point in ordered:
        if point.recall > best:
            best = point.recall
            found.append(point)
    return found


def as_csv(points: Sequence[FrontierPoint], axis: str, size: int, k: int) -> str:
    """Return all figures as CSV; an unknown amount is an empty field."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = ("run", "retriever", "distractors", "k", "recall", "low", "high", *AXES)
    writer.writerow([*head, "calls", "estimated_calls", "attempted", "scored", "frontier"])
    best = frontier(points, axis)
    for point in points:
        figures = (point.recall, point.low, point.high)
        amounts = ["" if (v := point.amounts[a]) is None else _plain(v) for a in AXES]
        counts = (point.calls, point.estimated, point.attempted, point.scored)
        row = [
            visible(point.run),
            visible(point.label),
            size,
            k,
            *figures,
            *amounts,
            *counts,
            int(point in best),
        ]
        writer.writerow(row)
    return stream.getvalue()


def as_table(points: Sequence[FrontierPoint], axis: str, size: int, k: int) -> TextTable:
    """Return the figures as a table, with the frontier marked."""
    head = ("configuration", f"R@{k} at {size} [95 %]", *AXES, "calls", "failed", "frontier")
    table = TextTable("Per query", head)
    best = frontier(points, axis)
    for point in points:
        amounts = ["unknown" if (v := point.amounts[a]) is None else _plain(v) for a in AXES]
        table.add(
            point.label,
            f"{point.recall:.3f} [{point.low:.3f}, {point.high:.3f}]",
            *amounts,
            f"{point.calls:.2f}",
            point.attempted - point.scored,
            "yes" if point in best else "",
        )
    return table


def frontier_remarks(points: Sequence[FrontierPoint], axis: str) -> list[str]:
    """Return what a reader of the picture must know."""
    lines = []
    unknown = [point.label for point in points if point.amounts[axis] is None]
    if unknown:
        lines.append(f"left out, {AXES[axis]} unknown: {', '.join(unknown)}")
    for point in points:
        if axis == "tokens" and point.estimated:
            lines.append(
                f"{point.label}: tokens of {point.estimated} calls are estimates (not reported)"
            )
        if point.scored < point.attempted:
            failed = point.attempted - point.scored
            lines.append(f"{point.label}: {failed} of {point.attempted} rows failed, not in recall")
        if point.attempted < point.rows:
            missing = point.rows - point.attempted
            lines.append(f"{point.label}: {missing} of {point.rows} rows are not run yet")
    if axis == "ms":
        lines.append("milliseconds are those of the run: replies from the cache take almost none")
    return lines


def _plain(amount: float) -> str:
    return f"{amount:.6g}" if amount < 1e6 else f"{amount:.0f}"


def drawn(
    points: Sequence[FrontierPoint], axis: str
) -> tuple[list[tuple[float, FrontierPoint]], list[FrontierPoint]]:
    """Return (amount, point) ascending for a logarithmic axis, and the points of amount 0.

    Raise UserError if there is nothing to show.
    """
    paid = sorted(
        ((amount, p) for p in points if (amount := p.amounts[axis])), key=lambda one: one[0]
    )
    if not paid:
        why = {
            "tokens": "no configuration of these runs used any. Try --x ms",
            "cost": "no cost above 0 is known. Resume the sweep with --prices",
            "ms": "these runs have no timings",
        }
        raise UserError(f"--x {axis}: {why[axis]}")
    return paid, [point for point in points if point.amounts[axis] == 0]


@app.command(
    examples=(
        "recallbed frontier runs/a",
        "recallbed frontier runs/a --x cost --k 5 --distractors 1000",
    )
)
def command(
    runs: SweepRuns,
    pools: Annotated[PoolOptions, Without("pools", "pool_seeds")],
    figure: FigureOptions,
    ks: Ks = (1,),
    x: Annotated[
        Literal["tokens", "cost", "ms"], typer.Option(help="Cost of a query that is compared.")
    ] = "tokens",
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Picture to write: .png, .pdf or .svg.")
    ] = Path("frontier.png"),
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Line of the picture's heading.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw recall against tokens, cost or milliseconds per query.

    Writes the picture, and a CSV of the figures with the same name; each configuration is a point.
    Those that cost nothing are dashed lines. Without --distractors the largest size is drawn.
    --overwrite replaces a CSV that holds other data. --names changes names in the picture only.
    """
    k, distractors = only_one("--k", ks), pools.size
    from analysis.frontier_picture import draw_frontier

    check_out(out, overwrite)
    read = [read_run(path) for path in runs]
    size, points = points_of(read, distractors, Recall(k))
    titles = dict.fromkeys(title(run.summary((k,))) for run in read)
    out.parent.mkdir(parents=True, exist_ok=True)
    heading = f"{size:,} distractors" + (f"; {note}" if note else "")
    draw_frontier(points, x, k, [*titles, heading], out, figure)
    write_atomically(out.with_suffix(".csv"), as_csv(points, x, size, k))
    print_tables([as_table(points, x, size, k)])
    say_note(*frontier_remarks(points, x), f"{out} and {out.with_suffix('.csv')} are written")


if __name__ == "__main__":
    app()
