"""Recall against distractors as a picture: `python -m analysis.curves RUN...`."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.figure_options import SCREEN, FigureOptions
from analysis.log_axis import clipped, dress_log_axis, log_floor
from analysis.metrics import Metric, Recall
from analysis.pictures import (
    check_fit,
    check_out,
    legend_below,
    look,
    part_labels,
    picture,
    save,
    write_title,
)
from analysis.published import CAPTION, chosen_published
from analysis.row_options import PublishedNames, SweepRuns
from analysis.runs import Run, names_apart, read_run
from analysis.summary import Cell, SweepSummary
from analysis.tables import title
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.files import write_atomically
from recallbed.harness.options import Ks, only_one
from recallbed.harness.run_options import Overwrite
from recallbed.harness.terminal import note, one_line, say, visible
from recallbed.harness.text_table import wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

app = App()


@dataclass(frozen=True, slots=True)
class Curve:
    """A labelled line: distractors ascending; mean, 95 % bounds and chance of recall@k at each.

    `retriever` is the label in the run; `source` distinguishes runs: the pool strategy, or the run
    folder.
    """

    label: str
    retriever: str
    source: str
    distractors: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    chance: tuple[float, ...]


def curves_of(runs: Sequence[Run], metric: Metric, ks: Sequence[int] = ()) -> list[Curve]:
    """Return one curve per run and label; `ks` are those of summaries that are made already.

    A label of several runs is named as `names_apart` says. One that was not scored on all of its
    pools is named with their number.
    """
    pairs = [(run, label) for run in runs for label in run.labels]
    by_both = Counter((label, run.strategy) for run, label in pairs)
    by_folder = max(by_both.values()) > 1
    found = []
    for (run, label), name in zip(pairs, names_apart(pairs), strict=True):
        cells = scored_cells(run, label, metric, ks)
        if not cells:
            continue
        name += _share_scored(cells, run.rows_of_a_cell)
        estimates = [cell.estimates[metric] for cell in cells]
        found.append(
            Curve(
                label=name,
                retriever=label,
                source=str(run.path.resolve()) if by_folder else run.strategy,
                distractors=tuple(cell.distractors for cell in cells),
                mean=tuple(one.mean for one in estimates),
                low=tuple(one.low for one in estimates),
                high=tuple(one.high for one in estimates),
                chance=tuple(one.chance for one in estimates),
            )
        )
    return found


def scored_cells(run: Run, label: str, metric: Metric, ks: Sequence[int] = ()) -> list[Cell]:
    """Return the cells of a label that have a scored row; they have `metric`."""
    return [
        cell
        for cell in run.summary(ks or (getattr(metric, "k", 1),), metric).cells
        if cell.retriever == label and cell.estimates
    ]


def _share_scored(cells: Sequence[Cell], rows: int) -> str:
    """The number of rows in a curve's means, if not all."""
    fewest, most = min(c.scored for c in cells), max(c.scored for c in cells)
    if fewest >= rows:
        return ""
    return f" ({fewest} of {rows})" if fewest == most else f" ({fewest} to {most} of {rows})"


def gaps(runs: Sequence[Run], metric: Metric) -> list[str]:
    """Return what the picture of these runs does not show, or shows over a part of the rows."""
    lines = []
    for run in runs:
        rows = run.rows_of_a_cell
        sizes = run.manifest["fingerprint"]["pools"].get("distractors", [])
        for label in run.labels:
            cells = scored_cells(run, label, metric)
            if not cells:
                lines.append(f"{run.path}: `{label}` has no scored rows and is not drawn")
                continue
            absent = sorted(set(sizes) - {cell.distractors for cell in cells})
            if absent:
                at = ", ".join(map(str, absent))
                lines.append(f"{run.path}: `{label}` has no scored rows at {at} distractors")
            partly = partly_scored(cells, rows)
            for what, at_sizes in partly.items():
                lines.append(f"{run.path}: `{label}` at {', '.join(at_sizes)}: {what}")
    return lines


def partly_scored(cells: Sequence[Cell], rows: int) -> dict[str, list[str]]:
    """Return the sizes of cells in which not all of `rows` are scored, by what is missing."""
    partly: dict[str, list[str]] = {}
    for cell in cells:
        if cell.scored < rows:
            missing = rows - cell.attempted
            counts = [f"{cell.failed} failed"] * (cell.failed > 0)
            counts += [f"{missing} not run yet"] * (missing > 0)
            what = f"{cell.scored} of {rows} rows are scored ({', '.join(counts)})"
            partly.setdefault(what, []).append(str(cell.distractors))
    return partly


def draw(
    curves: Sequence[Curve],
    metric: Metric,
    titles: Sequence[str],
    out: Path,
    published: Mapping[str, Mapping[int, float]] | None = None,
    options: FigureOptions = SCREEN,
) -> None:
    """Draw curves with bands, the chance line and, dashed, published figures; write `out`.

    A curve of one size is a point with an error bar. The format follows the suffix (png, pdf,
    svg). Raise UserError if it cannot be drawn.
    """
    names = options.renamed([c.label for c in curves], [c.retriever for c in curves])
    curves = [replace(curve, label=name) for curve, name in zip(curves, names, strict=True)]
    titles = options.heading(titles)
    lines = _numbered(published or {})
    with picture(out, [*titles, *names, *lines], options) as drawable:
        from matplotlib.figure import Figure

        size = options.inches((8.4, 4.8), (3.3, 2.3))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        remarks = draw_curves(axes, curves, metric, published, options)
        _legend(figure, axes, drawable, options)
        part_labels(figure, axes)
        write_title(figure, axes, [drawable(line) for line in titles], options.size is None)
        check_fit(figure, options)
        save(figure, out)
    note(*remarks)


def draw_curves(
    axes: Axes,
    curves: Sequence[Curve],
    metric: Metric,
    published: Mapping[str, Mapping[int, float]] | None = None,
    options: FigureOptions = SCREEN,
) -> list[str]:
    """Draw on a matplotlib axes, without title and legend.

    Return what a reader must know about values that have no place on a logarithmic axis.
    """
    lines = _numbered(published or {})
    sizes = sorted({size for curve in curves for size in curve.distractors})
    side_by_side = len(sizes) == 1 and not lines
    chance = {
        s: c for curve in curves for s, c in zip(curve.distractors, curve.chance, strict=True)
    }
    known = [*chance.values(), *(v for curve in curves for v in curve.mean)]
    known += [value for line in lines.values() for value in line.values()]
    floor = log_floor(known) if options.logy else 0.0
    _draw_lines(axes, curves, side_by_side, floor, options)
    _published_lines(axes, lines)
    dotted: dict[str, Any] = {"color": "#555555", "linestyle": ":", "lw": 1.4}
    if side_by_side:
        axes.axhline(chance[sizes[0]], label="chance", **dotted)
    else:
        axes.plot(sizes, [chance[size] for size in sizes], label="chance", **dotted)
    _dress(axes, sizes, metric, len(curves) if side_by_side else None, floor, options)
    lows = [] if options.no_bands else [value for curve in curves for value in curve.low]
    return clipped([value for curve in curves for value in curve.mean], lows, floor)


def _numbered(published: Mapping[str, Mapping[int, float]]) -> dict[str, Mapping[int, float]]:
    return {f"{i}: {name}, published": p for i, (name, p) in enumerate(published.items(), 1)}


def _draw_lines(
    axes: Axes, curves: Sequence[Curve], side_by_side: bool, floor: float, options: FigureOptions
) -> None:
    """Draw curves in their retriever's colour and run's dashes; `side_by_side` if of one size.

    Values below `floor` are drawn there.
    """
    paper = options.paper
    retrievers = list(dict.fromkeys(curve.retriever for curve in curves))
    sources = list(dict.fromkeys(curve.source for curve in curves))
    for place, curve in enumerate(curves):
        retriever, source = retrievers.index(curve.retriever), sources.index(curve.source)
        # In grey, dashes tell lines apart better than markers do.
        style = look(retriever, retriever if paper and len(sources) == 1 else source, paper)
        x = [place] if side_by_side else curve.distractors
        mean, low, high = (
            tuple(max(value, floor) for value in values)
            for values in (curve.mean, curve.low, curve.high)
        )
        if options.no_bands:
            pass
        elif len(curve.distractors) == 1:
            down, up = mean[0] - low[0], high[0] - mean[0]
            bar: dict[str, Any] = {
                "fmt": "none",
                "ecolor": style["color"],
                "elinewidth": 1.4,
                "capsize": 4,
            }
            axes.errorbar(x, mean, [[max(down, 0)], [max(up, 0)]], **bar)
        else:
            inside, edge = (style["color"], 0.10), (style["color"], 0.6)
            how: dict[str, Any] = {
                "facecolor": inside,
                "edgecolor": edge,
                "linestyle": style["linestyle"],
            }
            axes.fill_between(x, low, high, lw=0.6, **how)
        # matplotlib leaves a label that starts with an underscore out of the legend.
        name = f" {curve.label}" if curve.label.startswith("_") else curve.label
        width, marker = (1.1, 4) if paper else (1.8, 6)
        axes.plot(x, mean, lw=width, markersize=marker, label=name, **style)
        zeros = [at for at, value in zip(x, curve.mean, strict=True) if value < floor]
        if zeros:
            how = {"marker": 11, "color": style["color"], "clip_on": False, "zorder": 5}
            axes.plot(zeros, [floor] * len(zeros), linestyle="none", **how)


def _published_lines(axes: Axes, published: Mapping[str, Mapping[int, float]]) -> None:
    greys = ("#333333", "#888888")
    for i, (name, figures) in enumerate(published.items()):
        axes.plot(
            list(figures),
            list(figures.values()),
            color=greys[i % 2],
            marker=_number(i + 1),
            markersize=7,
            linestyle=(0, (4, 3)),
            lw=1.0,
            label=name,
        )
    if published:
        axes.plot([], [], " ", label=f"dashed, grey: {CAPTION}")


def _number(number: int) -> Any:
    """Return a marker that is a number."""
    from matplotlib.path import Path as Outline
    from matplotlib.textpath import TextPath

    shape = TextPath((0, 0), str(number), size=10)
    box = shape.get_extents()
    middle = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
    return Outline(shape.vertices - middle, shape.codes)


def _legend(
    figure: Figure, axes: Axes, drawable: Callable[[str], str], options: FigureOptions
) -> None:
    """Draw the legend right of the axes, on paper below them, long labels wrapped.

    It makes the figure taller, except for a --size. Published lines come last, under their caption.
    """
    handles, labels = axes.get_legend_handles_labels()
    cells = 34 if options.paper else 36
    texts = ["\n".join(wrapped(drawable(label), cells)) for label in labels]
    if options.paper:
        legend_below(figure, handles, texts, grow=options.size is None)
        return
    lines = sum(text.count("\n") + 1 for text in texts)
    if options.size is None:
        figure.set_figheight(max(figure.get_figheight(), 1.6 + lines * 0.155 + len(texts) * 0.06))
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.02, 1), "borderaxespad": 0}
    axes.legend(handles, texts, frameon=False, handlelength=3.6, **place)


def _dress(
    axes: Axes,
    sizes: Sequence[int],
    metric: Metric,
    side_by_side: int | None,
    floor: float,
    options: FigureOptions,
) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    if side_by_side is not None:
        axes.set_xlim(-1, side_by_side)
        axes.xaxis.set_major_locator(FixedLocator([(side_by_side - 1) / 2]))
        axes.set_xlabel("distractors in the pool")
    else:
        # A pool of the gold alone has no distractors, and a logarithm no zero.
        axes.set_xscale("log") if sizes[0] > 0 else axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_locator(FixedLocator(list(sizes)))
        axes.set_xlabel("distractors in the pool (log scale)")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{size:,}" for size in sizes])
    axes.set_ylim(0, None)
    top = min(max(axes.get_ylim()[1], 0.1), 1.02)
    if options.logy:
        dress_log_axis(axes, floor, top)
    else:
        axes.set_ylim(0, top)
    what = "" if options.no_bands else ", 95 % interval"
    axes.set_ylabel(metric.title + what + " (log scale)" * options.logy)
    axes.grid(True, color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def curve_table(runs: Sequence[Run], ks: Sequence[int]) -> str:
    """Return the figures of all runs as CSV, one line per run, retriever, size and metric."""
    stream = io.StringIO()
    figures = ("mean", "low", "high", "worst", "best", "chance", "ceiling")
    counts = ("attempted", "scored", "failed")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["run", "retriever", "pools", "distractors", "metric", *figures, *counts])
    for run in runs:
        name = visible(run.path.resolve().name)
        for cell in run.summary(ks).cells:
            head = (name, cell.retriever, run.strategy, cell.distractors)
            tail = (cell.attempted, cell.scored, cell.failed)
            for metric, estimate in cell.estimates.items():
                values = (getattr(estimate, key) for key in figures)
                shown = ("" if value is None else value for value in values)
                writer.writerow([*head, metric.name, *shown, *tail])
    return stream.getvalue()


def draw_run(path: Path, ks: Sequence[int], summary: SweepSummary | None = None) -> None:
    """Write curve.csv and curve.png (recall at the smallest k) into a run folder.

    `summary` is the run's for these `ks`, if it is known already. A picture that cannot be drawn
    is a note on stderr, since the results do not depend on it.
    """
    run = read_run(path)
    if summary is not None:
        run.summaries[tuple(ks), ()] = summary
    write_atomically(path / "curve.csv", curve_table([run], ks))
    out, metric = path / "curve.png", Recall(ks[0])
    try:
        draw(curves_of([run], metric, ks), metric, [title(run.summary(ks))], out)
    except (UserError, OSError) as error:
        note(f"warning: no picture: {one_line(error)}")
        if out.is_file():
            out.unlink()  # of an earlier state of the run


@app.command(
    examples=(
        "recallbed curves runs/a",
        "recallbed curves runs/a runs/b --k 5 --style paper --out recall.pdf",
    )
)
def curves(
    runs: SweepRuns,
    figure: FigureOptions,
    ks: Ks = (1,),
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Picture to write: .png, .pdf or .svg.")
    ] = Path("curve.png"),
    published: PublishedNames = "none",
    overwrite: Overwrite = False,
) -> None:
    """Draw recall against the number of distractors.

    Writes the picture, and a CSV of its figures with the same name. --overwrite replaces a CSV
    that holds other data. --names changes names in the picture only.
    """
    k = only_one("--k", ks)
    check_out(out, overwrite)
    if published != "none" and k != 1:
        raise UserError(
            "--published: the published figures are for one chosen memory and need --k 1"
        )
    lines = chosen_published(published)
    read = [read_run(path) for path in runs]
    metric = Recall(k)
    drawn = curves_of(read, metric)
    if not drawn:
        raise UserError("no run has a scored row: nothing to draw")
    titles = list(dict.fromkeys(title(run.summary((k,))) for run in read))
    out.parent.mkdir(parents=True, exist_ok=True)
    draw(drawn, metric, titles, out, lines, figure)
    write_atomically(out.with_suffix(".csv"), curve_table(read, (k,)))
    say(out)
    note(*gaps(read, metric))


if __name__ == "__main__":
    app()
