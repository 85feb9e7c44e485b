"""Verdicts on answers, each in its question's dimension."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from judges.options import JudgeOptions
from judges.run import Verdicts, Work, judge_all, plan_all
from judges.utilization import UtilizationJudge
from recallbed.chat_models.base import ChatModel
from recallbed.harness.fingerprint import short_hash
from recallbed.harness.plan import Plan
from task4.answers import Said
from task4.questions import Question

JSON = Any


def judge_answers(
    options: JudgeOptions, questions: Sequence[Question], said: Mapping[str, Said], data: JSON
) -> Verdicts:
    """The verdicts on the answers in `said`, by the questions' names. Raises as `judge_all`.

    `data` tells in the fingerprint which questions these are.
    """
    texts = {question.name: said[question.name].text for question in _asked(questions, said)}
    about = {"data": data, "answers": {"count": len(texts), "hash": short_hash(texts)}}
    return judge_all(options, "task4", about, _work(options, questions, said))


def plan_judging(
    options: JudgeOptions, questions: Sequence[Question], said: Mapping[str, Said]
) -> Mapping[str, Plan]:
    """What `judge_answers` would send."""
    return plan_all(options, _work(options, questions, said))


def _asked(questions: Sequence[Question], said: Mapping[str, Said]) -> list[Question]:
    return [question for question in questions if question.name in said]


def _work(
    options: JudgeOptions, questions: Sequence[Question], said: Mapping[str, Said]
) -> Callable[[ChatModel], Work]:
    asked = _asked(questions, said)

    def make(chat: ChatModel) -> Work:
        kinds = sorted({judged_as(question.dimension) for question in asked})
        judges = {kind: UtilizationJudge(chat, kind, options.votes) for kind in kinds}
        items = {
            question.name: partial(
                judges[judged_as(question.dimension)],
                question.query.text,
                said[question.name].text or "",
                question.memory.text,
                question.others,
            )
            for question in asked
        }
        return Work(items, {kind: dict(judge.settings()) for kind, judge in judges.items()})

    return make


def judged_as(dimension: str) -> str:
    """The judge's dimension: it tells the languages of emotional intelligence apart itself."""
    return "ei" if dimension.startswith("ei_") else dimension
