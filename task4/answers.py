"""Reading anyone's answers: what can be used, under which question, and where the rest stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recallbed.corpus.fields import Fields
from recallbed.corpus.jsonl import read_jsonl
from recallbed.corpus.predictions import Tally
from recallbed.errors import DataError
from task4.questions import Question

ANSWERED = "answered"
CAUSES = (ANSWERED, "empty", "faulty", "repeated", "missing")


@dataclass(frozen=True, slots=True)
class Said:
    """One answer: its text, None where `fault` says what is wrong with it.

    `used` is the memory that it says it used, "" for none, None where it doesn't tell.
    """

    line: int
    text: str | None
    used: str | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """The answers of a file by (benchmark_id, query_id), and a tally of lines without one.

    The query_id is None where a row answers its only question without naming it.
    """

    path: Path
    said: dict[tuple[str, str | None], list[Said]] = field(default_factory=dict)
    malformed: Tally = field(default_factory=Tally)
    nameless: Tally = field(default_factory=Tally)
    mended: Counter[str] = field(default_factory=Counter)
    lines: int = 0


@dataclass(frozen=True, slots=True)
class Answers:
    """What a file answers. `of` holds the usable answer of each question, by its name.

    `causes` maps a question's name to one of CAUSES; `others` tallies the answers and lines that
    belong to no question.
    """

    of: Mapping[str, Said]
    causes: Mapping[str, str]
    lines: Mapping[str, tuple[int, ...]]
    faults: Mapping[str, str]
    others: Mapping[str, Tally]


def read_answers(path: Path) -> AnswerFile:
    """Read every row `{benchmark_id, responses: [{query_id, response, used_memory_fact}]}`.

    `answer` will do for `response`; so will a row of one question that has these fields itself.
    Raises DataError for a file that can't be read at all, is empty or a Git LFS pointer.
    """
    found, count = AnswerFile(path), 0

    def malformed(error: DataError) -> None:
        found.malformed.add(error.line or 0, fault=str(error))

    for line, value in read_jsonl(path, found.mended, on_fault=malformed):
        count += 1
        fields = Fields(path, line, found.mended)
        try:
            name = fields.text(value, "benchmark_id")
            members = list(_members(value, fields))
        except DataError as error:
            found.nameless.add(line, fault=str(error))
            continue
        for query_id, where, member in members:
            said = _said(member, fields, where)
            found.said.setdefault((name, query_id), []).append(said)
    return AnswerFile(
        path,
        found.said,
        found.malformed,
        found.nameless,
        found.mended,
        count + found.malformed.count,
    )


def _members(value: Any, fields: Fields) -> Iterator[tuple[str | None, str, Any]]:
    if "responses" not in value:
        yield fields.optional_text(value, "query_id"), "row", value
        return
    for where, member in fields.objects(value, "responses"):
        yield fields.text(member, "query_id", where), where, member


def _said(member: Any, fields: Fields, where: str) -> Said:
    key = "answer" if "response" not in member and "answer" in member else "response"
    try:
        text = "" if member.get(key, "") is None else fields.text(member, key, where)
        used = fields.optional_text(member, "used_memory_fact", where)
    except DataError as error:
        return Said(fields.line, None, fault=str(error))
    told = "used_memory_fact" in member
    return Said(fields.line, text, (used or "") if told else None)


def match(file: AnswerFile, questions: Sequence[Question]) -> Answers:
    """Every question under one cause, and what belongs to none."""
    alone = Counter(question.row.benchmark_id for question in questions)
    left = dict(file.said)
    of: dict[str, Said] = {}
    causes: dict[str, str] = {}
    lines: dict[str, tuple[int, ...]] = {}
    faults: dict[str, str] = {}
    for question in questions:
        name, row = question.name, question.row.benchmark_id
        given = left.pop((row, question.query.query_id), [])
        if alone[row] == 1:
            given = [*given, *left.pop((row, None), [])]
        cause = _cause(given)
        causes[name] = cause
        lines[name] = tuple(one.line for one in given) or (question.row.line,)
        if cause == "faulty":
            faults[name] = given[0].fault
        if cause == ANSWERED:
            of[name] = given[0]
    unknown = Tally()
    for said in left.values():
        unknown.add(*(one.line for one in said))
    others = {"unknown": unknown, "unusable": file.nameless, "malformed": file.malformed}
    return Answers(of, causes, lines, faults, others)


def _cause(given: Sequence[Said]) -> str:
    if not given:
        return "missing"
    if len(given) > 1:
        return "repeated"
    if given[0].text is None:
        return "faulty"
    return ANSWERED if given[0].text.strip() else "empty"
