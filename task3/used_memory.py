"""Was the gold memory used? The paper's score of task 3, next to exact recall@1.

The gold memory is looked for, whichever memory a prediction selects: that is what the paper's judge
was shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from analysis.statistics import Bootstrap
from judges.options import JudgeOptions
from judges.run import Work, judge_all, plan_all
from judges.used_memory import UsedMemoryJudge
from judges.verdicts import Judged, Unjudged, Verdict, disagreed
from memory_scoring.similarity import token_overlap
from recallbed.chat_models.base import ChatModel
from recallbed.corpus.predictions import Prediction
from recallbed.corpus.records import Task3File, Task3Row
from recallbed.errors import UserError
from recallbed.harness.failures import Failures
from recallbed.harness.fingerprint import short_hash
from recallbed.harness.plan import Plan
from task3.exact_match import QueryVerdict

UseBy = Literal["overlap", "judge"]
USED_FROM = 0.2
"""The paper's: from this overlap on a memory counts as used where there is no judge."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a prediction row says: its answer, and the reason that it gives; "" where missing."""

    answer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Use:
    """Whether the gold memory was used; None where that couldn't be judged, for `cause`.

    `differ` tells whether the votes of a judge differ, None where fewer than two came.
    """

    used: bool | None
    cause: str = ""
    differ: bool | None = None


def by_overlap(memory: str, words: Words) -> Use:
    """Used, where the reason holds at least USED_FROM of the memory."""
    return Use(token_overlap(memory, words.reason) >= USED_FROM)


def use_figures(
    rows: Sequence[Task3Row],
    uses: Mapping[str, Use],
    correct: Mapping[str, bool],
    seed: int = 0,
) -> dict[str, Any]:
    """How often the memory was used, with intervals over sessions, and beside exact recall@1.

    `uses` and `correct` are by benchmark_id, of the queries that have a prediction. The unjudged
    are a category of their own: `over_judged` leaves them out, and in `unanswered_as_unused` only
    queries without a prediction count as unused.
    """
    there = [row for row in rows if row.benchmark_id in uses]
    judged = [row for row in there if uses[row.benchmark_id].used is not None]
    unjudged = {row.benchmark_id for row in there} - {row.benchmark_id for row in judged}
    counted = [row for row in rows if row.benchmark_id not in unjudged]
    causes = Failures(uses[name].cause for name in unjudged).counts
    cross = Counter(
        ("used" if uses[row.benchmark_id].used else "not_used")
        + ("_and_correct" if correct[row.benchmark_id] else "_and_not_correct")
        for row in judged
    )
    differ = [one.differ for row in there if (one := uses[row.benchmark_id]).differ is not None]
    names = [a + b for a in ("used", "not_used") for b in ("_and_correct", "_and_not_correct")]
    return {
        "asked": len(rows),
        "answered": len(there),
        "judged": len(judged),
        "unjudged": dict(sorted(causes.items())),
        "over_judged": _rate(judged, uses, seed),
        "unanswered_as_unused": _rate(counted, uses, seed),
        "votes_differ": sum(differ) / len(differ) if differ else None,
        "beside_exact_match": {name: cross[name] for name in names},
    }


def _rate(rows: Sequence[Task3Row], uses: Mapping[str, Use], seed: int) -> dict[str, Any] | None:
    if not rows:
        return None
    values = np.array([bool((one := uses.get(r.benchmark_id)) and one.used) for r in rows], float)
    found = asdict(Bootstrap([row.session_id for row in rows], seed).interval(values))
    return {k: v if isinstance(v, str) else round(v, 6) for k, v in found.items()}


def describe_use(figures: Mapping[str, Any]) -> Iterator[str]:
    """The figures as lines of text."""
    yield (
        f"the gold memory was used, by {figures['by']}: {figures['answered']} with a row,"
        f" {figures['judged']} judged, {sum(figures['unjudged'].values())} unjudged"
    )
    for name, key in (
        ("used, over the judged", "over_judged"),
        ("used, unanswered as unused", "unanswered_as_unused"),
    ):
        if (found := figures[key]) is not None:
            interval = f"95 % [{found['low']:.4f}, {found['high']:.4f}] {found['method']}"
            yield f"  {name:<38} {found['mean']:.4f}  {interval}"
    for name, count in figures["beside_exact_match"].items():
        yield f"    {name.replace('_', ' '):<36} {count}"
    if figures["votes_differ"] is not None:
        yield f"  {'share of queries whose votes differ':<38} {figures['votes_differ']:.4f}"
    for cause, count in figures["unjudged"].items():
        yield f"    unjudged, {cause}: {count}"


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
        verdicts: Mapping[str, QueryVerdict],
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
            "by": f"judge {judge.model}" if judge else "overlap",
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
