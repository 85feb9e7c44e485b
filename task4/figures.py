"""Figures of answers by dimension, each share with the number of answers it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.metrics import Recall
from analysis.statistics import Interval, mean_interval, rounded
from judges.summary import JudgeSummary, rate
from judges.verdicts import Judged, Verdict
from memory_scoring.gold_search import KS, SAME_FROM, WAYS, GoldSearch, names_the_memory
from memory_scoring.questions import DIMENSIONS, UserQuestion
from memory_scoring.similarity import token_overlap
from recallbed.corpus.predictions import Matching
from task4.answers import GivenAnswer

JSON = Any
GRADES = ("resonation", "expression", "reception")


@dataclass(frozen=True, slots=True)
class Share:
    """A mean with its 95 % interval over sessions, and the number of values."""

    mean: float
    low: float
    high: float
    method: str
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.4f}  95 % [{self.low:.4f}, {self.high:.4f}]  n {self.n}"


def _share(found: Interval | None, n: int) -> Share | None:
    return None if found is None else Share(found.mean, found.low, found.high, found.method, n)


def share(values: Sequence[float], questions: Sequence[UserQuestion]) -> Share | None:
    """Return the mean of one value per question; None without questions.

    Intervals draw whole sessions, since the questions of a row depend on each other.
    """
    found = mean_interval(values, [question.row.session_id for question in questions])
    return _share(found, len(values))


def by_dimension(questions: Sequence[UserQuestion]) -> dict[str, list[UserQuestion]]:
    """Return the questions of each dimension that has any, in the order of DIMENSIONS."""
    found = {name: [q for q in questions if q.dimension == name] for name in DIMENSIONS}
    return {name: group for name, group in found.items() if group}


@dataclass(frozen=True, slots=True)
class DimensionVerdicts:
    """The verdicts of one dimension: a score, or for emotional intelligence the mean grades.

    `grades` also has their `mean`; `missing_grades` counts grades that the judge left out.
    """

    summary: JudgeSummary
    grades: Mapping[str, Share | None] | None = None
    missing_grades: int = 0

    @property
    def shares(self) -> Mapping[str, Share | None]:
        """What is printed: the grades, or the score."""
        if self.grades is not None:
            return self.grades
        return {"score": _share(self.summary.score, self.summary.judged)}

    def to_json(self) -> dict[str, JSON]:
        """Return the counts, and the score or the grades."""
        counts = self.summary.as_json()
        keys = ("asked", "judged", "coverage", "unjudged", "voted", "disagreement")
        found = {key: counts[key] for key in keys}
        if self.grades is None:
            score = self.summary.score
            return {**found, "score": None if score is None else score.to_json()}
        grades = {name: one and rounded(asdict(one)) for name, one in self.grades.items()}
        return {**found, "grades": grades, "missing_grades": self.missing_grades}


def dimension_verdicts(
    dimension: str, questions: Sequence[UserQuestion], verdicts: Mapping[str, Verdict[Any]]
) -> DimensionVerdicts:
    """Return the score over the judged questions. Intervals draw whole sessions."""
    asked = [question for question in questions if question.name in verdicts]
    found = [verdicts[question.name] for question in asked]
    clusters = [question.row.session_id for question in asked]
    if not dimension.startswith("ei_"):
        return DimensionVerdicts(rate(found, float, clusters))
    given = [verdict.value.given for verdict in found if isinstance(verdict, Judged)]
    return DimensionVerdicts(
        rate(found, None, clusters),
        {name: _grade(name, found, clusters) for name in (*GRADES, "mean")},
        sum(len(GRADES) - len(grades) for grades in given),
    )


def _grade(name: str, verdicts: Sequence[Verdict[Any]], clusters: Sequence[str]) -> Share | None:
    """One grade, 1 to 5, over the answers that have it."""
    kept = [
        (verdict, cluster)
        for verdict, cluster in zip(verdicts, clusters, strict=True)
        if isinstance(verdict, Judged) and getattr(verdict.value, name) is not None
    ]
    summary = rate(
        [verdict for verdict, _ in kept],
        lambda grades: float(getattr(grades, name)),
        [cluster for _, cluster in kept],
        bounds=(1.0, 5.0),
    )
    return _share(summary.score, summary.judged)


@dataclass(frozen=True, slots=True)
class RetrievalFigures:
    """Whether the store contained the gold memory, and at which rank the search found it.

    `recall` at k is over the questions with a search, whose store contains the gold memory, and for
    which at least k hits (or all memories) were looked for. `chance` is recall over the same
    questions with the memories in random order: stores are small.
    """

    questions: int
    nothing_stored: int
    not_searched: int
    gold_stored: Share | None
    recognised_by: Mapping[str, int]
    recall: Mapping[str, Share | None]
    chance: Mapping[str, float | None]

    def to_json(self) -> dict[str, JSON]:
        """Return counts and shares."""
        found: dict[str, JSON] = rounded(asdict(self))
        return found

    def __str__(self) -> str:
        if self.gold_stored is None:
            return "no answers of a run"
        parts = [f"gold memory in the store {self.gold_stored.mean:.4f} of {self.questions}"]
        for k, found in self.recall.items():
            if found is not None:
                chance = f"(chance {self.chance[k]:.4f})"
                parts.append(f"recall@{k} {found.mean:.4f} of {found.n} {chance}")
        for count, name in (
            (self.nothing_stored, "nothing stored"),
            (self.not_searched, "not searched"),
        ):
            parts += [f"{name} {count}"] if count else []
        return "; ".join(parts)


def retrieval_figures(
    questions: Sequence[UserQuestion], searches: Mapping[str, GoldSearch]
) -> RetrievalFigures:
    """Return the figures over the questions that a run searched for."""
    asked = [question for question in questions if question.name in searches]
    found = [searches[question.name] for question in asked]
    ways = Counter(one.by for one in found)
    recall: dict[str, Share | None] = {}
    chance: dict[str, float | None] = {}
    for k in KS:
        known = [
            (question, one, hit)
            for question, one in zip(asked, found, strict=True)
            if one.by is not None and one.searched and (hit := one.within(k)) is not None
        ]
        recall[str(k)] = share([hit for _, _, hit in known], [question for question, _, _ in known])
        values = [Recall(k).chance(1, one.memories) for _, one, _ in known]
        chance[str(k)] = sum(values) / len(values) if values else None
    return RetrievalFigures(
        questions=len(asked),
        nothing_stored=sum(not one.memories for one in found),
        not_searched=sum(bool(one.memories) and not one.searched for one in found),
        gold_stored=share([one.by is not None for one in found], asked),
        recognised_by={way: ways[way] for way in WAYS},
        recall=recall,
        chance=chance,
    )


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """How often a memory is used in a dimension in which it must not be.

    `names_a_memory` and `names_the_memory` are over the answers that say what they used: any
    memory, or the one that the question is about. Both need the answers only, so a run and its own
    predictions have equal shares. `memory_in_answer` is over all answers: at least half of that
    memory's tokens are in the answer.
    """

    answered: int
    tell_what_they_used: int
    names_a_memory: Share | None
    names_the_memory: Share | None
    memory_in_answer: Share | None

    @property
    def shares(self) -> dict[str, Share | None]:
        """The three shares by name."""
        names = ("names_a_memory", "names_the_memory", "memory_in_answer")
        return {name: getattr(self, name) for name in names}

    def to_json(self) -> dict[str, JSON]:
        """Return counts and shares."""
        found: dict[str, JSON] = rounded(asdict(self))
        return found


def memory_use(questions: Sequence[UserQuestion], answers: Mapping[str, GivenAnswer]) -> MemoryUse:
    """Return how often the answers use a memory."""
    answered = [question for question in questions if question.name in answers]
    telling = [question for question in answered if answers[question.name].used is not None]

    def over(
        group: Sequence[UserQuestion], value: Callable[[UserQuestion, GivenAnswer], bool]
    ) -> Share | None:
        return share([value(question, answers[question.name]) for question in group], group)

    return MemoryUse(
        answered=len(answered),
        tell_what_they_used=len(telling),
        names_a_memory=over(telling, lambda _, answer: bool((answer.used or "").strip())),
        names_the_memory=over(
            telling, lambda q, answer: names_the_memory(answer.used or "", q.memory, q.row.history)
        ),
        memory_in_answer=over(
            answered, lambda q, answer: token_overlap(q.memory.text, answer.text) >= SAME_FROM
        ),
    )


@dataclass(frozen=True, slots=True)
class Grounding:
    """The proxy of AlpsBench's public scorer for one ability.

    A row is grounded if its `used_memory_fact` equals, contains or is part of the selected memory.
    A row that was not answered is not grounded. Of several questions of a row the first counts.
    """

    rows: int
    answered: int
    accuracy: float

    def __str__(self) -> str:
        return f"{self.accuracy:.4f} of {self.rows} rows, {self.answered} of them answered"


def grounding(
    questions: Sequence[UserQuestion], matching: Matching[GivenAnswer]
) -> dict[str, Grounding]:
    """Return the proxy by ability, as `ability1`."""
    firsts: dict[str, UserQuestion] = {}
    for question in questions:
        firsts.setdefault(question.row.benchmark_id, question)
    found: dict[str, Grounding] = {}
    for ability in sorted({question.row.ability for question in firsts.values()}):
        mine = [question for question in firsts.values() if question.row.ability == ability]
        given = [(q.gold.selected.text, matching.of[q.name].value) for q in mine]
        hits = sum(one is not None and is_grounded(one.used or "", gold) for gold, one in given)
        answered = sum(one is not None and bool(one.text.strip()) for _, one in given)
        found[f"ability{ability}"] = Grounding(len(mine), answered, hits / len(mine))
    return found


def is_grounded(used: str, gold: str) -> bool:
    """Return whether one of two texts that are not blank contains the other.

    In lower case, with runs of white space as one space.
    """
    one, other = (" ".join(text.lower().split()) for text in (used, gold))
    return bool(one and other) and (one in other or other in one)
