"""Recall against distractors, drawn: `python -m analysis.curves RUN... --k 1 --out FILE`."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from analysis.runs import Run

# Okabe & Ito's palette without its yellow; markers tell the lines apart in grey too. Dashes are for
# published figures alone.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = "osD^vPX*"
METRICS = {"recall": "R", "recall_any": "any", "recall_all": "all", "ndcg": "nDCG"}
app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Curve:
    """A labelled line: distractors ascending; mean, 95 % bounds and chance of recall@k at each."""

    label: str
    distractors: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    chance: tuple[float, ...]


def curves_of(runs: Sequence[Run], k: int, ks: Sequence[int] = ()) -> list[Curve]:
    """One curve a run and label; read from the summaries for `ks`, where k is among them.

    A label that stands in several runs is told apart by how the pools were made, else by folder.
    """
    pairs = [(run, label) for run in runs for label in run.labels]
    strategies = {id(run): run.manifest["fingerprint"]["pools"]["strategy"] for run in runs}
    by_label = Counter(label for _, label in pairs)
    folders = Counter(run.path.resolve().name for run in runs)
    by_both = Counter((label, strategies[id(run)]) for run, label in pairs)
    summaries = {id(run): run.summary(ks or (k,))["cells"] for run in runs}
    found = []
    for run, label in pairs:
        mine = [c for c in summaries[id(run)] if c["retriever"] == label and "recall" in c]
        if not mine:
            continue
        strategy = strategies[id(run)]
        name = label if by_label[label] == 1 else f"{label}, {strategy} pools"
        if by_both[label, strategy] > 1:
            folder = run.path.resolve().name
            name += f" ({folder if folders[folder] == 1 else run.path})"
        figures = [c["recall"][str(k)] for c in mine]
        columns = {key: tuple(f[key] for f in figures) for key in ("mean", "low", "high", "chance")}
        found.append(Curve(name, tuple(c["distractors"] for c in mine), **columns))
    return found


def draw(
    curves: Sequence[Curve],
    k: int,
    title: str,
    out: Path,
    published: dict[str, dict[int, float]] | None = None,
) -> None:
    """Draw curves with bands, the chance line and, dashed, published figures; write `out`.

    The kind of picture follows the name's ending (png, pdf, svg).
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.8), layout="constrained")
    axes = figure.subplots()
    sizes = sorted({size for curve in curves for size in curve.distractors})
    for i, curve in enumerate(curves):
        colour = COLOURS[i % len(COLOURS)]
        axes.fill_between(curve.distractors, curve.low, curve.high, color=colour, alpha=0.15, lw=0)
        axes.plot(
            curve.distractors,
            curve.mean,
            color=colour,
            marker=MARKERS[i % len(MARKERS)],
            lw=1.8,
            label=curve.label,
        )
    _published_lines(axes, published or {})
    chance = {
        s: c for curve in curves for s, c in zip(curve.distractors, curve.chance, strict=True)
    }
    axes.plot(
        sizes,
        [chance[size] for size in sizes],
        color="#555555",
        linestyle=":",
        lw=1.4,
        label="chance",
    )
    _dress(axes, sizes, k, title)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    save(figure, out)


def save(figure: Figure, out: Path) -> None:
    """Write a picture without the date and version in it, so that equal figures are equal bytes."""
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    figure.savefig(out, dpi=160, metadata=metadata.get(out.suffix[1:].lower()))


def _published_lines(axes: Axes, published: dict[str, dict[int, float]]) -> None:
    from analysis.published import CAPTION

    greys = ("#333333", "#888888")
    for i, (name, figures) in enumerate(published.items()):
        axes.plot(
            list(figures),
            list(figures.values()),
            color=greys[i % 2],
            marker="0123456789"[i % 10].replace("0", "x") if i > 8 else f"${i + 1}$",
            markersize=6,
            linestyle=(0, (4, 3)),
            lw=1.0,
            label=f"{i + 1}: {name}, published",
        )
    if published:
        axes.plot([], [], " ", label=f"dashed: {CAPTION}")


def _dress(axes: Axes, sizes: Sequence[int], k: int, title: str) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{size:,}" for size in sizes])
    axes.set_ylim(0, None)
    axes.set_ylim(0, min(max(axes.get_ylim()[1], 0.1), 1.02))
    axes.set_xlabel("distractors in the pool (log scale)")
    axes.set_ylabel(f"recall@{k}, 95 % interval")
    axes.set_title(title, fontsize=10, loc="left")
    axes.grid(True, color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def curve_table(runs: Sequence[Run], ks: Sequence[int]) -> str:
    """The figures of all runs as CSV: a line a run, retriever, size and metric."""
    stream = io.StringIO()
    keys = ("mean", "low", "high", "worst", "best", "chance", "ceiling")
    head = ["run", "retriever", "pools", "distractors", "metric", *keys]
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*head, "attempted", "scored", "failed"])
    for run in runs:
        for cell in run.summary(ks)["cells"]:
            metrics = {
                f"{short}@{k}": figures
                for key, short in METRICS.items()
                for k, figures in cell.get(key, {}).items()
            }
            if "reciprocal_rank" in cell:
                metrics["E[RR]"] = cell["reciprocal_rank"]
            for metric, figures in metrics.items():
                writer.writerow(
                    [
                        run.path.resolve().name,
                        cell["retriever"],
                        run.manifest["fingerprint"]["pools"]["strategy"],
                        cell["distractors"],
                        metric,
                        *(figures.get(key, "") for key in keys),
                        *(cell[key] for key in ("attempted", "scored", "failed")),
                    ]
                )
    return stream.getvalue()


def draw_run(path: Path, ks: Sequence[int], summary: Mapping[str, Any] | None = None) -> None:
    """Write curve.png (recall at the smallest k) and curve.csv into a run folder.

    `summary` is the run's for these `ks`, where it is known already.
    """
    from analysis.runs import read_run
    from analysis.tables import title
    from harness.files import write_atomically

    run = read_run(path)
    if summary is not None:
        run.summaries[tuple(ks)] = summary
    write_atomically(path / "curve.csv", curve_table([run], ks))
    draw(curves_of([run], ks[0], ks), ks[0], title(run.summary(ks)), path / "curve.png")


def _choose_published(wish: str, k: int) -> dict[str, dict[int, float]]:
    from analysis.published import BASELINES, published_task3
    from harness.errors import UserError

    if wish == "none":
        return {}
    if k != 1:
        raise UserError(
            "--published: the published figures are of one chosen memory, so --k 1 only"
        )
    everything = published_task3()
    names = list(everything) if wish == "all" else wish.split(",")
    names = list(BASELINES) if wish == "baselines" else names
    for name in names:
        if name not in everything:
            raise UserError(
                f"--published {name}: there are baselines, all, none, {', '.join(everything)}"
            )
    return {name: everything[name] for name in names}


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of task3.sweep.")],
    k: Annotated[int, typer.Option("--k", min=1, help="Recall at how many?")] = 1,
    out: Annotated[
        Path, typer.Option("--out", help="Picture to write: .png, .pdf or .svg.")
    ] = Path("curve.png"),
    published: Annotated[
        str,
        typer.Option(
            "--published", help="Reference lines: none, baselines, all, or names with commas."
        ),
    ] = "none",
) -> None:
    """Draw recall against distractors for one or many runs, with a CSV of the figures beside it."""
    from analysis.runs import read_run
    from analysis.tables import title
    from harness.cli import one_line_errors
    from harness.errors import UserError
    from harness.files import write_atomically
    from harness.terminal import say

    with one_line_errors(OSError):
        if out.suffix.lower() not in (".png", ".pdf", ".svg"):
            raise UserError(f"--out {out}: name a .png, .pdf or .svg file")
        lines = _choose_published(published, k)
        read = [read_run(path) for path in runs]
        titles: dict[str, Any] = {title(run.summary((k,))): None for run in read}
        out.parent.mkdir(parents=True, exist_ok=True)
        draw(curves_of(read, k), k, "\n".join(titles), out, lines)
        write_atomically(out.with_suffix(".csv"), curve_table(read, (k,)))
        say(out)


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
