"""The picture of recall against cost: one point per configuration, the frontier as steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from analysis.figure_options import SCREEN, FigureOptions
from analysis.frontier import AXES, FrontierPoint, drawn, frontier
from analysis.log_axis import clipped, dress_log_axis, log_floor
from analysis.pictures import check_fit, look, part_labels, picture, save, write_title
from recallbed.harness.terminal import note

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "#555555"
# Positions of a label next to its point, best first: (dx, dy, alignment), in points.
_SIDES: tuple[tuple[int, Literal["left", "right"]], ...] = ((1, "left"), (-1, "right"))
_BESIDE = [
    (sign * (9 + 2 * row), dy, side)
    for row in range(10)
    for dy in (5 + 12 * row, -13 - 12 * row)
    for sign, side in _SIDES
]
NEAR = 15  # points; a label further off is tied to its point by a line
_LINE_GAP = 11  # points between the labels of two free configurations


def draw_frontier(
    points: Sequence[FrontierPoint],
    axis: str,
    k: int,
    titles: Sequence[str],
    out: Path,
    options: FigureOptions = SCREEN,
) -> None:
    """Draw recall@k over `axis` (see AXES) on a logarithmic scale; write `out`.

    A configuration of amount 0 has no position on such a scale and is a dashed line across. The
    format follows the suffix (png, pdf, svg). Raise UserError if all amounts are 0 or unknown,
    or the picture cannot be drawn.
    """
    paid, free = drawn(points, axis)
    labels = [point.label for point in points]
    renamed = options.renamed([_name(point) for point in points], labels)
    names = {id(point): name for point, name in zip(points, renamed, strict=True)}
    titles = options.heading(titles)
    with picture(out, [*titles, *names.values()], options) as drawable:
        from matplotlib.figure import Figure

        names = {key: drawable(name) for key, name in names.items()}
        figure = Figure(figsize=options.inches((8.4, 4.8), (3.3, 2.4)), layout="constrained")
        axes = figure.subplots()
        everyone = [*free, *(point for _, point in paid)]
        floor = log_floor(point.recall for point in everyone) if options.logy else 0.0
        _dress(axes, [amount for amount, _ in paid], everyone, k, axis, floor, options)
        named = [(max(point.recall, floor), names[id(point)]) for point in free]
        steps = [
            (a, max(p.recall, floor)) for p in frontier(points, axis) if (a := p.amounts[axis])
        ]
        if steps:
            # Between two points of the frontier the cheaper one is the best choice.
            across = [*(amount for amount, _ in steps), axes.get_xlim()[1]]
            heights = [*(recall for _, recall in steps), steps[-1][1]]
            axes.step(across, heights, where="post", color=GREY, lw=1.2, alpha=0.7, zorder=1)
            named.append((heights[-1], "frontier"))
        for amount, point in paid:
            _draw_point(axes, amount, point, points.index(point), floor, options)
        for point in free:
            at = max(point.recall, floor)
            axes.axhline(at, color=GREY, linestyle=(0, (4, 3)), lw=1.0, zorder=0)
        _name_lines(figure, axes, named, options)
        part_labels(figure, axes)
        write_title(figure, axes, [drawable(line) for line in titles], options.size is None)
        shown = [(amount, point, names[id(point)]) for amount, point in paid]
        _name_points(figure, axes, shown, options)
        check_fit(figure, options)
        save(figure, out)
    lows = [] if options.no_bands else [point.low for _, point in paid]
    note(*clipped([point.recall for point in everyone], lows, floor))


def _draw_point(
    axes: Axes,
    amount: float,
    point: FrontierPoint,
    place: int,
    floor: float,
    options: FigureOptions,
) -> None:
    """Draw the n-th point, which looks the same on every axis, and what is below `floor` there."""
    style = {**look(place, 0, options.paper), "linestyle": "none"}
    size = 4 if options.paper else 7
    recall, low, high = (max(value, floor) for value in (point.recall, point.low, point.high))
    if point.recall < floor:
        style |= {"marker": 11, "clip_on": False}
    if options.no_bands:
        axes.plot([amount], [recall], markersize=size, **style)
        return
    bar: dict[str, Any] = {
        "elinewidth": 1.0 if options.paper else 1.4,
        "capsize": 2 if options.paper else 3,
    }
    ends = [[recall - low], [high - recall]]
    axes.errorbar([amount], [recall], ends, markersize=size, **bar, **style)


def _name(point: FrontierPoint) -> str:
    """The label, with the number of rows in its mean if some failed or are missing."""
    rows = max(point.rows, point.attempted)
    return point.label + (f" ({point.scored} of {rows})" if point.scored < rows else "")


def _dress(
    axes: Axes,
    amounts: Sequence[float],
    points: Sequence[FrontierPoint],
    k: int,
    axis: str,
    floor: float,
    options: FigureOptions,
) -> None:
    from matplotlib.ticker import LogLocator

    low, high = min(p.low for p in points), max(p.high for p in points)
    room = max(0.08 * (high - low), 0.01)
    axes.set_xscale("log")
    axes.set_xlim(min(amounts) / 2, max(amounts) * 2.5)
    if options.logy:
        dress_log_axis(axes, floor, min(max(high, 2 * floor) * 1.3, 1.02))
    else:
        axes.set_ylim(max(low - room, 0), min(high + 2 * room, 1.02))
    axes.set_xlabel(f"{AXES[axis]} (log scale)")
    what = "" if options.no_bands else ", 95 % interval"
    axes.set_ylabel(f"recall@{k}{what}" + " (log scale)" * options.logy)
    axes.xaxis.set_major_formatter(lambda amount, _: f"{amount:,.10g}")
    if max(amounts) < 50 * min(amounts):
        axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.xaxis.set_minor_formatter(lambda amount, _: f"{amount:,.10g}")
    axes.tick_params(axis="x", which="both", length=4, pad=4)
    axes.grid(True, color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _name_lines(
    figure: Figure, axes: Axes, named: Sequence[tuple[float, str]], options: FigureOptions
) -> None:
    """Write the names of lines right of the axes, apart from each other."""
    height = 72 * figure.get_figheight() * 0.8  # of the axes in points, about
    bottom, top = (axes.transScale.transform((1, end))[1] for end in axes.get_ylim())
    below = -math.inf
    for recall, name in sorted(named):
        at = axes.transScale.transform((1, recall))[1]
        wish = (at - bottom) / (top - bottom) * height
        below = max(wish, below + _LINE_GAP)
        axes.annotate(
            name,
            (1, recall),
            (5, below - wish),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=8 if options.paper else 9,
            color=GREY,
        )


def _name_points(
    figure: Figure,
    axes: Axes,
    paid: Sequence[tuple[float, FrontierPoint, str]],
    options: FigureOptions,
) -> None:
    """Write each label at the first position next to its point that is free."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # settles the layout
    inside, pixel = axes.get_window_extent(), figure.dpi / 72
    taken = []
    bottom = axes.get_ylim()[0]
    heights = {id(point): max(point.recall, bottom) for _, point, _ in paid}
    for amount, point, _ in paid:
        x, low = axes.transData.transform((amount, max(point.low, bottom)))
        _, high = axes.transData.transform((amount, point.high))
        taken.append(Bbox.from_extents(x - 6, low - 2, x + 6, high + 2))
        _, middle = axes.transData.transform((amount, heights[id(point)]))
        taken.append(Bbox.from_extents(x - 9, middle - 9, x + 9, middle + 9))
    for amount, point, text in paid:
        name = axes.annotate(
            text,
            (amount, heights[id(point)]),
            (0, 0),
            textcoords="offset points",
            fontsize=8 if options.paper else 9,
            bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.5},
        )
        name.set_in_layout(False)
        extent = name.get_window_extent()
        for dx, dy, side in _BESIDE:
            shift = dx * pixel - (extent.width if side == "right" else 0)
            box = extent.translated(shift, dy * pixel)
            free = not box.count_overlaps(taken)
            if free and inside.contains(*box.min) and inside.contains(*box.max):
                break
        else:  # no free position: overlap rather than omit
            dx, dy, side = _BESIDE[0]
        name.set_position((dx, dy))
        name.set_horizontalalignment(side)
        taken.append(name.get_window_extent())
        if abs(dy) > NEAR:
            line = {"arrowstyle": "-", "color": GREY, "lw": 0.7, "shrinkA": 0, "shrinkB": 3}
            end, place = (amount, heights[id(point)]), (dx, dy + 4)
            axes.annotate("", end, place, textcoords="offset points", arrowprops=line)
