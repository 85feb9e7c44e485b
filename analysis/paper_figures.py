"""Our figures for the columns of the paper's Tables 2, 3 and 4, from finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.statistics import Interval, rounded
from analysis.task_runs import FinishedRun, open_finished
from recallbed.errors import UserError
from recallbed.harness.run_folder import SUMMARY

if TYPE_CHECKING:
    from analysis.run_figures import RunFigure
    from analysis.verdict_runs import VerdictRun

PAPER_JUDGE = "paper's judge"
PAPER_USE = "paper's judge of use, released pools"
BOARD_MATCHER = "leaderboard's matcher"
NOT_STATED = "scale not stated"
ON_THE_BOARD = {"GPT-4.1-mini": BOARD_MATCHER}
"""The row of Table 3 that the leaderboard has too; of the others the paper states no scale."""
SIZES = (100, 300, 500, 700, 1000)
JUDGE = "judge"
"""How the scale of a judge begins, and a judge that there is not."""
NOT_RUN, NO_VERDICTS, NOT_ASKED, NO_SUCH_SCALE = "not run", "no verdicts", "not asked", "-"


@dataclass(frozen=True, slots=True)
class PaperColumn:
    """A column of a table of the paper.

    `key` is its name in the published file, `figure` the name of our figure. Published rows are on
    `usual_scale`, except for those of `other_scales`.
    """

    key: str
    task: str
    figure: str
    title: str
    usual_scale: str
    other_scales: Mapping[str, str] = field(default_factory=dict)

    def published_scale(self, system: str) -> str:
        """Return the scale of the published figure of `system`."""
        return self.other_scales.get(system, self.usual_scale)


def _utilization(prefix: str) -> list[PaperColumn]:
    names = ("pa", "pf_general", "pf_interaction", "vra", "cf", "ei_en", "ei_cn")
    return [
        PaperColumn(
            prefix + name,
            "task4",
            name,
            f"{name} (grade 1 to 5)" if name.startswith("ei_") else name,
            PAPER_JUDGE,
        )
        for name in names
    ]


COLUMNS: Mapping[int, Sequence[PaperColumn]] = {
    2: [
        PaperColumn("task1_f1", "task1", "f1", "F1", PAPER_JUDGE),
        PaperColumn("task2_f1", "task2", "f1", "F1", PAPER_JUDGE),
        *(PaperColumn(f"task3_d{n}", "task3", f"d{n}", f"d{n}", PAPER_USE) for n in SIZES),
        *_utilization("task4_"),
    ],
    3: [
        PaperColumn(name, "task1", name, title, NOT_STATED, ON_THE_BOARD)
        for name, title in (("precision", "precision"), ("recall", "recall"), ("f1", "F1"))
    ],
    4: _utilization(""),
}


@dataclass(frozen=True, slots=True)
class PaperEntry:
    """One figure of one system of ours; `interval` is None if nothing was scored."""

    column: PaperColumn
    system: str
    scale: str
    interval: Interval | None
    scored: int
    attempted: int
    run: FinishedRun

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON and CSV have it."""
        found = self.interval
        return {
            "figure": self.column.key,
            "task": self.column.task,
            "system": self.system,
            "scale": self.scale,
            "mean": None if found is None else rounded(found.mean),
            "low": None if found is None else rounded(found.low),
            "high": None if found is None else rounded(found.high),
            "interval": None if found is None else found.method,
            "scored": self.scored,
            "attempted": self.attempted,
            "split": self.run.split,
            "sample": self.run.sample,
            "run": str(self.run.path),
        }


@dataclass(slots=True)
class PaperFigures:
    """Our side of one table: entries, and for each system the tasks that it was run on.

    Systems are in the order in which they were named; nothing is sorted by value. `remarks` are
    lines on what was left out.
    """

    number: int
    entries: list[PaperEntry] = field(default_factory=list)
    tasks: dict[str, set[str]] = field(default_factory=dict)
    judged: set[tuple[str, str, str]] = field(default_factory=set)
    """(system, task, scale of a judge)"""
    samples: set[str] = field(default_factory=set)
    """Systems with a run on the embedded sample."""
    remarks: list[str] = field(default_factory=list)

    @property
    def columns(self) -> Sequence[PaperColumn]:
        """The columns of the table."""
        return COLUMNS[self.number]

    def entry(self, system: str, column: PaperColumn, scale: str) -> PaperEntry | None:
        """Return the entry of a cell; None if there is none."""
        same = (
            one
            for one in self.entries
            if (one.system, one.column.key, one.scale) == (system, column.key, scale)
        )
        return next(same, None)

    def scales(self, task: str) -> list[str]:
        """Return the scales of our figures of a task, in the order of entries.

        A judge is among them if the paper has one for tasks 1, 2 and 4, verdicts or not.
        """
        mine = [one for one in self.entries if one.column.task == task]
        found = list(dict.fromkeys(one.scale for one in mine))
        published = next(one.usual_scale for one in self.columns if one.task == task)
        if published == PAPER_JUDGE and not any(scale.startswith(JUDGE) for scale in found):
            found.append(JUDGE)
        return found or [{BOARD_MATCHER: "matcher", PAPER_USE: "exact recall@1"}[published]]

    def absence(self, system: str, column: PaperColumn, scale: str) -> str:
        """Return why a system has no entry in a cell."""
        if column.task not in self.tasks[system]:
            return NOT_RUN
        if column.task == "task3":
            on_any = any((one.system, one.column) == (system, column) for one in self.entries)
            return NO_SUCH_SCALE if on_any else NOT_RUN
        judged = (system, column.task, scale) in self.judged
        return NO_VERDICTS if scale.startswith(JUDGE) and not judged else NOT_ASKED

    def add(self, run: FinishedRun, system: str, found: Sequence[RunFigure | PaperEntry]) -> None:
        """Add the figures of a run. Raise UserError if another run has filled a cell."""
        by_name = {one.figure: one for one in self.columns if one.task == run.task}
        self.tasks.setdefault(system, set()).add(run.task)
        if run.sample:
            self.samples.add(system)
        for one in found:
            if not isinstance(one, PaperEntry):
                column = by_name.get(one.name)
                if column is None:
                    continue
                counts = len(one.values), len(one.sessions)
                one = PaperEntry(column, system, one.scale, one.interval, *counts, run)
            other = self.entry(system, one.column, one.scale)
            if other is not None:
                raise UserError(
                    f"{other.run.path} and {run.path}: both are {run.task} of `{system}`."
                    f" Name them apart: A={other.run.path} B={run.path}"
                )
            self.entries.append(one)


def paper_figures(number: int, words: Sequence[str], data: Path | None) -> PaperFigures:
    """Return our figures for Table `number` from runs and runs of judges, `[LABEL=]FOLDER` each.

    Raise DataError for faulty data, and UserError for a folder that is not a finished run, for
    other data than a run was made on, for two runs of one cell, for verdicts on answers of no run
    that is named, and if no run is of a task of the table.
    """
    from analysis.verdict_runs import no_such_answers, read_verdict_run

    if number not in COLUMNS:
        raise UserError(f"there is no table {number}. Choose 2, 3 or 4")
    figures = PaperFigures(number)
    tasks = {column.task for column in figures.columns}
    runs: list[tuple[str | None, FinishedRun]] = []
    verdicts: list[VerdictRun] = []
    for word in words:
        label, path = _split(word)
        run = open_finished(path)
        if run.task not in tasks:
            figures.remarks.append(f"{path}: left out, Table {number} has no {run.task}")
        elif run.kind != "verdicts":
            runs.append((label, run))
        elif label is not None:
            raise UserError(f"{word}: a label names a system, and {path} is a run of a judge")
        else:
            verdicts.append(read_verdict_run(path))
    if not runs:
        raise UserError(
            f"Table {number} needs a run of {', '.join(sorted(tasks))}. None is among these folders"
        )
    used: list[Path] = []
    for label, run in runs:
        used += _add_run(figures, label, run, data, verdicts)
    if left := [one for one in verdicts if one.run.path not in used]:
        raise no_such_answers(left, [run.path for _, run in runs])
    return figures


def _split(word: str) -> tuple[str | None, Path]:
    label, equals, path = word.partition("=")
    if not equals or not label or "/" in label or Path(word).exists():
        return None, Path(word)
    return label, Path(path)


def _add_run(
    figures: PaperFigures,
    label: str | None,
    run: FinishedRun,
    data: Path | None,
    verdicts: Sequence[VerdictRun],
) -> list[Path]:
    """Add a run's figures; return the runs of judges that are on its answers."""
    from analysis.run_figures import run_figures, verdicts_on_choices

    if run.kind == "sweep":
        _add_sweep(figures, label, run)
        return []
    system = label or run.system
    if run.kind == "answers":
        mine = verdicts_on_choices(run, verdicts)
        judged = run_figures(run, data, mine)[0] if mine else []  # which needs the data
        figures.add(run, system, [*_answers(figures, system, run), *_use(run, judged)])
    else:
        found, mine = run_figures(run, data, verdicts)
        figures.add(run, system, found)
    figures.judged |= {(system, run.task, one.scale) for one in mine}
    return [one.run.path for one in mine]


def _add_sweep(figures: PaperFigures, label: str | None, run: FinishedRun) -> None:
    from analysis.metrics import Recall
    from analysis.runs import read_run

    sweep = read_run(run.path)
    if label is not None and len(sweep.labels) > 1:
        raise UserError(
            f"{run.path}: {label} would name {len(sweep.labels)} retrievers. Leave the label out"
        )
    by_size = {one.figure: one for one in figures.columns if one.task == "task3"}
    scale = f"exact recall@1, {sweep.strategy} pools"
    left_out = set()
    found: dict[str, list[PaperEntry]] = {}
    for cell in sweep.summary((1,)).cells:
        system = label or cell.retriever
        mine = found.setdefault(system, [])
        column = by_size.get(f"d{cell.distractors}")
        if column is None:
            left_out.add(cell.distractors)
            continue
        one = cell.estimates.get(Recall(1))
        interval = None if one is None else Interval(one.mean, one.low, one.high, one.interval)
        mine.append(PaperEntry(column, system, scale, interval, cell.scored, cell.attempted, run))
    for system, entries in found.items():
        figures.add(run, system, entries)
    if left_out:
        figures.remarks.append(_other_sizes(run, left_out))


def _other_sizes(run: FinishedRun, sizes: set[int]) -> str:
    listed = ", ".join(map(str, sorted(sizes)))
    return f"{run.path}: pools with {listed} distractors left out, the table has none of that size"


def _answers(figures: PaperFigures, system: str, run: FinishedRun) -> Iterator[PaperEntry]:
    """The figures of a model's answers as their summary has them."""
    size = run.summary.get("distractors")
    column = next((one for one in figures.columns if one.figure == f"d{size}"), None)
    if column is None:
        figures.remarks.append(_other_sizes(run, {int(size or 0)}))
        return
    for key, name in (("recall_at_1", "exact recall@1"), ("used_by_overlap", "use by overlap")):
        found = run.summary.get(key)
        interval = None
        if found is not None:
            try:
                interval = Interval(found["mean"], found["low"], found["high"], found["method"])
            except (KeyError, TypeError):
                raise UserError(f"{run.path / SUMMARY}: field `{key}` is not an interval") from None
        counts = run.summary.get("answered", 0), run.summary.get("attempted", 0)
        scale = f"{name}, {run.summary.get('pools')} pools"
        yield PaperEntry(column, system, scale, interval, *counts, run)


def _use(run: FinishedRun, figures: Sequence[RunFigure]) -> Iterator[RunFigure]:
    """Whether the gold memory was used, by each judge, in the column of the run's size."""
    name, pools = f"d{run.summary.get('distractors')}", run.summary.get("pools")
    for one in figures:
        if one.scale.startswith(JUDGE):
            yield replace(one, name=name, scale=f"{one.scale}, use, {pools} pools")
