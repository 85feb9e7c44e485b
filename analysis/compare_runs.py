"""Runs of one task on the same rows: memory systems, or models' answers of task 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis.comparison_table import TableLine, pairs_table
from analysis.p_values import flips_of, holm
from analysis.paired import Paired, paired
from analysis.run_figures import RunFigure, run_figures
from analysis.sides import numbered, paired_places
from analysis.task_runs import HASH, FinishedRun
from analysis.verdict_runs import VerdictRun, no_such_answers
from recallbed.errors import UserError
from recallbed.harness.fingerprint import difference
from recallbed.harness.text_table import TextTable

UNITS = {
    "task1": ("session", "sessions"),
    "task2": ("session", "sessions"),
    "task3": ("query", "queries"),
    "task4": ("question", "questions"),
}
"""What the figures of a task are over, one and several."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A figure of two runs on one scale, paired by session, query or question.

    `unpaired` counts those that were not scored on one side or on both: they failed, were not
    answered, or were not judged. `paired` is None if none is left. `holm` is the p-value of the
    randomisation test, adjusted for all comparisons of the call.
    """

    figure: str
    scale: str
    a: str
    b: str
    paired: Paired | None
    unpaired: int
    holm: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        found = {"figure": self.figure, "scale": self.scale, "unpaired": self.unpaired}
        found |= {"sides": [self.a, self.b]}
        if self.paired is None:
            return found | {"n": 0}
        return found | asdict(self.paired) | {"holm": self.holm}


def compare_runs(
    runs: Sequence[FinishedRun],
    data: Path | None,
    verdicts: Sequence[VerdictRun] = (),
    baseline: int | None = 0,
) -> list[RunComparison]:
    """Compare every figure that two runs have, with those of judges from `verdicts`.

    The baseline, by its place, is side `a` of every pair; None compares all pairs. Intervals draw
    whole sessions from the seed of side `a`. Raise DataError for faulty data, and UserError if the
    runs are not of one task on the same rows, if they are not judged by the same judges, if
    `verdicts` are on other answers, and if nothing is left to compare.
    """
    for other in runs[1:]:
        _check_same_data(runs[0], other)
    found = [run_figures(run, data, verdicts) for run in runs]
    used = [one.run.path for _, mine in found for one in mine]
    if left := [one for one in verdicts if one.run.path not in used]:
        raise no_such_answers(left, tuple(run.path for run in runs))
    _check_same_judges(runs, [[one.scale for one in mine] for _, mine in found])
    tables = [{(one.name, one.scale): one for one in figures} for figures, _ in found]
    names, units = run_names(runs), UNITS[runs[0].task]
    asked = [(i, j, key) for i, j in paired_places(len(runs), baseline)
             for key in tables[i] if key in tables[j]]  # fmt: skip
    order = {key: place for place, key in enumerate(dict.fromkeys(key for *_, key in asked))}
    asked.sort(key=lambda one: order[one[2]])
    flips = flips_of(len(asked))
    compared = [
        _compared(tables[i][key], tables[j][key], (names[i], names[j]), units, flips)
        for i, j, key in asked
    ]
    if not any(one.paired for one in compared):
        paths = " and ".join(str(run.path) for run in runs)
        both = "both" if len(runs) == 2 else "two"
        raise UserError(f"{paths}: no {units[1]} are scored in {both} runs")
    adjusted = holm([one.paired.p if one.paired else None for one in compared])
    return [replace(one, holm=p) for one, p in zip(compared, adjusted, strict=True)]


def run_names(runs: Sequence[FinishedRun]) -> list[str]:
    """Return a distinct name for each run: its system, or its folder if several have that one."""
    systems = [run.system for run in runs]
    repeated = {name for name in systems if systems.count(name) > 1}
    return numbered([str(r.path) if r.system in repeated else r.system for r in runs])


def run_table(task: str, results: Sequence[RunComparison]) -> TextTable:
    """Return the comparisons of runs of one task, one line per figure, scale and pair."""
    lines = [
        TableLine((one.figure, one.scale), one.a, one.b, one.paired, one.holm)
        for one in results
        if one.paired is not None
    ]
    return pairs_table(f"Task {task[-1]}: ", ("figure", "scale"), lines, UNITS[task][0], ("scale",))


def _check_same_judges(runs: Sequence[FinishedRun], scales: Sequence[Sequence[str]]) -> None:
    judges = [sorted(set(mine)) for mine in scales]
    if any(one != judges[0] for one in judges):
        judged = " and ".join(
            f"{run.path} has verdicts of {', '.join(names) or 'no judge'}"
            for run, names in zip(runs, judges, strict=True)
        )
        raise UserError(f"{judged}. Pass --verdicts of one judge for {_both(runs)}")


def _both(runs: Sequence[FinishedRun]) -> str:
    return "both runs" if len(runs) == 2 else "all runs"


def _check_same_data(a: FinishedRun, b: FinishedRun) -> None:
    if a.task != b.task:
        raise UserError(f"{a.path} is of {a.task} and {b.path} of {b.task}: compare one task")
    if a.split != b.split:
        raise UserError(f"not the same rows: {a.path} is of split {a.split}, {b.path} of {b.split}")
    if _hashes(a) != _hashes(b):
        raise UserError(f"not the same rows: {a.path} and {b.path} were made on different data")
    other = difference(a.fingerprint.get("pools"), b.fingerprint.get("pools"), "pools")
    if other is not None:
        raise UserError(f"not the same pools: {a.path} and {b.path} differ in {other}")


def _hashes(run: FinishedRun) -> dict[str, str]:
    """The hashes of the inputs, by track."""
    data = run.fingerprint["data"]
    tracks = data.get("tracks") or {run.task: data}
    return {name: str(one.get("sha256"))[:HASH] for name, one in tracks.items()}


def _compared(
    one: RunFigure,
    other: RunFigure,
    names: tuple[str, str],
    units: tuple[str, str],
    flips: int,
) -> RunComparison:
    odd = one.sessions.keys() ^ other.sessions.keys()
    if odd:
        raise UserError(
            f"not the same rows: {len(odd)} {units[1]} are in one run only, such as `{min(odd)}`"
        )
    both = [name for name in one.values if name in other.values]
    result = None
    if both:
        first, second = ({name: side.values[name] for name in both} for side in (one, other))
        result = paired(first, second, one.sessions, one.seed, units=units, flips=flips)
    return RunComparison(one.name, one.scale, *names, result, len(one.sessions) - len(both))
