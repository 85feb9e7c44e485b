"""One question put to a model n times, and the verdict of the n replies.

A verdict needs replies to more than half of the votes; the rules below then look at those that
came. Too few or tied votes are unjudged, never guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from judges.prompt import JudgePrompt
from judges.verdicts import TIED, Judged, Unjudged, Verdict
from recallbed.chat_models.base import ChatModel, Failure, Message, Reply, Request, Usage
from recallbed.errors import UserError
from recallbed.harness.failures import Failures, with_reason

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")
Vote = Callable[[Any, Counter[str]], T]
VOTE_TEMPERATURE = 0.7
"""The temperature of each of several votes; a single vote has 0."""
MAX_TOKENS = 2048
"""A verdict is short, but a reasoning model's thoughts count too, and a cut reply is unjudged."""


@dataclass(frozen=True, slots=True)
class JudgeQuestion(Generic[T]):
    """What is sent to learn a verdict, one request a vote, and how the answers are read.

    `read` takes one answer a request, in order. No requests: there is nothing to ask.
    """

    requests: tuple[Request, ...]
    read: Callable[[Sequence[Reply | Failure]], Verdict[T]]


def ask_judge(chat: ChatModel, question: JudgeQuestion[T]) -> Verdict[T]:
    """Put one question. Raise what the model raises for a user: BudgetReached, a wrong key."""
    return ask_all(chat, [question])[0]


def ask_all(chat: ChatModel, questions: Sequence[JudgeQuestion[T]]) -> list[Verdict[T]]:
    """Put many questions in one batch; one verdict each, in order."""
    answers = chat.complete_all([r for question in questions for r in question.requests])
    verdicts, at = [], 0
    for question in questions:
        verdicts.append(question.read(answers[at : at + len(question.requests)]))
        at += len(question.requests)
    return verdicts


@dataclass(frozen=True, slots=True)
class Ballot(Generic[T]):
    """How one kind of question is put and decided.

    `decide` makes the verdict of the votes that came, None for a tie.
    """

    chat: ChatModel
    votes: int
    schema: type[BaseModel]
    decide: Callable[[Sequence[T]], T | None]
    max_tokens: int = MAX_TOKENS

    def __post_init__(self) -> None:
        if self.votes < 1:
            raise UserError(f"votes {self.votes}: must be at least 1")

    @property
    def temperature(self) -> float:
        """Several votes at 0 would be one."""
        return 0.0 if self.votes == 1 else VOTE_TEMPERATURE

    def settings(self) -> dict[str, Any]:
        """What of this can change a verdict, without prompts."""
        return {
            "model": dict(self.chat.settings()),
            "votes": self.votes,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }

    def question(
        self, prompt: JudgePrompt, messages: tuple[Message, ...], vote: Vote[T]
    ) -> JudgeQuestion[T]:
        """The question that these messages put.

        `vote` makes a vote of a parsed reply, and counts the repairs.
        """
        requests = tuple(
            Request(messages, self.schema, self.max_tokens, self.temperature, sample=sample)
            for sample in range(self.votes)
        )
        return JudgeQuestion(requests, partial(self._read, prompt.identity, vote))

    def _read(self, prompt: str, vote: Vote[T], answers: Sequence[Reply | Failure]) -> Verdict[T]:
        repairs: Counter[str] = Counter()
        votes: list[T | None] = []
        failed: list[str] = []
        for answer in answers:
            if isinstance(answer, Failure):
                failed.append(answer.error)
                votes.append(None)
            else:
                repairs.update(answer.repairs)
                votes.append(vote(answer.parsed, repairs))
        came = [one for one in votes if one is not None]
        raw = tuple(answer.text for answer in answers)
        usage = sum((answer.usage for answer in answers), Usage())
        if 2 * len(came) <= len(answers):
            found = Failures(failed)
            [(most, _)] = found.counts.most_common(1)
            cause = with_reason(most, found.reasons.get(most, ""))
            return Unjudged(cause, raw, usage, tuple(votes), self.chat.name, prompt)
        value = self.decide(came)
        if value is None:
            return Unjudged(TIED, raw, usage, tuple(votes), self.chat.name, prompt)
        return Judged(value, raw, tuple(votes), usage, self.chat.name, prompt, dict(repairs))


def majority(votes: Sequence[T]) -> T | None:
    """Return the value of more than half of the votes; None if there is none."""
    [(value, count)] = Counter(votes).most_common(1)
    return value if 2 * count > len(votes) else None


def lower_median(votes: Sequence[int]) -> int:
    """Return the median, the lower of two: a grade that a vote gave."""
    return sorted(votes)[(len(votes) - 1) // 2]
