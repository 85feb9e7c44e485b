"""What a file of answers comes to: by dimension, each share with what it is a share of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from analysis.metrics import Recall
from analysis.statistics import Bootstrap
from judges.summary import JudgeSummary, rate
from judges.verdicts import Judged, Verdict
from memory_scoring.similarity import token_overlap
from recallbed.corpus.predictions import Tally
from task4.answers import ANSWERED, CAUSES, Answers, Said
from task4.found import ALIKE, KS, WAYS, Found, names_the_memory
from task4.questions import DIMENSIONS, Question

JSON = Any
GRADES = ("resonation", "expression", "reception")
UNUSED = ("vra", "cf")
"""Where a memory is there to be left alone: one that comes from fiction, one that is a limit."""


def share(values: Sequence[bool | float], clusters: Sequence[str], seed: int = 0) -> JSON:
    """A mean with its 95 % interval over clusters, and `n`; None over nothing."""
    if not values:
        return None
    found = asdict(Bootstrap(list(clusters), seed).interval(np.array(values, float)))
    rounded = {k: v if isinstance(v, str) else round(v, 6) for k, v in found.items()}
    return {**rounded, "n": len(values)}


def by_dimension(questions: Sequence[Question]) -> dict[str, list[Question]]:
    """The questions of each dimension that has any, in the order of DIMENSIONS."""
    found = {name: [q for q in questions if q.dimension == name] for name in DIMENSIONS}
    return {name: group for name, group in found.items() if group}


def answered(questions: Sequence[Question], answers: Answers) -> dict[str, JSON]:
    """Every question under one cause, with the lines where it stands."""
    tallies = {cause: Tally() for cause in CAUSES}
    for question in questions:
        name = question.name
        tallies[answers.causes[name]].add(*answers.lines[name], fault=answers.faults.get(name, ""))
    return {
        "asked": len(questions),
        "answered": tallies[ANSWERED].count,
        "causes": {cause: tally.as_json() for cause, tally in tallies.items()},
    }


def judged(
    dimension: str, questions: Sequence[Question], verdicts: Mapping[str, Verdict[Any]]
) -> dict[str, JSON]:
    """The score over what was judged, and beside it how much that was.

    A yes-or-no dimension has one `score`, emotional intelligence one a grade and their `mean`.
    Intervals draw whole sessions: the questions of a row stand or fall together.
    """
    there = [question for question in questions if question.name in verdicts]
    said = [verdicts[question.name] for question in there]
    clusters = [question.row.session_id for question in there]

    if not dimension.startswith("ei_"):
        summary = rate(said, float, clusters)
        return _counts(summary) | {"score": _interval(summary)}
    given = [verdict.value.given for verdict in said if isinstance(verdict, Judged)]
    return _counts(rate(said, None, clusters)) | {
        "grades": {name: _grade(name, said, clusters) for name in (*GRADES, "mean")},
        "missing_grades": sum(len(GRADES) - len(grades) for grades in given),
    }


def _grade(name: str, said: Sequence[Verdict[Any]], clusters: Sequence[str]) -> JSON:
    """One grade, 1 to 5, over the answers that were given it; `n` counts them."""
    kept = [
        (verdict, cluster)
        for verdict, cluster in zip(said, clusters, strict=True)
        if isinstance(verdict, Judged) and getattr(verdict.value, name) is not None
    ]
    summary = rate(
        [verdict for verdict, _ in kept],
        lambda grades: float(getattr(grades, name)),
        [cluster for _, cluster in kept],
        bounds=(1.0, 5.0),
    )
    found = _interval(summary)
    return None if found is None else {**found, "n": summary.judged}


def _counts(summary: JudgeSummary) -> dict[str, JSON]:
    keys = ("asked", "judged", "coverage", "unjudged", "voted", "disagreement")
    found = summary.as_json()
    return {key: found[key] for key in keys}


def _interval(summary: JudgeSummary) -> JSON:
    return (
        None
        if summary.score is None
        else {k: v if isinstance(v, str) else round(v, 6) for k, v in asdict(summary.score).items()}
    )


def retrieval(questions: Sequence[Question], found: Mapping[str, Found]) -> dict[str, JSON]:
    """Whether the store held the gold memory, and if so at which rank the search found it.

    `recall` at k is over the questions with a search, whose store holds the gold memory, and for
    which at least k hits (or all memories) were looked for; `n` counts them. `chance` is what
    recall would be over the same questions with the memories in any order: stores are small.
    """
    there = [question for question in questions if question.name in found]
    ways = Counter(found[question.name].by for question in there)
    defined = [
        question
        for question in there
        if found[question.name].by is not None and found[question.name].searched
    ]
    recall: dict[str, JSON] = {}
    chance: dict[str, JSON] = {}
    for k in KS:
        within = [(question, found[question.name].within(k)) for question in defined]
        known = [(question, hit) for question, hit in within if hit is not None]
        clusters = [question.row.session_id for question, _ in known]
        recall[str(k)] = share([bool(hit) for _, hit in known], clusters)
        by_chance = [Recall(k).chance(1, found[question.name].memories) for question, _ in known]
        chance[str(k)] = round(sum(by_chance) / len(by_chance), 6) if by_chance else None
    return {
        "questions": len(there),
        "nothing_stored": sum(not found[q.name].memories for q in there),
        "not_searched": sum(
            bool(found[q.name].memories) and not found[q.name].searched for q in there
        ),
        "gold_stored": share(
            [found[q.name].by is not None for q in there], [q.row.session_id for q in there]
        ),
        "recognised_by": {way: ways[way] for way in WAYS},
        "recall": recall,
        "chance": chance,
    }


def over_personalization(
    questions: Sequence[Question], said: Mapping[str, Said]
) -> dict[str, JSON]:
    """How often a memory is used in a dimension where it must not be, each share with its `n`.

    `names_a_memory` and `names_the_memory` are over the answers that tell what they used: any
    memory, or the one that the question is about (`task4.found.names_the_memory`). Both rest on
    the answers alone, so a run and its own predictions have equal shares. `memory_in_answer` is
    over all answers: at least half of that memory's words are in the answer.
    """
    there = [question for question in questions if question.name in said]
    tell = [question for question in there if said[question.name].used is not None]

    def names_it(question: Question) -> bool:
        return names_the_memory(
            said[question.name].used or "", question.memory, question.row.history
        )

    def over(group: Sequence[Question], value: Callable[[Question], bool]) -> JSON:
        return share([value(q) for q in group], [q.row.session_id for q in group])

    return {
        "answered": len(there),
        "tell_what_they_used": len(tell),
        "names_a_memory": over(tell, lambda q: bool((said[q.name].used or "").strip())),
        "names_the_memory": over(tell, names_it),
        "memory_in_answer": over(
            there, lambda q: token_overlap(q.memory.text, said[q.name].text or "") >= ALIKE
        ),
    }
