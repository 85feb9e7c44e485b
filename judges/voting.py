"""Votes: a question that a model is asked n times, and the verdict of its replies.

A verdict needs valid replies to more than half of the votes, and is decided from those. Too few or
tied votes are unjudged, never guessed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from judges.prompt import JudgePrompt, read_prompt
from judges.verdicts import TIED, Judged, Unjudged, Verdict
from recallbed.chat_models.base import ChatModel, Failure, Message, Reply, Request, Usage
from recallbed.errors import UserError
from recallbed.harness.failures import Failures, with_reason

if TYPE_CHECKING:
    from pydantic import BaseModel

P = ParamSpec("P")
T = TypeVar("T")
Vote = Callable[[Any, Counter[str]], T]
VOTE_TEMPERATURE = 0.7
"""Temperature of each of several votes; that of a single vote is 0."""
MAX_TOKENS = 2048
"""A verdict is short, but reasoning counts too, and a truncated reply is unjudged."""


@dataclass(frozen=True, slots=True)
class JudgeQuestion(Generic[T]):
    """The requests for a verdict, one per vote, and how the answers are read.

    `read` takes one answer per request, in order. Without requests there is nothing to ask.
    """

    requests: tuple[Request, ...]
    read: Callable[[Sequence[Reply | Failure]], Verdict[T]]


def ask_all(chat: ChatModel, questions: Sequence[JudgeQuestion[T]]) -> list[Verdict[T]]:
    """Ask many questions in one batch; return one verdict each, in order.

    Raise BudgetReached, and UserError such as for a wrong key.
    """
    answers = chat.complete_all([r for question in questions for r in question.requests])
    verdicts, at = [], 0
    for question in questions:
        verdicts.append(question.read(answers[at : at + len(question.requests)]))
        at += len(question.requests)
    return verdicts


@dataclass(frozen=True, slots=True)
class Ballot(Generic[T]):
    """How one kind of question is asked and decided.

    `decide` returns the verdict of the valid votes, None for a tie.
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
        """0 for a single vote; several votes at 0 would all be equal."""
        return 0.0 if self.votes == 1 else VOTE_TEMPERATURE

    def settings(self) -> dict[str, Any]:
        """Return the settings that can change a verdict, without prompts."""
        return {
            "model": dict(self.chat.settings()),
            "votes": self.votes,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }

    def question(
        self, prompt: JudgePrompt, messages: tuple[Message, ...], vote: Vote[T]
    ) -> JudgeQuestion[T]:
        """Return the question with these messages.

        `vote` returns the vote of a parsed reply and counts its repairs.
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
        valid = [one for one in votes if one is not None]
        raw = tuple(answer.text for answer in answers)
        usage = sum((answer.usage for answer in answers), Usage())
        if 2 * len(valid) <= len(answers):
            found = Failures(failed)
            [(most, _)] = found.counts.most_common(1)
            cause = with_reason(most, found.reasons.get(most, ""))
            return Unjudged(cause, raw, usage, tuple(votes), self.chat.name, prompt)
        value = self.decide(valid)
        if value is None:
            return Unjudged(TIED, raw, usage, tuple(votes), self.chat.name, prompt)
        return Judged(value, raw, tuple(votes), usage, self.chat.name, prompt, dict(repairs))


class Judge(ABC, Generic[P, T]):
    """Base of judges. Threads may share an instance."""

    def __init__(self, ballot: Ballot[T], *prompts: str) -> None:
        self._ballot, self._prompts = ballot, [read_prompt(name) for name in prompts]

    @abstractmethod
    def question(self, *args: P.args, **kwargs: P.kwargs) -> JudgeQuestion[T]:
        """Return the question about one item, for `ask_all`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Verdict[T]:
        """Return the verdict on one item. Raise as `ask_all` does."""
        return ask_all(self._ballot.chat, [self.question(*args, **kwargs)])[0]

    def settings(self) -> Mapping[str, Any]:
        """Return all settings that can change a verdict."""
        prompts = [prompt.identity for prompt in self._prompts]
        return {**self._ballot.settings(), "prompts": prompts}


def majority(votes: Sequence[T]) -> T | None:
    """Return the value of more than half of the votes; None if there is none."""
    [(value, count)] = Counter(votes).most_common(1)
    return value if 2 * count > len(votes) else None


def lower_median(votes: Sequence[int]) -> int:
    """Return the median, of two the lower one, so that it is always a given grade."""
    return sorted(votes)[(len(votes) - 1) // 2]
