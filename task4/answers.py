"""Answers to the questions of task 4: reading a file, and verdicts on what it holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from judges.options import JudgeOptions
from judges.run import Verdicts, Work, judge_all, plan_all
from judges.utilization import UtilizationJudge
from memory_scoring.questions import UserQuestion
from memory_scoring.run_answers import answers_identity
from recallbed.chat_models.base import ChatModel
from recallbed.corpus.jsonl import Fields
from recallbed.corpus.predictions import (
    ANSWERED,
    NULL_OR_EMPTY,
    Matching,
    NameLookup,
    PredictionFile,
    joined,
    match_predictions,
    official_files,
    read_prediction_file,
)
from recallbed.harness.plan import Plan
from recallbed.harness.run_folder import PREDICTIONS

JSON = Any


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """One answer; `used` is the memory that it claims to use, "" for none, None if it is silent."""

    text: str
    used: str | None = None


_OFFICIAL = re.compile(r"task4_ability[1-5]\.predictions\.jsonl(\.gz)?")


def answer_files(sources: Sequence[Path]) -> list[Path]:
    """Return files and run folders, for a folder of official files those of task 4 in it."""
    return [path for source in sources for path in official_files(source, _OFFICIAL)]


def read_answers(
    sources: Sequence[Path], questions: Sequence[UserQuestion]
) -> PredictionFile[GivenAnswer]:
    """Read rows `{benchmark_id, responses: [{query_id, response, used_memory_fact}]}`.

    `answer` is accepted for `response`. Official rows, which have the fields of one response and no
    `query_id`, answer the first question of their row. Raise as `read_prediction_file` does.
    """
    first: dict[str, str] = {}
    for question in questions:
        first.setdefault(question.row.benchmark_id, question.query.query_id)
    lookup = NameLookup(first)

    def members(benchmark_id: str, row: Any, fields: Fields) -> Iterator[tuple[str, str, Any]]:
        row_name = lookup.find(benchmark_id) or benchmark_id
        if "responses" not in row:
            query_id = fields.optional_text(row, "query_id")
            name = first.get(row_name, "") if query_id is None else query_id
            yield f"{row_name} {name.strip()}", "", row
            return
        for place, member in fields.objects(row, "responses"):
            yield f"{row_name} {fields.text(member, 'query_id', place).strip()}", place, member

    files = [
        (
            path / PREDICTIONS if path.is_dir() else path,
            read_prediction_file(path, _answer, members),
        )
        for path in answer_files(sources)
    ]
    return joined(", ".join(map(str, sources)), files)


def _answer(member: Any, fields: Fields, place: str) -> GivenAnswer:
    key = "answer" if "response" not in member and "answer" in member else "response"
    text = "" if member.get(key, "") is None else fields.text(member, key, place)
    if "used_memory_fact" not in member:
        return GivenAnswer(text)
    return GivenAnswer(text, fields.optional_text(member, "used_memory_fact", place) or "")


def match_answers(
    file: PredictionFile[GivenAnswer], questions: Sequence[UserQuestion]
) -> Matching[GivenAnswer]:
    """Match answers with questions. Raise UserError if no question is answered."""

    def judge(name: str, answer: GivenAnswer) -> tuple[str, str]:
        return (ANSWERED if answer.text.strip() else NULL_OR_EMPTY), ""

    return match_predictions(file, {one.name: one.row.line for one in questions}, judge)


def judge_answers(
    options: JudgeOptions,
    questions: Sequence[UserQuestion],
    answers: Mapping[str, GivenAnswer],
    data: JSON,
) -> Verdicts:
    """Return the verdicts on `answers`, by the questions' names. Raise as `judge_all` does.

    `data` identifies the questions in the fingerprint.
    """
    texts = {one.name: answers[one.name].text for one in questions if one.name in answers}
    about = {"data": data, "answers": answers_identity(texts)}
    return judge_all(options, "task4", about, partial(_work, options, questions, answers))


def plan_verdicts(
    options: JudgeOptions, questions: Sequence[UserQuestion], answers: Mapping[str, GivenAnswer]
) -> Mapping[str, Plan]:
    """Return what `judge_answers` would send."""
    return plan_all(options, partial(_work, options, questions, answers))


def _work(
    options: JudgeOptions,
    questions: Sequence[UserQuestion],
    answers: Mapping[str, GivenAnswer],
    chat: ChatModel,
) -> Work:
    asked = [question for question in questions if question.name in answers]
    kinds = sorted({judged_as(question.dimension) for question in asked})
    judges = {kind: UtilizationJudge(chat, kind, options.votes) for kind in kinds}
    items = {
        question.name: partial(
            judges[judged_as(question.dimension)],
            question.query.text,
            answers[question.name].text,
            question.memory.text,
            question.others,
        )
        for question in asked
    }
    return Work(items, {kind: dict(judge.settings()) for kind, judge in judges.items()})


def judged_as(dimension: str) -> str:
    """Return the judge's dimension: it finds the language of emotional intelligence itself."""
    return "ei" if dimension.startswith("ei_") else dimension
