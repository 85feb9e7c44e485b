"""From answers to a report: pairs by one of the three scorers, then every figure from pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from indexes.language import language_of
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
from recallbed.corpus.records import MemoryItem, Turn
from task1.judging import judge_sessions

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

    Raises UserError as `task1.judging.judge_sessions` does.
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
    """The pairs of every session that could be scored, in data order; and what a judge tells."""
    sides = {name: (answers.gold(name), items) for name, items in answers.items.items()}
    if options.judge is None:
        by = exact_pairs
        if options.scorer == "match":
            by = partial(similar_pairs, assign=ASSIGNMENTS[options.assign])
        return {name: by(*both) for name, both in sides.items()}, None
    about = {"data": answers.inputs.fingerprint(), "predictions": answers.found.sha256}
    verdicts = judge_sessions(options.judge, answers.inputs.track, sides, about)
    judged = {
        name: tuple(Pair(gold, predicted, 1.0) for gold, predicted in pairs)
        for name, pairs in verdicts.pairs.items()
    }
    return judged, verdicts.facts


def _said(turns: Iterable[Turn]) -> str:
    """What the user says."""
    return "\n".join(turn.text for turn in turns if turn.role == "user")


def top_label(item: MemoryItem) -> str:
    """The first part of the label's path: `Preferences` of `Preferences/Food`."""
    return (item.label or "").strip("/ ").partition("/")[0].strip() or NONE
