"""Values on a logarithmic vertical axis, which has no place for 0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def log_floor(values: Iterable[float]) -> float:
    """Return the lower end of a logarithmic axis for `values`: half of the least above 0."""
    return min((value for value in values if value > 0), default=0.02) / 2


def dress_log_axis(axes: Axes, floor: float, top: float) -> None:
    """Make the vertical axis logarithmic from `floor` to `top`, with ticks as plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    axes.set_ylim(floor, top)
    ratio = top / floor
    steps = tuple(range(1, 10)) if ratio < 10 else (1, 2, 5) if ratio < 1000 else (1,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=30))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.6g}")


def clipped(means: Iterable[float], bounds: Iterable[float], floor: float) -> list[str]:
    """Return what a reader must know about values below the lower end of the axis."""
    points = sum(value < floor for value in means)
    ends = sum(value < floor for value in bounds)
    lines = []
    if points:
        lines.append(
            f"--logy: {points} {'value' if points == 1 else 'values'} of 0 drawn as a triangle at"
            " the lower edge, since 0 has no place on a logarithmic axis"
        )
    if ends:
        lines.append(
            f"--logy: {ends} lower {'bound is' if ends == 1 else 'bounds are'} below the lower edge"
            f" of the axis ({floor:.2g}) and cut off there"
        )
    return lines
