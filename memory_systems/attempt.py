"""One dialogue or question: searches, requests and answers, with their usage and failures."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator

from analysis.metrics import display_order
from memory_systems.base import Hit, Response, SystemContext, SystemFailure, as_memory
from memory_systems.budget import LineTokens, room
from recallbed.chat_models.base import NOTHING_USED, ChatModel, Failure, Message, Request, Usage
from recallbed.chat_models.prompts import PromptFile, fence_for, harmless, harmless_line
from recallbed.corpus.records import MemoryItem
from recallbed.errors import UserError
from retrievers.base import NotScored, Retriever

T = TypeVar("T", bound=BaseModel)
RESPOND = "respond.v1"
_LOCKS: dict[int, threading.Lock] = {}
_FINDING = threading.Lock()


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    return text.strip()


class Answer(BaseModel):
    """The reply to the prompt. A used memory that is null is none."""

    answer: Annotated[str, AfterValidator(_not_blank)]
    used_memory_fact: Annotated[str, BeforeValidator(lambda value: value or "")]


class Attempt:
    """Asks the model and the retriever, sums `usage`, and turns failures into SystemFailure.

    A failure carries the usage so far. BudgetReached and UserError pass through.
    """

    def __init__(
        self, context: SystemContext, reply_tokens: int, temperature: float | None = 0.0
    ) -> None:
        self.context, self.reply_tokens, self.temperature = context, reply_tokens, temperature
        self.usage = Usage()

    @property
    def chat(self) -> ChatModel:
        """The chat model; raises UserError if none was named."""
        if self.context.chat is None:
            raise UserError(
                "this needs a chat model. Pass --chat-model, such as --chat-model openai:MODEL"
            )
        return self.context.chat

    def search(self, query: str, items: Sequence[MemoryItem], k: int) -> tuple[Hit, ...]:
        """Return the best `k` of `items`, as `rank` does."""
        try:
            found = rank(self.context.retriever, query, items, k)
        except SystemFailure as failure:
            raise SystemFailure(failure.cause, self.usage + failure.usage) from failure
        self.usage += found.usage
        return found.hits

    def ask(self, messages: Sequence[Message], schema: type[T]) -> T:
        """Return the model's answer as an instance of `schema`."""
        [answer] = self.ask_all([messages], schema)
        return answer

    def ask_all(self, prompts: Sequence[Sequence[Message]], schema: type[T]) -> list[T]:
        """Return the answers to independent prompts, which are sent together."""
        seed = None if self.temperature == 0 else self.context.seed
        requests = [
            Request(tuple(messages), schema, self.reply_tokens, self.temperature, seed)
            for messages in prompts
        ]
        replies = self.chat.complete_all(requests)
        self.usage = sum((reply.usage for reply in replies), self.usage)
        answers = []
        for reply in replies:
            if isinstance(reply, Failure):
                raise SystemFailure(reply.error, self.usage)
            assert isinstance(reply.parsed, schema)
            answers.append(reply.parsed)
        return answers

    def respond(
        self,
        query: str,
        texts: Sequence[str],
        budget: int,
        fit: Callable[[Sequence[int], int], Iterable[int]],
        hits: tuple[Hit, ...] = (),
    ) -> Response:
        """Answer from those of `texts` that `fit` chooses within `budget` tokens.

        The texts of `hits` come first. `fit` maps the tokens of each text and the tokens available
        to positions.
        """
        lines = [f"- {harmless_line(text)}" for text in texts]
        shown: list[int] = []
        if lines:
            costs = [*map(LineTokens(self.chat), lines)]
            available = room(self.chat, _messages(query, []), self.reply_tokens, budget)
            shown = list(fit(costs, available))
        reply = self.ask(_messages(query, [lines[i] for i in shown]), Answer)
        # If nothing was shown, nothing can have been used.
        used = " ".join(reply.used_memory_fact.split()) if shown else ""
        unseen = tuple(i for i in range(len(hits)) if i not in shown)
        return Response(reply.answer, used, hits, self.usage, len(lines) - len(shown), unseen)


def _messages(query: str, lines: Sequence[str]) -> tuple[Message, ...]:
    fence = fence_for([query, *lines])
    data = fence.put("\n".join(lines) or "(no notes)")
    return PromptFile.load("memory_systems", RESPOND).fill(
        rule=fence.rule, data=data, query=harmless(query)
    )


@dataclass(frozen=True, slots=True)
class Found:
    """The best memories, and the usage of the retriever's own model calls."""

    hits: tuple[Hit, ...] = ()
    usage: Usage = NOTHING_USED


def rank(retriever: Retriever, query: str, items: Sequence[MemoryItem], k: int) -> Found:
    """Return the best `k` of `items` (oldest first) by (-score, age).

    Of equal texts only the oldest is returned. Raise SystemFailure if the query cannot be scored;
    UserError and MemoryError pass through.
    """
    oldest: dict[str, MemoryItem] = {}
    for item in items:
        oldest.setdefault(item.text, item)
    distinct = list(oldest.values())
    if not distinct:
        return Found()
    pool = [as_memory(item) for item in distinct]
    with _lock_of(retriever):
        [scored] = retriever.results([query], [pool])
    if isinstance(scored, NotScored):
        raise SystemFailure(scored.cause, scored.usage)
    scores = np.asarray(scored.scores, np.float32)
    hits = tuple(Hit(distinct[i], float(scores[i])) for i in display_order(scores, max(k, 0)))
    return Found(hits, scored.usage)


def _lock_of(retriever: Retriever) -> threading.Lock:
    """Return the lock of this instance: systems in several threads share one retriever."""
    with _FINDING:
        key = id(retriever)
        if key not in _LOCKS:
            _LOCKS[key] = threading.Lock()
            weakref.finalize(retriever, _LOCKS.pop, key, None)
        return _LOCKS[key]
