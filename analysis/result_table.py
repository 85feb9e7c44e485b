"""The table of finished sweeps: a row per run and label, a column per metric and size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.curves import partly_scored, scored_cells
from analysis.figure_options import rename
from analysis.metrics import Metric, Recall
from analysis.published import CAPTION
from analysis.runs import Run, names_apart
from analysis.sides import Side, side_names
from analysis.significance import (
    ALPHA,
    area_pairings,
    pairings,
    side_areas,
    side_letters,
    superscripts,
)
from analysis.tables import title
from recallbed.errors import UserError

DIGITS = 3
"""Decimals of a figure in a table to be read."""


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A metric at one number of distractors, or (None) the area under its curve."""

    metric: Metric
    distractors: int | None

    @property
    def below(self) -> str:
        """What tells it from other columns of its metric."""
        return "area" if self.distractors is None else f"{self.distractors:,}"

    @property
    def name(self) -> str:
        """Its heading, such as `R@1 at 100`."""
        return f"{self.metric.name} {'' if self.distractors is None else 'at '}{self.below}"


@dataclass(frozen=True, slots=True)
class ResultCell:
    """A mean over `scored` of `rows` rows; a published one has no interval and no rows.

    `better_than` has the letters of the rows than which it is significantly better.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    method: str | None = None
    scored: int | None = None
    attempted: int | None = None
    rows: int | None = None
    trivial: bool = False
    best: bool = False
    better_than: str = ""

    @property
    def shown(self) -> str:
        """The mean as the table has it."""
        return f"{self.mean:.{DIGITS}f}"

    @property
    def interval(self) -> str:
        """The interval as the table has it; empty if there is none."""
        if self.low is None or self.high is None:
            return ""
        return f"[{self.low:.{DIGITS}f}, {self.high:.{DIGITS}f}]"


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A label of a run, or a published system; `marks` are numbers of footnotes, from 1.

    `letter` is what superscripts call it; empty without superscripts and for a published row.
    """

    name: str
    label: str
    run: str | None
    cells: tuple[ResultCell | None, ...]
    letter: str = ""
    marks: tuple[int, ...] = ()
    published: bool = False


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Rows of our runs, then published ones, which are not ranked with ours.

    `tests` has the size of each family of tests, figures and areas; None without letters.
    `unranked` says why no figure is marked as the best, if so.
    """

    title: str
    columns: tuple[ResultColumn, ...]
    rows: tuple[ResultRow, ...]
    footnotes: tuple[str, ...] = ()
    tests: tuple[int, ...] | None = None
    unranked: str | None = None

    @property
    def ours(self) -> list[ResultRow]:
        """The rows of our runs."""
        return [row for row in self.rows if not row.published]

    @property
    def lettered(self) -> bool:
        """Whether rows have letters."""
        return self.tests is not None

    @property
    def published(self) -> list[ResultRow]:
        """The published rows."""
        return [row for row in self.rows if row.published]

    def remarks(self, intervals: bool) -> list[str]:
        """Return what a reader must know besides the footnotes."""
        lines = []
        if self.tests is not None:
            number = " and ".join(f"{n} test{'s'[: n != 1]}" for n in self.tests)
            number += " (areas)" * (len(self.tests) > 1)
            lines.append(
                f"Letters: significantly better than the rows with these letters (p at most"
                f" {ALPHA:g}, paired randomisation tests over sessions, Holm's correction for"
                f" {number})"
            )
        if intervals:
            lines.append("Brackets: 95 % intervals over sessions")
        if any(column.distractors is None for column in self.columns):
            lines.append(
                "Area: under the curve against the logarithm of the pool size, from 0 to 1"
            )
        for place, column in enumerate(self.columns):
            if any((cell := row.cells[place]) is not None and cell.trivial for row in self.rows):
                lines.append(f"{column.name} is trivial: every order of these pools has it")
        if self.unranked:
            lines.append(f"No figure is marked as the best: {self.unranked}")
        if self.published:
            lines.append(f"Published rows ({CAPTION}) are neither ranked nor tested with ours")
        return lines


def result_table(
    runs: Sequence[Run],
    metrics: Sequence[Metric],
    *,
    sizes: Sequence[int] | None = None,
    labels: Sequence[str] = (),
    area: bool = False,
    significance: bool = True,
    published: Mapping[str, Mapping[int, float]] | None = None,
    names: Sequence[str] = (),
) -> ResultTable:
    """Return the table of `metrics` at `sizes` (None: all), of `labels` or of all.

    The best of a column is what is shown as the highest figure among the rows that were run to the
    end on the same pools. `significance` compares all pairs of rows; `published` has recall@1 by
    system and size; `names` are the words of --names. Raise UserError for a size or label that
    there is not, for rows on other queries or pools if they are to be compared, for an area of
    fewer than two sizes, and for published figures that have no column.
    """
    sides = _sides(runs, labels)
    chosen = _sizes(sides, sizes)
    common = [size for size in chosen if all(size in side.sizes for side in sides)]
    if area and len(common) < 2:
        raise UserError("--area needs two sizes or more that all rows have")
    columns = tuple(
        ResultColumn(metric, size) for metric in metrics for size in (*chosen, *[None] * area)
    )
    letters = [""] * len(sides)
    better: dict[tuple[ResultColumn, int], str] = {}
    tests: tuple[int, ...] | None = None
    if len(sides) > 1 and significance:
        letters = side_letters(len(sides))
        tests, better = _letters(sides, metrics, chosen, common if area else [])
    ks = sorted({metric.k for metric in metrics if hasattr(metric, "k")}) or [1]
    shown = rename(names, names_apart(sides), [side.label for side in sides])
    footnotes: dict[str, int] = {}
    rows = []
    for place, side in enumerate(sides):
        cells = _cells(side, columns, ks, common)
        found = [
            cell and replace(cell, better_than=better.get((column, place), ""))
            for cell, column in zip(cells, columns, strict=True)
        ]
        marks = [
            footnotes.setdefault(line, len(footnotes) + 1) for line in _footnotes(side, chosen, ks)
        ]
        run = side.run.path.resolve().name
        rows.append(ResultRow(shown[place], side.label, run, (*found,), letters[place], (*marks,)))
    other = [_other_pools(sides, [size] if size else common) for _, size in _keys(columns)]
    rows = _with_best(rows, other)
    rows += _published_rows(published or {}, columns)
    return ResultTable(
        title="; ".join(dict.fromkeys(title(run.summary(ks)) for run in runs)),
        columns=columns,
        rows=tuple(rows),
        footnotes=tuple(footnotes),
        tests=tests,
        unranked=next((reason for reason in other if reason), None),
    )


def _keys(columns: Iterable[ResultColumn]) -> list[tuple[Metric, int | None]]:
    return [(column.metric, column.distractors) for column in columns]


def _sides(runs: Sequence[Run], labels: Sequence[str]) -> list[Side]:
    """The rows of the table; a run that is named twice counts once."""
    once = {run.path.resolve(): run for run in runs}.values()
    known = dict.fromkeys(label for run in once for label in run.labels)
    for label in labels:
        if label not in known:
            raise UserError(
                f"--retriever {label}: no run has this label (labels: {', '.join(known)})"
            )
    return [Side(run, one) for run in once for one in run.labels if not labels or one in labels]


def _sizes(sides: Sequence[Side], sizes: Sequence[int] | None) -> list[int]:
    known = sorted({size for side in sides for size in side.sizes})
    for size in sizes or ():
        if size not in known:
            raise UserError(
                f"--distractors {size}: not a size of these runs ({', '.join(map(str, known))})"
            )
    return sorted(set(sizes)) if sizes else known


def _cells(
    side: Side, columns: Sequence[ResultColumn], ks: Sequence[int], common: Sequence[int]
) -> list[ResultCell | None]:
    rows = side.run.rows_of_a_cell
    areas: dict[Metric, ResultCell] = {}
    wanted = [metric for metric, size in _keys(columns) if size is None]
    scored = {
        size: {query for query, found in side.rows(size).items() if not any(r.error for r in found)}
        for size in common
    }
    if wanted and set.intersection(*scored.values()):
        for one in side_areas([side], wanted, sizes=common):
            ends = one.mean.mean, one.mean.low, one.mean.high, one.mean.method
            areas[one.metric] = ResultCell(*ends, one.n, None, None)
    found: list[ResultCell | None] = []
    for metric, size in _keys(columns):
        if size is None:
            found.append(areas.get(metric))
            continue
        cells = [c for c in scored_cells(side.run, side.label, metric, ks) if c.distractors == size]
        if not cells:
            found.append(None)
            continue
        one_cell, estimate = cells[0], cells[0].estimates[metric]
        found.append(
            ResultCell(
                *(estimate.mean, estimate.low, estimate.high, estimate.interval),
                *(one_cell.scored, one_cell.attempted, rows),
                trivial=bool(estimate.trivial),
            )
        )
    return found


def _letters(
    sides: Sequence[Side], metrics: Sequence[Metric], sizes: Sequence[int], area: Sequence[int]
) -> tuple[tuple[int, ...], dict[tuple[ResultColumn, int], str]]:
    """The sizes of the families of tests, and by column and place which rows a row is better than.

    All figures of the table are one family, areas another. `area` has the sizes of areas, if any.
    """
    names = side_names(sides)
    try:
        everywhere = all(set(sizes) <= set(side.sizes) for side in sides)
        pairs = pairings(sides, metrics, sizes=sizes if everywhere else None, baseline=None)
        areas = area_pairings(sides, metrics, sizes=area, baseline=None) if area else []
    except UserError as error:
        raise UserError(f"{error}. Pass --no-significance for a table without letters") from None
    found: dict[tuple[ResultColumn, int], str] = {}
    for results, is_area in ((pairs, False), (areas, True)):
        for (size, metric), better in superscripts(results, names).items():
            column = ResultColumn(metric, None if is_area else size)
            found |= {(column, names.index(name)): letters for name, letters in better.items()}
    return (len(pairs), len(areas))[: 1 + bool(areas)], found


def _other_pools(sides: Sequence[Side], sizes: Sequence[int]) -> str | None:
    """Why the rows of these sizes cannot be ranked; None if they are on the same pools.

    Labels that were not run to the end are ranked in no case.
    """
    for size in sizes:
        first: dict[str, list[str]] | None = None
        for side in sides:
            rows = side.rows(size)
            if sum(map(len, rows.values())) < side.run.rows_of_a_cell:
                continue
            pools = {query: [row.pool for row in found] for query, found in rows.items()}
            first = pools if first is None else first
            if pools != first:
                return "the rows are on other queries or pools"
    return None


def _with_best(rows: Sequence[ResultRow], reasons: Sequence[str | None]) -> list[ResultRow]:
    """The rows with the best of each column marked, if it has no reason against it."""
    best = []
    for place, reason in enumerate(reasons):
        cells = [row.cells[place] for row in rows]
        shown = [cell.shown for cell in cells if cell is not None and _is_ranked(cell)]
        best.append(max(shown) if len(shown) > 1 and reason is None else None)
    return [
        replace(
            row,
            cells=tuple(
                cell and replace(cell, best=_is_ranked(cell) and cell.shown == highest)
                for cell, highest in zip(row.cells, best, strict=True)
            ),
        )
        for row in rows
    ]


def _is_ranked(cell: ResultCell) -> bool:
    return not cell.trivial and cell.attempted == cell.rows


def _footnotes(side: Side, sizes: Sequence[int], ks: Sequence[int]) -> list[str]:
    """What a reader must know about a row: what was not scored, and what was fitted."""
    run, label = side
    summary = run.summary(ks)
    cells = [c for c in summary.cells if c.retriever == label and c.distractors in sizes]
    lines = [
        f"at {', '.join(at)} distractors: {what}"
        for what, at in partly_scored(cells, run.rows_of_a_cell).items()
    ]
    if label in summary.facts["fitted_on_these_rows"]:
        lines.append("settings were fitted on these rows: not an estimate for other rows")
    return lines


def _published_rows(
    published: Mapping[str, Mapping[int, float]], columns: Sequence[ResultColumn]
) -> list[ResultRow]:
    rows = []
    for name, figures in published.items():
        cells: list[ResultCell | None] = [
            ResultCell(figures[size])
            if metric == Recall(1) and size is not None and size in figures
            else None
            for metric, size in _keys(columns)
        ]
        if not any(cells):
            at: Any = ", ".join(map(str, figures))
            raise UserError(
                "--published: the published figures are recall of one chosen memory. They need"
                f" --metric R@1 and one of the sizes {at}"
            )
        rows.append(ResultRow(name, name, None, tuple(cells), published=True))
    return rows
