"""What became of the gold memory of each question of a run of task 4, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.task_runs import HASH, FinishedRun, data_root, other_data
from analysis.verdict_runs import VerdictRun
from judges.verdicts import Grades, Judged, Verdict
from memory_scoring.gold_search import names_the_memory
from memory_scoring.questions import UserQuestion, questions_of, read_task4
from memory_scoring.run_answers import RunAnswer, read_run_answers
from recallbed.corpus.tracks import ABILITIES, task4_track
from recallbed.errors import UserError

STEPS = ("answered", "stored", "found", "shown", "used")
RIGHT_FROM = 4.0
"""Mean grade from which an answer of emotional intelligence counts as right."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One question: how many of STEPS its gold memory passed in a row, and the verdict.

    `names_memory`: whether the answer names the gold memory, whatever step was missed before.
    `searched` is False if the system puts its memories into the prompt without a search; "found"
    and "shown" then say whether the memory was among those that fitted. `shown_is_assumed`: the run
    does not say which hits fitted into the prompt, so the last ones are taken to be missing.
    """

    question: str
    session: str
    dimension: str
    passed: int
    names_memory: bool
    searched: bool
    verdict: Verdict[Any] | None
    shown_is_assumed: bool = False

    @property
    def lost_at(self) -> str | None:
        """The first step that was not passed; None if all were."""
        return STEPS[self.passed] if self.passed < len(STEPS) else None

    @property
    def value(self) -> float | None:
        """What the judge gave: 0, 1, or for emotional intelligence the mean grade; None for none.

        Unjudged answers have no value.
        """
        if not isinstance(self.verdict, Judged):
            return None
        given = self.verdict.value
        return given.mean if isinstance(given, Grades) else float(given)

    @property
    def outcome(self) -> str:
        """`right`, `wrong`, `unjudged` (the judge gave no verdict) or `no verdict` (not asked)."""
        if self.verdict is None:
            return "no verdict"
        if self.value is None or not isinstance(self.verdict, Judged):
            return "unjudged"
        graded = isinstance(self.verdict.value, Grades)
        return "right" if self.value >= (RIGHT_FROM if graded else 1.0) else "wrong"


@dataclass(frozen=True, slots=True)
class TracedRun:
    """A run of task 4 with the trace of each of its questions, in their order.

    `texts` are the answers that a judge may be asked about, by question.
    """

    run: FinishedRun
    traces: Sequence[Trace]
    texts: Mapping[str, str]
    verdicts: VerdictRun | None


def trace_run(
    run: FinishedRun, data: Path | None, verdicts: Sequence[VerdictRun] = ()
) -> TracedRun:
    """Return the traces of a run of task 4, with those `verdicts` that are on its answers.

    Raise DataError for faulty data, and UserError if `data` is not what the run was made on, for
    damaged rows, and for two runs of a judge on these answers.
    """
    questions = questions_of_run(run, data)
    answers = read_run_answers(run.path, questions)
    texts = {name: one.text for name, one in answers.items() if one.text.strip()}
    mine = [one for one in verdicts if one.run.task == "task4" and one.judges_answers(texts)]
    if len(mine) > 1:
        paths = " and ".join(str(one.run.path) for one in mine)
        raise UserError(f"{paths}: both judge the answers of {run.path}. Name one of them")
    judged = mine[0] if mine else None
    searching = any(one.search is not None and one.search.searched for one in answers.values())
    traces = [
        _trace(questions[name], one, searching, judged.of.get(name) if judged else None)
        for name, one in answers.items()
    ]
    return TracedRun(run, traces, texts, judged)


def questions_of_run(run: FinishedRun, data: Path | None) -> dict[str, UserQuestion]:
    """Return the questions of the abilities that a run asked for, by name.

    Raise DataError, and UserError if the data is not what the run was made on.
    """
    made_on = run.fingerprint["data"]
    tracks = made_on.get("tracks")
    if not isinstance(tracks, dict):
        raise UserError(f"{run.path}: the manifest does not say which tracks the run was made on")
    root = data_root(run.path, made_on, data)
    asked = [ability for ability in ABILITIES if task4_track(ability).name in tracks]
    rows = read_task4(root, run.split, asked, with_gold=True)
    for name, found in rows.data["tracks"].items():
        if found["sha256"][:HASH] != str(tracks[name].get("sha256"))[:HASH]:
            raise other_data(run.path, root, run.split)
    return {question.name: question for question in questions_of(rows.rows.values())}


def _trace(
    question: UserQuestion, answer: RunAnswer, searching: bool, verdict: Verdict[Any] | None
) -> Trace:
    """`searching`: whether any answer of the run rests on a search."""
    steps = [False] * len(STEPS)
    search, names, unseen = answer.search, False, answer.ranks_left_out
    if search is not None and search.by is not None and search.newest is not None:
        shown = search.newest >= answer.left_out
        if searching and unseen is not None:
            shown = not unseen.issuperset(search.ranks)
        elif searching:
            shown = search.rank is not None and search.rank <= search.hits - answer.left_out
        steps[1:4] = True, not searching or bool(search.ranks), shown
    if search is not None:
        steps[0] = True
        names = names_the_memory(answer.used, question.memory, question.row.history)
        steps[4] = names
    return Trace(
        question.name,
        question.row.session_id,
        question.dimension,
        next((i for i, step in enumerate(steps) if not step), len(steps)),
        names,
        searching,
        verdict,
        searching and unseen is None and search is not None and bool(search.ranks),
    )
