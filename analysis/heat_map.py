"""The heat map of a breakdown: groups down, retrievers or sizes across, figures in the cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len

from analysis.breakdown import FEW, TOTAL, Breakdown, BreakdownCell
from analysis.figure_options import SCREEN, FigureOptions
from analysis.pictures import check_fit, picture, save, write_title
from recallbed.errors import UserError
from recallbed.harness.terminal import note
from recallbed.harness.text_table import wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUPS = 40
"""The most groups that are drawn, the first ones."""
PANELS = 8
NAME_LINES, NAME_WIDTH = 3, 26
"""The most lines of the name of a group, and cells of a line."""
_GAP = 0.2
_LIGHTEST, _DARKEST = 0.02, 0.85
_SHADES = [_LIGHTEST + (_DARKEST - _LIGHTEST) * i / 10 for i in range(11)]
_WHITE_FROM = 0.72
"""Share of the scale from which on figures are white."""


class _Panel(NamedTuple):
    """A block of columns: its name, and by column its name and the cells by group."""

    name: str
    columns: list[tuple[str, dict[str | None, BreakdownCell]]]


def draw_heat_map(found: Breakdown, out: Path, options: FigureOptions = SCREEN) -> None:
    """Draw a breakdown and write `out`, whose suffix is the format (png, pdf, svg).

    With one size the columns are retrievers, else each retriever is a panel with its sizes as
    columns. A cell holds the mean, its interval unless `no_bands`, and the number of queries;
    groups of few queries are grey and hatched, their figures in italics. The scale begins at 0,
    darker is higher. Raise UserError if it cannot be drawn.
    """
    groups: list[str | None] = [*found.groups[:GROUPS], None]
    if len(found.groups) > GROUPS:
        note(f"{out}: shows the first {GROUPS} of {len(found.groups)} groups")
    panels = _panels(found, options)
    titles = options.heading([found.heading, *found.titles])
    texts = [name for panel in panels for name in (panel.name, *(c for c, _ in panel.columns))]
    texts += [*titles, *(TOTAL if group is None else group for group in groups)]
    with picture(out, texts, options) as drawable:
        from matplotlib.figure import Figure

        rows = [_short(drawable(TOTAL if group is None else group)) for group in groups]
        figure = Figure(figsize=_size(rows, panels, options), layout="constrained")
        axes = figure.subplots()
        top = max((c.estimate.mean for c in found.cells if c.estimate and not c.few), default=0.0)
        top = max(top, 0.05)
        for panel, start in zip(panels, _starts(panels), strict=True):
            for number, (_, column) in enumerate(panel.columns):
                for y, group in zip(_heights(groups), groups, strict=True):
                    _draw_cell(axes, start + number, y, column.get(group), top, options)
        _dress(axes, rows, panels, groups, options, drawable)
        below = ["distractors in the pool"] if len(found.sizes) > 1 else []
        if any(cell.few for cell in found.cells):
            below.append(f"hatched: fewer than {FEW} queries")
        axes.set_xlabel("\n".join(below))
        _scale(axes, found.metric.title, top)
        figure.draw_without_rendering()
        write_title(figure, axes, [drawable(line) for line in titles], options.size is None)
        check_fit(figure, options)
        save(figure, out)


def _size(
    rows: Sequence[str], panels: Sequence[_Panel], options: FigureOptions
) -> tuple[float, float]:
    """Width and height in inches that the cells and the names of groups need, unless --size."""
    letter, wide, high = (0.058, 0.42, 0.38) if options.paper else (0.08, 0.7, 0.52)
    left = max(cell_len(line) for row in rows for line in row.split("\n")) * letter
    columns = _starts(panels)[-1] + len(panels[-1].columns)
    width = left + columns * wide + (0.8 if options.paper else 1.1)
    line = 0.13 if options.paper else 0.16
    most = max(row.count("\n") + 1 for row in rows)
    height = (len(rows) + _GAP) * max(high, line * most) + (1.0 if options.paper else 1.3)
    return options.inches((max(width, 5.5), height), (max(width, 3.3), height))


def _short(name: str) -> str:
    """A name in at most `NAME_LINES` lines of `NAME_WIDTH` cells."""
    lines = wrapped(name, NAME_WIDTH)
    if len(lines) > NAME_LINES:
        lines = [*lines[: NAME_LINES - 1], lines[NAME_LINES - 1][: NAME_WIDTH - 1] + "\u2026"]
    return "\n".join(lines)


def _starts(panels: Sequence[_Panel]) -> list[float]:
    """The first column of each panel; there is a gap between panels."""
    starts = [0.0]
    for panel in panels[:-1]:
        starts.append(starts[-1] + len(panel.columns) + _GAP)
    return starts


def _heights(groups: Sequence[str | None]) -> list[float]:
    """The middle of each row; there is a gap above that of all queries."""
    return [y + (_GAP if group is None else 0.0) for y, group in enumerate(groups)]


def _panels(found: Breakdown, options: FigureOptions) -> list[_Panel]:
    names = dict(
        zip(found.retrievers, options.renamed(found.retrievers, found.retrievers), strict=True)
    )
    by_size = {size: found.of(size) for size in found.sizes}

    def column(size: int, name: str) -> dict[str | None, BreakdownCell]:
        return {group: cell for (group, of), cell in by_size[size].items() if of == name}

    if len(by_size) == 1:
        [size] = by_size
        across = [(shown, column(size, name)) for name, shown in names.items()]
        return [_Panel(f"{size:,} distractors", across)]
    if len(names) > PANELS:
        raise UserError(
            f"--out: {len(names)} retrievers at {len(by_size)} sizes do not fit in one picture."
            " Choose one size with --distractors, or retrievers with --retriever"
        )
    return [
        _Panel(shown, [(f"{size:,}", column(size, name)) for size in by_size])
        for name, shown in names.items()
    ]


def _draw_cell(
    axes: Axes, x: float, y: float, cell: BreakdownCell | None, top: float, options: FigureOptions
) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    big, small = (7, 5) if options.paper else (9, 7)
    shade = 0.0 if cell is None or cell.estimate is None else min(cell.estimate.mean / top, 1.0)
    pale = cell is None or cell.estimate is None or cell.few
    face: Any = (
        "#eeeeee" if pale else colormaps["Blues"](_LIGHTEST + (_DARKEST - _LIGHTEST) * shade)
    )
    corner = x - 0.5, y - 0.5
    axes.add_patch(Rectangle(corner, 1, 1, facecolor=face, edgecolor="white", lw=1.0))
    if cell is None:
        return
    if cell.few:
        hatch: dict[str, Any] = {"hatch": "////", "lw": 0, "edgecolor": "#cccccc"}
        axes.add_patch(Rectangle(corner, 1, 1, facecolor="none", **hatch))
    style: dict[str, Any] = {
        "ha": "center",
        "color": "white" if shade > _WHITE_FROM and not pale else "black",
        "fontstyle": "italic" if cell.few else "normal",
    }
    mean = "-" if cell.estimate is None else f"{cell.estimate.mean:.2f}"
    weight = "bold" if cell.total else "normal"
    axes.text(x, y - 0.04, mean, va="bottom", fontsize=big, fontweight=weight, **style)
    below = [f"n {cell.n:,}"]
    if cell.estimate is not None and not options.no_bands:
        below.insert(0, f"{cell.estimate.low:.2f}\u2013{cell.estimate.high:.2f}")
    axes.text(x, y, "\n".join(below), va="top", fontsize=small, linespacing=1.1, **style)


def _dress(
    axes: Axes,
    rows: Sequence[str],
    panels: Sequence[_Panel],
    groups: Sequence[str | None],
    options: FigureOptions,
    drawable: Callable[[str], str],
) -> None:
    """Name rows, columns and panels."""
    starts, heights = _starts(panels), _heights(groups)
    size = 7 if options.paper else 9
    names = {
        start + i: "\n".join(wrapped(drawable(name), 10))
        for start, panel in zip(starts, panels, strict=True)
        for i, (name, _) in enumerate(panel.columns)
    }
    axes.set_xlim(-0.5, max(names) + 0.5)
    axes.set_ylim(heights[-1] + 0.5, -0.5)
    axes.set_xticks(list(names), list(names.values()), fontsize=size)
    axes.set_yticks(heights, rows, fontsize=size)
    axes.get_yticklabels()[-1].set_fontweight("bold")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    above = axes.secondary_xaxis("top")
    middles = [s + (len(p.columns) - 1) / 2 for s, p in zip(starts, panels, strict=True)]
    headings = [
        "\n".join(wrapped(drawable(panel.name), max(10, 9 * len(panel.columns))))
        for panel in panels
    ]
    above.set_xticks(middles, headings, fontsize=size)
    above.tick_params(length=0)
    above.spines[:].set_visible(False)


def _scale(axes: Axes, name: str, top: float) -> None:
    """A bar with the scale of the colours, right of the panels."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    colours = colormaps["Blues"]
    shades = LinearSegmentedColormap.from_list("shades", [colours(x) for x in _SHADES])
    figure = axes.get_figure(root=True)
    assert figure is not None
    shown = ScalarMappable(Normalize(0, top), shades)
    bar = figure.colorbar(shown, ax=axes, fraction=0.04, aspect=25, pad=0.02)
    bar.set_label(name)
    bar.outline.set_visible(False)
