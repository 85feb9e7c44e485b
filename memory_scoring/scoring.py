"""From answers to a report: pairs by one of the three scorers, then every figure from pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from indexes.language import language_of
from judges.memory_pairs import PairJudge
from judges.options import JudgeOptions
from judges.run import Work, judge_all, plan_all
from judges.summary import rate
from judges.verdicts import Judged
from memory_scoring import (
    ASSIGNMENTS,
    Matched,
    Pair,
    breakdown,
    exact_pairs,
    figures,
    similar_pairs,
)
from memory_scoring.answers import Answers, R
from memory_scoring.score_options import ScoreOptions
from recallbed.chat_models.base import ChatModel
from recallbed.corpus.records import MemoryItem, Turn
from recallbed.harness.plan import Plan

JSON = Any
NONE = "(none)"


@dataclass(frozen=True, slots=True)
class Scored:
    """The report (what --json prints), and the pairs of each scored session that it rests on."""

    report: dict[str, JSON]
    pairs: Mapping[str, tuple[Pair, ...]]


def score_answers(
    answers: Answers[R], options: ScoreOptions, dialogue: Callable[[R], Sequence[Turn]]
) -> Scored:
    """Pair up and count. `dialogue` gives the turns that tell a session's language.

    Raises UserError as `judges.run.judge_all` does.
    """
    pairs, judged = pair_up(answers, options)
    sessions = [
        Matched(answers.rows[name].session_id, answers.gold(name), answers.items[name], found)
        for name, found in pairs.items()
    ]
    languages = [language_of(_said(dialogue(answers.rows[name]))) for name in pairs]
    graded = options.scorer == "match"
    found = figures(sessions, graded=graded, seed=options.seed)
    unjudged = len(answers.items) - len(sessions)
    share = len(sessions) / (len(answers.rows) - unjudged)
    return Scored(
        {
            **answers.described(),
            "scorer": options.scorer,
            **({"assign": options.assign} if graded else {}),
            **({"judge": judged} if judged is not None else {}),
            **found,
            "unanswered_as_wrong": {
                key: round(found[key] * share, 6) for key in ("precision", "recall", "f1")
            },
            "by_type": breakdown(sessions, lambda item: item.type or NONE, options.seed),
            "by_label": breakdown(sessions, top_label, options.seed),
            "by_language": {
                name: figures(
                    [one for one, its in zip(sessions, languages, strict=True) if its == name],
                    graded=graded,
                    seed=options.seed,
                )
                for name in sorted(set(languages), key=lambda n: (-languages.count(n), n))
            },
        },
        pairs,
    )


def pair_up(
    answers: Answers[R], options: ScoreOptions
) -> tuple[dict[str, tuple[Pair, ...]], Mapping[str, JSON] | None]:
    """The pairs of every session that could be scored, in data order; and the judge's facts."""
    if options.judge is None:
        by = exact_pairs
        if options.scorer == "match":
            by = partial(similar_pairs, assign=ASSIGNMENTS[options.assign])
        return {name: by(*both) for name, both in _sides(answers).items()}, None
    about = {
        "task": f"{answers.inputs.track}, memories paired by a judge",
        "data": answers.inputs.fingerprint(),
        "predictions": answers.found.sha256,
    }
    work = partial(_work, answers, options.judge)
    verdicts = judge_all(options.judge, answers.inputs.track, about, work)
    judged = {
        name: tuple(Pair(gold, predicted, 1.0) for gold, predicted in verdict.value)
        for name, verdict in verdicts.of.items()
        if isinstance(verdict, Judged)
    }
    rated = rate(list(verdicts.of.values()), None).as_json()
    del rated["score"]  # the figures of tasks 1 and 2 are made of pairs
    prompts = sorted({verdict.prompt for verdict in verdicts.of.values()})
    return judged, {**verdicts.facts, "prompts": prompts, **rated}


def plan_pairs(answers: Answers[R], judge: JudgeOptions) -> Mapping[str, Plan]:
    """Return what `pair_up` would send to the judge."""
    return plan_all(judge, partial(_work, answers, judge))


def _work(answers: Answers[R], options: JudgeOptions, chat: ChatModel) -> Work:
    judge = PairJudge(chat, options.votes)
    items = {name: partial(judge, *both) for name, both in _sides(answers).items()}
    return Work(items, dict(judge.settings()))


def _sides(answers: Answers[R]) -> dict[str, tuple[tuple[MemoryItem, ...], ...]]:
    """Gold and predicted memories by session."""
    return {name: (answers.gold(name), items) for name, items in answers.items.items()}


def _said(turns: Iterable[Turn]) -> str:
    """What the user says."""
    return "\n".join(turn.text for turn in turns if turn.role == "user")


def top_label(item: MemoryItem) -> str:
    """The first part of the label's path: `Preferences` of `Preferences/Food`."""
    return (item.label or "").strip("/ ").partition("/")[0].strip() or NONE
