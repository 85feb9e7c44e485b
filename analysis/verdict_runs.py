"""Runs of a judge, joined by content with the runs whose answers they judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.task_runs import FinishedRun, open_finished
from judges.memory_reviews import REVIEWED
from judges.verdicts import Verdict, from_row
from memory_scoring.run_answers import answers_identity
from recallbed.errors import UserError
from recallbed.harness.fingerprint import short_hash
from recallbed.harness.item_run import is_item_row
from recallbed.harness.run_folder import ROWS, read_rows

JSON = Any


@dataclass(frozen=True, slots=True)
class VerdictRun:
    """The verdicts of one judge by item: a session, a query, or a question of task 4."""

    run: FinishedRun
    of: Mapping[str, Verdict[Any]]

    @property
    def scale(self) -> str:
        """The judge as a scale: figures of two judges are on two scales."""
        votes = int(self.run.summary.get("votes", 1))
        return f"judge {self.run.summary.get('model')}" + (f", {votes} votes" if votes > 1 else "")

    def judges_file(self, sha256: str) -> bool:
        """Whether it judges the memory lists of a predictions file with this hash."""
        return bool(self.run.fingerprint.get("predictions") == sha256)

    def judges_answers(self, texts: Mapping[str, str]) -> bool:
        """Whether it judges these answers of task 4, by question, or a part of them."""
        if not self.of.keys() <= texts.keys():
            return False
        mine = {name: texts[name] for name in self.of}
        return bool(self.run.fingerprint.get("answers") == answers_identity(mine))

    def judges_choices(self, texts: Mapping[str, Sequence[str]]) -> bool:
        """Whether it judges these answers of task 3 and their reasons, by query."""
        if not self.of.keys() <= texts.keys():
            return False
        mine = {name: list(texts[name]) for name in self.of}
        return bool(self.run.fingerprint.get("predictions") == short_hash(mine))


def read_verdict_run(path: Path) -> VerdictRun:
    """Return the verdicts in `path`; raise UserError if it is no finished run of a judge."""
    run = open_finished(path)
    if run.kind != "verdicts":
        raise UserError(f"{path}: not a run of a judge")
    if REVIEWED in str(run.fingerprint.get("task")):
        raise UserError(f"{path}: has reviews of --scorer blended. Pass verdicts of --scorer judge")
    rows, _ = read_rows(path / ROWS, _is_verdict_row, "a row of a run of a judge")
    return VerdictRun(run, {row["item"]: from_row(row["result"]) for row in rows})


def _is_verdict_row(row: Any) -> bool:
    keys = {"verdict", "cause", "model", "prompt", "votes", "raw"}
    result = row.get("result") if is_item_row(row) else None
    return (
        isinstance(result, dict)
        and keys <= result.keys()
        and (result["cause"] is not None or "repairs" in result)
    )


def no_such_answers(verdicts: Iterable[VerdictRun], runs: Iterable[Path]) -> UserError:
    """Return the error for verdicts on answers that none of `runs` gave."""
    names = ", ".join(str(one.run.path) for one in verdicts)
    given = ", ".join(map(str, runs))
    return UserError(
        f"{names}: these verdicts are not on the answers of {given}. Name the run that was judged,"
        " or judge this one with the score command of its task"
    )


def two_of_a_judge(one: VerdictRun, run: FinishedRun) -> UserError:
    """Return the error for a second run of the judge of `one` on the answers of `run`."""
    return UserError(f"{one.run.path}: two runs of this judge are on {run.path}. Name one of them")
