"""The report on answers of a run folder or a file: as JSON and as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.statistics import rounded
from judges.options import JudgeOptions
from judges.run import Verdicts
from memory_scoring.gold_search import GoldSearch
from memory_scoring.questions import UNUSED, Task4Rows, UserQuestion, questions_of, read_task4
from memory_scoring.run_answers import read_run_answers
from recallbed.corpus.layout import SAMPLE_NOTE
from recallbed.corpus.predictions import MatchCounts, Matching, NameLookup, describe_tallies
from task4.answers import (
    GivenAnswer,
    answer_files,
    judge_answers,
    match_answers,
    read_answers,
)
from task4.figures import (
    DimensionVerdicts,
    Grounding,
    MemoryUse,
    RetrievalFigures,
    by_dimension,
    dimension_verdicts,
    grounding,
    memory_use,
    retrieval_figures,
)

JSON = Any
NO_JUDGE = "no judge was named: there are no verdicts (give --judge-model)"
NO_HITS = "predictions have no hits: retrieval cannot be reported (give the run folder)"
NO_USE = "no answer says what it used (used_memory_fact)"
DIMENSION_NAMES = {
    "pa": "persona awareness",
    "pf_general": "preference following, general",
    "pf_interaction": "preference following, interaction",
    "vra": "virtual-reality awareness",
    "cf": "constraint following",
    "ei_en": "emotional intelligence, English",
    "ei_cn": "emotional intelligence, Chinese",
    "ei_other": "emotional intelligence, other languages",
}


@dataclass(frozen=True, slots=True)
class AnsweredQuestions:
    """The questions of a split, what a file answers and, for a run folder, what its run found."""

    rows: Task4Rows
    questions: Sequence[UserQuestion]
    matching: Matching[GivenAnswer]
    searches: Mapping[str, GoldSearch] | None


def read_answered(
    sources: Sequence[Path], data: Path | None, split: str, abilities: Iterable[int] = ()
) -> AnsweredQuestions:
    """Read `sources`, run folders, files or folders of official files, and a split's references.

    Without `abilities`, those are asked that the files answer. Raise DataError for faulty data, and
    UserError if no question is answered.
    """
    rows = read_task4(data, split, abilities, with_gold=True)
    questions = questions_of(rows.rows.values())
    file = read_answers(sources, questions)
    if not list(abilities):
        lookup = NameLookup({q.row.benchmark_id for q in questions})
        named = {lookup.find(prediction.benchmark_id) for prediction in file.predictions}
        answered = {q.row.ability for q in questions if q.row.benchmark_id in named}
        questions = [q for q in questions if q.row.ability in answered]
    matching = match_answers(file, questions)
    searches: dict[str, GoldSearch] | None = None
    if all(path.is_dir() for path in answer_files(sources)):
        by_name = {question.name: question for question in questions}
        answers = [one for run in sources for one in read_run_answers(run, by_name).items()]
        searches = {name: one.search for name, one in answers if one.search is not None}
    return AnsweredQuestions(rows, questions, matching, searches)


@dataclass(frozen=True, slots=True)
class DimensionReport:
    """One dimension: its answers by cause, verdicts and retrieval."""

    counts: MatchCounts
    verdicts: DimensionVerdicts | None
    retrieval: RetrievalFigures | None

    def to_json(self) -> dict[str, JSON]:
        """Return counts, `judge` and `retrieval`."""
        return {
            **self.counts.to_json(),
            "judge": None if self.verdicts is None else self.verdicts.to_json(),
            "retrieval": None if self.retrieval is None else self.retrieval.to_json(),
        }

    def lines(self, name: str) -> Iterator[str]:
        """Return the dimension as lines of text."""
        yield f"{name}: {self.counts.answered} of {self.counts.asked} answered"
        yield from describe_tallies(self.counts.causes)
        if self.verdicts is not None:
            summary = self.verdicts.summary
            for grade, found in self.verdicts.shares.items():
                yield f"  {grade:<24} {'-' if found is None else found}"
            causes = f"; unjudged: {summary.causes()}" if summary.unjudged else ""
            yield f"  judged {summary.judged} of {summary.asked}{causes}"
            if summary.disagreement is not None:
                yield f"  votes differ in {summary.disagreement:.4f} of {summary.voted}"
        if self.retrieval is not None:
            yield f"  {self.retrieval}"


@dataclass(frozen=True, slots=True)
class UtilizationReport:
    """The scores of a file or run; `missing` says what could not be reported, and why."""

    answered: AnsweredQuestions
    dimensions: Mapping[str, DimensionReport]
    retrieval: RetrievalFigures | None
    unused: Mapping[str, MemoryUse]
    grounding: Mapping[str, Grounding]
    verdicts: Verdicts | None

    @property
    def missing(self) -> list[str]:
        """What is not in the report, and what to give for it."""
        silent = all(one.used is None for one in self.answered.matching.values.values())
        return [
            text
            for text, lacks in (
                (NO_JUDGE, self.verdicts is None),
                (NO_HITS, self.retrieval is None),
                (NO_USE, silent),
            )
            if lacks
        ]

    def to_json(self) -> dict[str, JSON]:
        """Return what --json prints."""
        data = self.answered.rows.data
        return {
            **self.answered.matching.header(),
            "split": data["split"],
            "sample": data["sample"],
            "dimensions": {name: one.to_json() for name, one in self.dimensions.items()},
            "retrieval": None if self.retrieval is None else self.retrieval.to_json(),
            "over_personalization": {name: one.to_json() for name, one in self.unused.items()},
            "grounding_proxy": {name: rounded(asdict(one)) for name, one in self.grounding.items()},
            "judge": None if self.verdicts is None else dict(self.verdicts.facts),
            "missing": self.missing,
        }

    def lines(self) -> Iterator[str]:
        """Return the report as lines of text."""
        data, file = self.answered.rows.data, self.answered.matching.file
        if data["sample"]:
            yield SAMPLE_NOTE
        yield f"{file.source}: {file.lines} lines, task 4 of split {data['split']}"
        for name, one in self.dimensions.items():
            yield from one.lines(DIMENSION_NAMES[name])
        if self.retrieval is not None:
            yield f"all dimensions: {self.retrieval}"
        for name, use in self.unused.items():
            yield f"memory used although it must not be, {DIMENSION_NAMES[name]}"
            for key, found in use.shares.items():
                yield f"  {key.replace('_', ' '):<24} {'-' if found is None else found}"
        yield from (f"grounding proxy, {name}: {one}" for name, one in self.grounding.items())
        yield from self.answered.matching.unmatched_lines()
        yield from (f"missing: {what}" for what in self.missing)


def score_answered(
    answered: AnsweredQuestions, judge: JudgeOptions | None = None
) -> UtilizationReport:
    """Score answers. Raise UserError if a judge could judge nothing."""
    matching, verdicts = answered.matching, None
    if judge is not None:
        data = {key: answered.rows.data[key] for key in ("split", "tracks")}
        verdicts = judge_answers(judge, answered.questions, matching.values, data)

    def retrieval(questions: Sequence[UserQuestion]) -> RetrievalFigures | None:
        if answered.searches is None:
            return None
        return retrieval_figures(questions, answered.searches)

    groups = by_dimension(answered.questions)
    return UtilizationReport(
        answered=answered,
        dimensions={
            name: DimensionReport(
                matching.counts([question.name for question in group]),
                None if verdicts is None else dimension_verdicts(name, group, verdicts.of),
                retrieval(group),
            )
            for name, group in groups.items()
        },
        retrieval=retrieval(answered.questions),
        unused={
            name: memory_use(group, matching.values)
            for name, group in groups.items()
            if name in UNUSED
        },
        grounding=grounding(answered.questions, matching),
        verdicts=verdicts,
    )
