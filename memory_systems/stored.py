"""Shared base class of systems with a persistent store, which answer from search results.

A subclass needs only `ingest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from memory_systems.attempt import RESPOND, Attempt
from memory_systems.base import (
    Action,
    Hit,
    MemorySystem,
    Operation,
    Response,
    SystemContext,
    SystemFailure,
)
from memory_systems.budget import best_within
from memory_systems.store import HistoryEntry, MemoryStore, StaleMemory
from recallbed.chat_models.base import NOTHING_USED, Usage
from recallbed.chat_models.prompts import PromptFile
from recallbed.corpus.records import MemoryItem
from recallbed.errors import UserError
from retrievers.registry import describe_leg


class StoredSystem(MemorySystem):
    """Keeps its memories in a MemoryStore and answers from the best `k` hits.

    At most `budget` tokens of memories are shown for an answer, counted by the chat model.
    `reply_tokens` limits each reply, a model's reasoning included. With `temperature` None the
    server decides.
    """

    prompts: tuple[str, ...] = (RESPOND,)
    """Names of the prompt files in use."""

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

    @override
    def settings(self) -> Mapping[str, Any]:
        # The context is part of them: a smaller one shows the model fewer memories.
        chat = self.context.chat
        return {
            **super().settings(),
            "retriever": describe_leg("retriever", self.context.retriever),
            "prompts": [PromptFile.load("memory_systems", name).identity for name in self.prompts],
            "context": chat.context if chat else None,
        }

    @override
    def clear(self) -> None:
        self.store.clear(self.user)

    @override
    def load(self, items: Sequence[MemoryItem]) -> None:
        self.store.apply(self.user, [Operation(Action.ADD, after=item) for item in items])

    @override
    def memories(self) -> list[MemoryItem]:
        return self.store.memories(self.user)

    def history(self) -> list[HistoryEntry]:
        """Return every operation on the user's memories, in order."""
        return self.store.history(self.user)

    def apply(
        self, operations: Sequence[Operation], usage: Usage = NOTHING_USED
    ) -> list[Operation]:
        """Apply all of `operations` or none; return them with the ids they got.

        Raise SystemFailure, with the `usage` of the attempt, if another process has changed a
        memory that they concern.
        """
        try:
            return self.store.apply(self.user, operations)
        except StaleMemory as error:
            raise SystemFailure("memories changed meanwhile", usage) from error

    @override
    def search(self, query: str, k: int) -> list[Hit]:
        with self.attempt() as attempt:
            return list(attempt.search(query, self.memories(), k))

    @override
    def respond(self, query: str) -> Response:
        with self.attempt() as attempt:
            hits = attempt.search(query, self.memories(), self.k)
            texts = [hit.item.text for hit in hits]
            return attempt.respond(query, texts, self.budget, best_within, hits)

    @override
    def close(self) -> None:
        self.store.close()

    @contextmanager
    def attempt(self) -> Iterator[Attempt]:
        """Open an attempt, whose usage is added to `usage` afterwards even if it failed."""
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
