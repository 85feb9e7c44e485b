"""What most systems share: a persistent store, a search by the retriever, an answer from its hits.

A system of one's own needs no more than `ingest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from memory_systems.attempt import Attempt
from memory_systems.base import (
    Action,
    Hit,
    MemorySystem,
    Operation,
    Response,
    SystemContext,
    SystemFailure,
)
from memory_systems.respond import RESPOND, respond_from_hits
from memory_systems.store import HistoryEntry, MemoryStore, StaleMemory
from recallbed.chat_models.base import NOTHING_USED, Usage
from recallbed.chat_models.prompt_file import PromptFile
from recallbed.corpus.records import MemoryItem
from recallbed.errors import UserError
from retrievers.registry import describe_leg


class StoredSystem(MemorySystem):
    """Keeps its memories in a MemoryStore and answers from the best `k` hits.

    At most `budget` tokens of memories are shown for an answer, counted by the chat model.
    `reply_tokens` bounds each reply, a model's reasoning included; `temperature` none leaves it to
    the server.
    """

    prompts: tuple[str, ...] = (RESPOND,)
    """The names of the prompt files in use."""

    def __init__(
        self,
        context: SystemContext,
        k: int = 10,
        budget: int = 2000,
        reply_tokens: int = 2048,
        temperature: float | None = 0.0,
    ) -> None:
        super().__init__(context)
        at_least_one(k=k, budget=budget, reply_tokens=reply_tokens)
        self.k, self.budget = k, budget
        self.reply_tokens, self.temperature = reply_tokens, temperature
        self.store = MemoryStore(context.store)

    def settings(self) -> Mapping[str, Any]:
        """The constructor's, the retriever's, the prompts, and the chat model's context.

        The context is among them because less is shown to a model that holds less.
        """
        chat = self.context.chat
        return {
            **super().settings(),
            "retriever": describe_leg("retriever", self.context.retriever),
            "prompts": [PromptFile.load("memory_systems", name).identity for name in self.prompts],
            "context": chat.context if chat else None,
        }

    def clear(self) -> None:
        """Forget the user: memories, history and ids."""
        self.store.clear(self.user)

    def load(self, items: Sequence[MemoryItem]) -> None:
        """Store `items` in their order. One without an id gets the user's next."""
        self.store.apply(self.user, [Operation(Action.ADD, after=item) for item in items])

    def memories(self) -> list[MemoryItem]:
        """The user's memories, oldest first."""
        return self.store.memories(self.user)

    def history(self) -> list[HistoryEntry]:
        """Every operation on the user's memories, in order."""
        return self.store.history(self.user)

    def apply(
        self, operations: Sequence[Operation], usage: Usage = NOTHING_USED
    ) -> list[Operation]:
        """Do all of `operations` or none, and give them back with the ids they got.

        Raises SystemFailure, with the `usage` of the attempt, where another process changed a
        memory that they rest on.
        """
        try:
            return self.store.apply(self.user, operations)
        except StaleMemory as error:
            raise SystemFailure("memories changed meanwhile", usage) from error

    def search(self, query: str, k: int) -> list[Hit]:
        """The best k by (-score, age); texts are distinct, the oldest stands for its like."""
        with self.attempt() as attempt:
            return list(attempt.search(query, self.memories(), k))

    def respond(self, query: str) -> Response:
        """Answer from the best hits. Raises UserError where there is no chat model."""
        with self.attempt() as attempt:
            hits = attempt.search(query, self.memories(), self.k)
            return respond_from_hits(attempt, query, hits, self.budget)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    @contextmanager
    def attempt(self) -> Iterator[Attempt]:
        """One dialogue or question, through which the model and the retriever are asked.

        What it took is in `usage` afterwards, whether or not it failed.
        """
        made = Attempt(self.context, self.reply_tokens, self.temperature)
        try:
            yield made
        finally:
            self.usage += made.usage


def at_least_one(**settings: int) -> None:
    """Raise UserError for a setting below 1."""
    for name, value in settings.items():
        if value < 1:
            raise UserError(f"{name} must be at least 1, not {value}")
