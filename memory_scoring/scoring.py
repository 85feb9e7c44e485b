"""Scoring of predicted memory lists: pairs by one of three scorers, and figures from pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from indexes.language import language_of
from judges.memory_pairs import PairJudge
from judges.memory_reviews import REVIEWED, ReviewJudge, review_score
from judges.options import JudgeOptions
from judges.run import Verdicts, Work, judge_all, plan_all
from judges.verdicts import Judged
from memory_scoring.figures import SessionPairs, figures, figures_by_group
from memory_scoring.pairing import ASSIGNMENTS, Pair, exact_pairs, similar_pairs
from memory_scoring.predictions import PredictedSessions, R
from memory_scoring.report import MemoryReport
from memory_scoring.score_options import ScoreOptions
from recallbed.chat_models.base import ChatModel
from recallbed.corpus.records import MemoryItem, Task1Row, Task2Row, Turn
from recallbed.errors import UserError
from recallbed.harness.fingerprint import canonical
from recallbed.harness.plan import print_plans
from recallbed.harness.terminal import note, say, say_json
from recallbed.harness.text_table import TextTable, print_tables

NO_LABEL = "(none)"


def score_sessions(
    sessions: PredictedSessions[R],
    options: ScoreOptions,
    dialogue: Callable[[R], Sequence[Turn]],
) -> MemoryReport[R]:
    """Pair up and count. `dialogue` returns the turns that decide a session's language.

    Raise UserError as `judges.run.judge_all` does.
    """
    pairs, verdicts = pair_up(sessions, options)
    sides, reviewed = sessions.sides, options.scorer == "blended"
    reviews = {
        name: review_score(verdict.value)
        for name, verdict in (verdicts.of.items() if verdicts and reviewed else ())
        if isinstance(verdict, Judged)
    }
    paired = [
        SessionPairs(sessions.rows[name].session_id, *sides[name], found, reviews.get(name))
        for name, found in pairs.items()
    ]
    languages = [language_of(_user_text(dialogue(sessions.rows[name]))) for name in pairs]
    graded = options.by_similarity
    count = partial(figures, graded=graded, reviewed=reviewed, seed=options.seed)
    return MemoryReport(
        sessions=sessions,
        scorer=options.scorer,
        assign=options.assign if graded else None,
        verdicts=verdicts,
        pairs=pairs,
        figures=count(paired),
        by_type=figures_by_group(paired, lambda item: item.type or NO_LABEL, options.seed),
        by_label=figures_by_group(paired, top_label, options.seed),
        by_language={
            name: count([one for one, its in zip(paired, languages, strict=True) if its == name])
            for name in sorted(set(languages), key=lambda n: (-languages.count(n), n))
        },
    )


def pair_up(
    sessions: PredictedSessions[R], options: ScoreOptions
) -> tuple[dict[str, tuple[Pair, ...]], Verdicts | None]:
    """Return the pairs of every session that could be scored, in data order, and the verdicts."""
    matched = _matched(sessions, options)
    if options.judge is None:
        return matched or {}, None
    how = "memories paired by a judge"
    if matched is not None:
        how = f"{REVIEWED}, {options.assign} pairs"
    about = {
        "task": f"{sessions.inputs.track}, {how}",
        "data": sessions.inputs.fingerprint(),
        "predictions": sessions.matching.file.sha256,
    }
    work = partial(_work, sessions, options.judge, matched)
    verdicts = judge_all(options.judge, sessions.inputs.track, about, work)
    if matched is not None:
        of = verdicts.of
        return {n: pairs for n, pairs in matched.items() if isinstance(of[n], Judged)}, verdicts
    judged = {
        name: tuple(Pair(gold, predicted, 1.0) for gold, predicted in verdict.value)
        for name, verdict in verdicts.of.items()
        if isinstance(verdict, Judged)
    }
    return judged, verdicts


def _matched(
    sessions: PredictedSessions[R], options: ScoreOptions
) -> dict[str, tuple[Pair, ...]] | None:
    """The pairs of each answered session; None if a judge has to pair."""
    if options.scorer == "judge":
        return None
    by = exact_pairs
    if options.by_similarity:
        by = partial(similar_pairs, assign=ASSIGNMENTS[options.assign])
    return {name: by(*both) for name, both in sessions.sides.items()}


def _work(
    sessions: PredictedSessions[R],
    options: JudgeOptions,
    matched: Mapping[str, tuple[Pair, ...]] | None,
    chat: ChatModel,
) -> Work:
    """The questions of a judge that pairs memories, or with `matched` of one that reviews."""
    if matched is None:
        judge = PairJudge(chat, options.votes)
        items = {name: partial(judge, *both) for name, both in sessions.sides.items()}
        return Work(items, dict(judge.settings()))
    reviewer = ReviewJudge(chat, options.votes)
    reviews = {}
    for name, (gold, predicted) in sessions.sides.items():
        pairs = matched[name]
        golds, others = {pair.gold for pair in pairs}, {pair.predicted for pair in pairs}
        reviews[name] = partial(
            reviewer,
            _whole_dialogue(sessions.rows[name]),
            [(gold[pair.gold], predicted[pair.predicted]) for pair in pairs],
            [item for i, item in enumerate(gold) if i not in golds],
            [item for i, item in enumerate(predicted) if i not in others],
        )
    return Work(reviews, dict(reviewer.settings()))


def _whole_dialogue(row: Task1Row | Task2Row) -> Sequence[Turn]:
    return row.dialogue if isinstance(row, Task1Row) else (*row.old_dialogue, *row.new_dialogue)


def _user_text(turns: Sequence[Turn]) -> str:
    return "\n".join(turn.text for turn in turns if turn.role == "user")


def top_label(item: MemoryItem) -> str:
    """Return the first part of the label's path: `Preferences` of `Preferences/Food`."""
    return (item.label or "").strip("/ ").partition("/")[0].strip() or NO_LABEL


class ScoreReport(Protocol):
    """The report of a scoring command."""

    def to_json(self) -> dict[str, Any]:
        """Return what --json prints."""

    def lines(self) -> Iterable[str]:
        """Return what was scored, and what was not."""

    def tables(self) -> Iterable[TextTable]:
        """Return the figures."""


def print_scores(
    options: ScoreOptions,
    sessions: PredictedSessions[Any],
    score: Callable[[], ScoreReport],
) -> None:
    """Print the report; after --dry-run the judge's plan.

    With --json stdout has JSON only, and what was not scored goes to stderr. Raise UserError if
    --dry-run has no judge to plan for.
    """
    if options.dry_run:
        if options.judge is None:
            raise UserError("--dry-run: only --scorer judge and blended ask a chat model")
        matched = _matched(sessions, options)
        plans = plan_all(options.judge, partial(_work, sessions, options.judge, matched))
        print_plans(plans, as_json=True)
        return
    report = score()
    if options.as_json:
        say_json(canonical(report.to_json()))
        note(*report.lines())
        return
    say(*report.lines(), "")
    print_tables(report.tables())
