"""Was the gold memory used? The paper's score of task 3, next to exact recall@1.

The gold memory is looked for, whichever memory a prediction selects: that is what the paper's judge
was shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from analysis.statistics import Interval, mean_interval
from judges.options import JudgeOptions
from judges.run import Work, judge_all, plan_all
from judges.utilization import UsedMemoryJudge
from judges.verdicts import Judged, Unjudged, Verdict, disagreed
from memory_scoring.similarity import USED_FROM, token_overlap
from recallbed.chat_models.base import ChatModel
from recallbed.corpus.predictions import MISSING, REPEATED, Matching, Selection
from recallbed.corpus.records import Task3File, Task3Row
from recallbed.errors import UserError
from recallbed.harness.failures import Failures
from recallbed.harness.fingerprint import short_hash
from recallbed.harness.plan import Plan

UseBy = Literal["overlap", "judge"]


@dataclass(frozen=True, slots=True)
class Use:
    """Whether the gold memory was used; None if that could not be judged, for `cause`.

    `differ`: whether the votes of a judge differ, None with fewer than two votes.
    """

    used: bool | None
    cause: str = ""
    differ: bool | None = None


@dataclass(frozen=True, slots=True)
class UseOptions:
    """How use is decided; `judge` is given for "judge" only."""

    by: UseBy
    judge: JudgeOptions | None = None


def use_options(by: UseBy | None, judge: JudgeOptions | None) -> UseOptions | None:
    """Return what a command's options ask for, None for nothing. Raise UserError for a conflict."""
    if (by == "judge") != (judge is not None):
        raise UserError("--use judge and --judge-model go together: give both, or neither")
    return None if by is None else UseOptions(by, judge)


@dataclass(frozen=True, slots=True)
class UseRates:
    """How often the gold memory was used, with 95 % intervals over sessions, and exact recall@1.

    Unjudged queries are a category of their own: `over_judged` leaves them out, and in
    `unanswered_as_unused` only queries without a prediction count as unused.
    """

    by: str
    votes: int | None
    asked: int
    answered: int
    judged: int
    unjudged: Mapping[str, int]
    over_judged: Interval | None
    unanswered_as_unused: Interval | None
    votes_differ: float | None
    beside_exact_match: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the fields, intervals rounded."""
        return {
            **asdict(self),
            "over_judged": self.over_judged and self.over_judged.to_json(),
            "unanswered_as_unused": self.unanswered_as_unused
            and self.unanswered_as_unused.to_json(),
        }

    def lines(self) -> Iterator[str]:
        """Return the rates as lines of text."""
        yield (
            f"the gold memory was used, by {self.by}: {self.answered} with a row,"
            f" {self.judged} judged, {sum(self.unjudged.values())} unjudged"
        )
        for name, found in (
            ("used, over the judged", self.over_judged),
            ("used, unanswered as unused", self.unanswered_as_unused),
        ):
            if found is not None:
                yield f"  {name:<38} {found.mean:.4f}  {found}"
        for name, count in self.beside_exact_match.items():
            yield f"    {name.replace('_', ' '):<36} {count}"
        if self.votes_differ is not None:
            yield f"  {'share of queries whose votes differ':<38} {self.votes_differ:.4f}"
        for cause, count in self.unjudged.items():
            yield f"    unjudged, {cause}: {count}"


class UsedMemory:
    """Decides use for the queries that have exactly one prediction row."""

    def __init__(self, file: Task3File, matching: Matching[Selection]) -> None:
        self.file, self.matching = file, matching
        self.rows: dict[str, tuple[Task3Row, str, str]] = {}
        """By benchmark_id: the query, and the answer and reason of its prediction."""
        for row in file.rows:
            match = matching.of[row.benchmark_id]
            if match.cause not in (MISSING, REPEATED) and match.value is not None:
                words = match.value.answer or "", match.value.reason or ""
                self.rows[row.benchmark_id] = (row, *words)

    def uses(self, options: UseOptions) -> dict[str, Use]:
        """Decide by benchmark_id whether the gold memory was used. Raise UserError as `judge_all`.

        By overlap it was used if the reason contains at least USED_FROM of the memory.
        """
        if options.judge is None:
            return {
                name: Use(token_overlap(row.gold_memory.text, reason) >= USED_FROM)
                for name, (row, _, reason) in self.rows.items()
            }
        about = {
            "data": {"sha256": self.file.sha256, "distractors": self.file.size},
            "predictions": short_hash({name: words for name, (_, *words) in self.rows.items()}),
        }
        found = judge_all(options.judge, "task3", about, partial(self._work, options.judge))
        return {name: _use(verdict) for name, verdict in found.of.items()}

    def plan(self, judge: JudgeOptions) -> Mapping[str, Plan]:
        """Return what would be sent to a judge."""
        return plan_all(judge, partial(self._work, judge))

    def rates(
        self, rows: Sequence[Task3Row], uses: Mapping[str, Use], options: UseOptions
    ) -> UseRates:
        """Return how often the memory was used over `rows`; `uses` are by benchmark_id."""
        judge = options.judge
        given = [row.benchmark_id for row in rows if row.benchmark_id in uses]
        judged = [
            row for row in rows if (use := uses.get(row.benchmark_id)) and use.used is not None
        ]
        unjudged = set(given) - {row.benchmark_id for row in judged}
        cross = Counter(
            ("used" if uses[row.benchmark_id].used else "not_used")
            + ("_and_correct" if self._correct(row) else "_and_not_correct")
            for row in judged
        )
        names = [a + b for a in ("used", "not_used") for b in ("_and_correct", "_and_not_correct")]
        differ = [differs for name in given if (differs := uses[name].differ) is not None]

        def rate(group: Sequence[Task3Row]) -> Interval | None:
            used = [bool((use := uses.get(row.benchmark_id)) and use.used) for row in group]
            return mean_interval(used, [row.session_id for row in group])

        return UseRates(
            by=f"judge {judge.model}" if judge else "overlap",
            votes=judge.votes if judge else None,
            asked=len(rows),
            answered=len(given),
            judged=len(judged),
            unjudged=dict(sorted(Failures(uses[name].cause for name in unjudged).counts.items())),
            over_judged=rate(judged),
            unanswered_as_unused=rate([row for row in rows if row.benchmark_id not in unjudged]),
            votes_differ=sum(differ) / len(differ) if differ else None,
            beside_exact_match={name: cross[name] for name in names},
        )

    def _correct(self, row: Task3Row) -> bool:
        return self.matching.of[row.benchmark_id].cause == "correct"

    def _work(self, options: JudgeOptions, chat: ChatModel) -> Work:
        judge = UsedMemoryJudge(chat, options.votes)
        items = {
            name: partial(judge, row.query, answer, reason, row.gold_memory.text)
            for name, (row, answer, reason) in self.rows.items()
        }
        return Work(items, dict(judge.settings()))


def _use(verdict: Verdict[bool]) -> Use:
    used = verdict.value if isinstance(verdict, Judged) else None
    cause = verdict.cause if isinstance(verdict, Unjudged) else ""
    return Use(used, cause, disagreed(verdict))
