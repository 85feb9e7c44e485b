"""Two runs of one task on the same rows: memory systems, or a model's answers of task 3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.run_figures import RunFigure, run_figures
from analysis.statistics import Paired, paired
from analysis.task_runs import HASH, FinishedRun
from analysis.verdict_runs import VerdictRun, no_such_answers
from recallbed.errors import UserError
from recallbed.harness.fingerprint import difference

UNITS = {"task1": "session", "task2": "session", "task3": "query", "task4": "question"}
"""What the figures of a task are over."""
PLURALS = {one: f"{one}s" for one in UNITS.values()} | {"query": "queries"}


@dataclass(frozen=True, slots=True)
class RunComparison:
    """A figure of two runs on one scale, paired by session, query or question.

    `unpaired` counts those that were not scored on one side or on both: they failed, were not
    answered, or were not judged. `paired` is None if none is left.
    """

    figure: str
    scale: str
    paired: Paired | None
    unpaired: int

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        found = {"figure": self.figure, "scale": self.scale, "unpaired": self.unpaired}
        return found | (asdict(self.paired) if self.paired else {"n": 0})


def compare_runs(
    a: FinishedRun, b: FinishedRun, data: Path | None, verdicts: Sequence[VerdictRun] = ()
) -> list[RunComparison]:
    """Compare every figure that both runs have, with those of judges from `verdicts`.

    Intervals draw whole sessions from the seed of `a`. Raise DataError for faulty data, and
    UserError if the runs are not of one task on the same rows, if they are not judged by the same
    judges, if `verdicts` are on other answers, and if nothing is left to compare.
    """
    _check_same_data(a, b)
    sides = [run_figures(run, data, verdicts) for run in (a, b)]
    used = [one.run.path for _, mine in sides for one in mine]
    if left := [one for one in verdicts if one.run.path not in used]:
        raise no_such_answers(left, (a.path, b.path))
    judges = [sorted({one.scale for one in mine}) for _, mine in sides]
    if judges[0] != judges[1]:
        judged = " and ".join(
            f"{run.path} has verdicts of {', '.join(scales) or 'no judge'}"
            for run, scales in zip((a, b), judges, strict=True)
        )
        raise UserError(f"{judged}. Pass --verdicts of one judge for both runs")
    first, second = ({(one.name, one.scale): one for one in figures} for figures, _ in sides)
    units = PLURALS[UNITS[a.task]]
    found = [_compared(first[key], second[key], units) for key in first if key in second]
    if not any(one.paired for one in found):
        raise UserError(f"{a.path} and {b.path}: no {units} are scored in both runs")
    return found


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


def _compared(one: RunFigure, other: RunFigure, units: str) -> RunComparison:
    odd = one.sessions.keys() ^ other.sessions.keys()
    if odd:
        raise UserError(
            f"not the same rows: {len(odd)} {units} are in one run only, such as `{min(odd)}`"
        )
    both = [name for name in one.values if name in other.values]
    result = None
    if both:
        first, second = ({name: side.values[name] for name in both} for side in (one, other))
        result = paired(first, second, one.sessions, one.seed)
    return RunComparison(one.name, one.scale, result, len(one.sessions) - len(both))
