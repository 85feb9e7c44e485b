"""Judges of answers: whether a memory was used (task 3), and six dimensions of use (task 4).

Of the dimensions five are yes or no; emotional intelligence is three grades from 1 to 5, asked for
in Chinese if the question is Chinese and in English otherwise. AlpsBench defines the dimensions
(arXiv 2603.26680, section 2.4); the wording of the prompts is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, Field, model_validator

from indexes.language import language_of
from judges.prompt import JudgePrompt, Number, YesOrNo, is_yes, read_prompt
from judges.verdicts import MISSING_GRADE, Grades, Judged, Verdict
from judges.voting import Ballot, JudgeQuestion, Vote, ask_judge, lower_median, majority
from recallbed.chat_models.base import ChatModel
from recallbed.chat_models.fence import one_line
from recallbed.errors import UserError

DIMENSIONS = ("pa", "pf_general", "pf_interaction", "vra", "cf", "ei")
"""Persona awareness; preference following, of content and of manner; virtual-reality awareness;
constraint following; emotional intelligence."""
_VERSION = "v1"


class UsedMemoryJudge:
    """Judges whether a selected memory was used in an answer or its reason.

    `votes` is the number of votes per item (`judges.voting`). Threads may share an instance.
    """

    def __init__(self, chat: ChatModel, votes: int = 1) -> None:
        self._ballot: Ballot[bool] = Ballot(chat, votes, YesOrNo, majority)
        self._prompt = read_prompt("used_memory.v1")

    def question(
        self, query: str, answer: str, reason: str, memory_text: str
    ) -> JudgeQuestion[bool]:
        """Return the question for a batch. A blank memory is unused and needs no call."""
        if not memory_text.strip():
            return JudgeQuestion((), lambda answers: Judged(False, prompt=self._prompt.identity))
        material = {
            "USER'S QUESTION": query,
            "SELECTED MEMORY": memory_text,
            "ANSWER": answer,
            "REASON GIVEN FOR IT": reason,
        }
        return self._ballot.question(self._prompt, self._prompt.messages(material), is_yes)

    def __call__(self, query: str, answer: str, reason: str, memory_text: str) -> Verdict[bool]:
        """Return the verdict, True for used."""
        return ask_judge(self._ballot.chat, self.question(query, answer, reason, memory_text))

    def settings(self) -> Mapping[str, Any]:
        """Return all settings that can change a verdict."""
        return {**self._ballot.settings(), "prompts": [self._prompt.identity]}


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


class UtilizationJudge:
    """Judges answers in one of DIMENSIONS: True for met, or Grades for `ei`.

    With several votes the majority decides, and for each grade the lower median of the votes that
    give it; a grade that no vote gives is missing and counted. Threads may share an instance.
    Raises UserError for an unknown dimension.
    """

    def __init__(self, chat: ChatModel, dimension: str, votes: int = 1) -> None:
        if dimension not in DIMENSIONS:
            raise UserError(f"unknown dimension `{dimension}`. Known are {', '.join(DIMENSIONS)}")
        self.dimension = dimension
        names = ["ei_en", "ei_zh"] if dimension == "ei" else [dimension]
        self._prompts = {name: read_prompt(f"{name}.{_VERSION}") for name in names}
        self._ballot: Ballot[Any] = (
            Ballot(chat, votes, _EmotionReply, _median_grades)
            if dimension == "ei"
            else Ballot(chat, votes, YesOrNo, majority)
        )

    def question(
        self, query: str, answer: str, memory_text: str, others: Sequence[str] = ()
    ) -> JudgeQuestion[Any]:
        """Return the question for a batch (`judges.voting.ask_all`).

        `memory_text` is the memory that matters; `others` are further memories, as context.
        """
        prompt = self._prompt(query)
        material = {
            "USER'S QUESTION": query,
            "MEMORY THAT MATTERS HERE": memory_text,
            "OTHER MEMORIES OF THE USER": "\n".join(f"- {one_line(text)}" for text in others),
            "ASSISTANT'S ANSWER": answer,
        }
        vote: Vote[Any] = _grades if self.dimension == "ei" else is_yes
        return self._ballot.question(prompt, prompt.messages(material), vote)

    def __call__(
        self, query: str, answer: str, memory_text: str, others: Sequence[str] = ()
    ) -> Verdict[Any]:
        """Return the verdict: Judged[bool], or Judged[Grades] for `ei`."""
        return ask_judge(self._ballot.chat, self.question(query, answer, memory_text, others))

    def settings(self) -> Mapping[str, Any]:
        """Return all settings that can change a verdict."""
        prompts = [prompt.identity for prompt in self._prompts.values()]
        return {**self._ballot.settings(), "prompts": prompts}

    def _prompt(self, query: str) -> JudgePrompt:
        if self.dimension != "ei":
            return self._prompts[self.dimension]
        return self._prompts["ei_zh" if language_of(query) == "chinese" else "ei_en"]


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
