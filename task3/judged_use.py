"""Was the gold memory used, for every prediction of a file: by overlap, or by a model's word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from judges.options import JudgeOptions
from judges.run import Work, judge_all, plan_all
from judges.used_memory import UsedMemoryJudge
from judges.verdicts import Judged, Unjudged, Verdict, disagreed
from recallbed.chat_models.base import ChatModel
from recallbed.chat_models.dry_run import Plan
from recallbed.corpus.predictions import Prediction
from recallbed.corpus.records import Task3File, Task3Row
from recallbed.errors import UserError
from recallbed.harness.fingerprint import short_hash
from task3 import exact_match
from task3.use import Use, Words, by_overlap, use_figures

UseBy = Literal["overlap", "judge"]


@dataclass(frozen=True, slots=True)
class UseOptions:
    """How use is told; `judge` is there for "judge" alone."""

    by: UseBy
    judge: JudgeOptions | None = None


def use_options(by: UseBy | None, judge: JudgeOptions | None) -> UseOptions | None:
    """What a command's options ask for, None for nothing. Raises UserError for what can't be."""
    if (by == "judge") != (judge is not None):
        raise UserError("--use judge and --judge-model go together: give both, or neither")
    return None if by is None else UseOptions(by, judge)


class Predicted:
    """The queries of a file that have exactly one prediction row, with what the row says."""

    def __init__(
        self,
        file: Task3File,
        rows: Sequence[Prediction],
        verdicts: Mapping[str, exact_match.Verdict],
    ) -> None:
        self.file, self.verdicts = file, verdicts
        words = {row.line: Words(row.answer, row.reason) for row in rows}
        self.said: dict[str, tuple[Task3Row, Words]] = {
            row.benchmark_id: (row, words[verdict.lines[0]])
            for row in file.rows
            if (verdict := verdicts[row.benchmark_id]).cause not in ("missing", "repeated")
        }

    def uses(self, options: UseOptions) -> dict[str, Use]:
        """By benchmark_id, whether the gold memory was used. Raises UserError as `judge_all`."""
        if options.judge is None:
            said = self.said.items()
            return {name: by_overlap(row.gold_memory.text, words) for name, (row, words) in said}
        about = {
            "data": {"sha256": self.file.sha256, "distractors": self.file.size},
            "predictions": short_hash({n: [w.answer, w.reason] for n, (_, w) in self.said.items()}),
        }
        found = judge_all(options.judge, "task3", about, self._work(options.judge))
        return {name: _use(verdict) for name, verdict in found.of.items()}

    def plan(self, judge: JudgeOptions) -> Mapping[str, Plan]:
        """What a judge would be sent."""
        return plan_all(judge, self._work(judge))

    def figures(
        self, rows: Sequence[Task3Row], uses: Mapping[str, Use], options: UseOptions
    ) -> dict[str, Any]:
        """The figures over `rows`, as `--json` prints them."""
        of_rows = {row.benchmark_id for row in rows}
        kept = {name: use for name, use in uses.items() if name in of_rows}
        correct = {name: self.verdicts[name].cause == "correct" for name in kept}
        judge = options.judge
        return {
            "by": f"judge {judge.chat_model}" if judge else "overlap",
            "votes": judge.votes if judge else None,
            **use_figures(rows, kept, correct),
        }

    def _work(self, options: JudgeOptions) -> Callable[[ChatModel], Work]:
        def make(chat: ChatModel) -> Work:
            judge = UsedMemoryJudge(chat, options.votes)
            items = {
                name: partial(judge, row.query, words.answer, words.reason, row.gold_memory.text)
                for name, (row, words) in self.said.items()
            }
            return Work(items, dict(judge.settings()))

        return make


def _use(verdict: Verdict[bool]) -> Use:
    used = verdict.value if isinstance(verdict, Judged) else None
    cause = verdict.cause if isinstance(verdict, Unjudged) else ""
    return Use(used, cause, disagreed(verdict))
