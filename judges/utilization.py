"""Judges of answers: whether a memory was used (task 3), and six dimensions of use (task 4).

Of the dimensions five are yes or no; emotional intelligence is three grades from 1 to 5, asked for
in Chinese if the question is Chinese and in English otherwise. AlpsBench defines the dimensions
(arXiv 2603.26680, section 2.4); the wording of the prompts is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, Field, model_validator
from typing_extensions import override

from indexes.language import language_of
from judges.prompt import Number, YesOrNo, is_yes
from judges.verdicts import MISSING_GRADE, Grades, Judged
from judges.voting import Ballot, Judge, JudgeQuestion, Vote, lower_median, majority
from recallbed.chat_models.base import ChatModel
from recallbed.chat_models.prompts import harmless_line
from recallbed.errors import UserError

DIMENSIONS = ("pa", "pf_general", "pf_interaction", "vra", "cf", "ei")
"""Persona awareness; preference following, of content and of manner; virtual-reality awareness;
constraint following; emotional intelligence."""


class UsedMemoryJudge(Judge[[str, str, str, str], bool]):
    """Judges whether a selected memory was used in an answer or its reason.

    `votes` is the number of votes per item. A blank memory is unused and needs no call.
    """

    def __init__(self, chat: ChatModel, votes: int = 1) -> None:
        super().__init__(Ballot(chat, votes, YesOrNo, majority), "used_memory.v1")

    @override
    def question(
        self, query: str, answer: str, reason: str, memory_text: str
    ) -> JudgeQuestion[bool]:
        [prompt] = self._prompts
        if not memory_text.strip():
            return JudgeQuestion((), lambda answers: Judged(False, prompt=prompt.identity))
        material = {
            "USER'S QUESTION": query,
            "SELECTED MEMORY": memory_text,
            "ANSWER": answer,
            "REASON GIVEN FOR IT": reason,
        }
        return self._ballot.question(prompt, prompt.messages(material), is_yes)


class _EmotionReply(BaseModel):
    evidence: str = Field(description="What in the answer decides the three grades, briefly.")
    resonation: Number | None = Field(default=None, ge=1, le=5)
    expression: Number | None = Field(default=None, ge=1, le=5)
    reception: Number | None = Field(default=None, ge=1, le=5)

    @model_validator(mode="after")
    def _has_a_grade(self) -> Self:
        if self.resonation is None and self.expression is None and self.reception is None:
            raise ValueError("no grade is given")
        return self


class UtilizationJudge(Judge[[str, str, str, Sequence[str]], Any]):
    """Judges answers in one of DIMENSIONS: True for met, or Grades for `ei`.

    `memory_text` is the memory that matters; `others` are further memories, as context.
    With several votes the majority decides, and for each grade the lower median of the votes that
    give it; a grade that no vote gives is missing and counted. Raises UserError for an unknown
    dimension.
    """

    def __init__(self, chat: ChatModel, dimension: str, votes: int = 1) -> None:
        if dimension not in DIMENSIONS:
            raise UserError(f"unknown dimension `{dimension}`. Known are {', '.join(DIMENSIONS)}")
        self.dimension = dimension
        if dimension == "ei":
            ballot: Ballot[Any] = Ballot(chat, votes, _EmotionReply, _median_grades)
            super().__init__(ballot, "ei_en.v1", "ei_zh.v1")
        else:
            super().__init__(Ballot(chat, votes, YesOrNo, majority), f"{dimension}.v1")

    @override
    def question(
        self, query: str, answer: str, memory_text: str, others: Sequence[str] = ()
    ) -> JudgeQuestion[Any]:
        chinese = self.dimension == "ei" and language_of(query) == "chinese"
        prompt = self._prompts[-1 if chinese else 0]
        material = {
            "USER'S QUESTION": query,
            "MEMORY THAT MATTERS HERE": memory_text,
            "OTHER MEMORIES OF THE USER": "\n".join(f"- {harmless_line(text)}" for text in others),
            "ASSISTANT'S ANSWER": answer,
        }
        vote: Vote[Any] = _grades if self.dimension == "ei" else is_yes
        return self._ballot.question(prompt, prompt.messages(material), vote)


def _grades(reply: _EmotionReply, repairs: Counter[str]) -> Grades:
    grades = Grades(reply.resonation, reply.expression, reply.reception)
    if missing := 3 - len(grades.given):
        repairs[MISSING_GRADE] += missing
    return grades


def _median_grades(votes: Sequence[Grades]) -> Grades:
    def median(grades: list[int | None]) -> int | None:
        given = [grade for grade in grades if grade is not None]
        return lower_median(given) if given else None

    return Grades(
        median([vote.resonation for vote in votes]),
        median([vote.expression for vote in votes]),
        median([vote.reception for vote in votes]),
    )
