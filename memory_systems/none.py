"""Control without memory."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from memory_systems.base import Action, Operation, SystemContext
from memory_systems.registry import register_system
from memory_systems.stored import StoredSystem
from recallbed.corpus.records import MemoryItem, Turn


@register_system("none")
class NoMemory(StoredSystem):
    """Stores nothing and answers without memories."""

    def __init__(
        self,
        context: SystemContext,
        reply_tokens: int = 2048,
        temperature: float | None = 0.0,
    ) -> None:
        super().__init__(context, reply_tokens=reply_tokens, temperature=temperature)

    @override
    def clear(self) -> None:
        pass

    @override
    def load(self, items: Sequence[MemoryItem]) -> None:
        pass

    @override
    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        return [Operation(Action.NOOP)]

    @override
    def memories(self) -> list[MemoryItem]:
        return []
