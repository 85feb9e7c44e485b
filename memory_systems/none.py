"""No memory at all: what an answer is worth without any."""

from __future__ import annotations

from collections.abc import Sequence

from memory_systems.base import Action, Operation, SystemContext
from memory_systems.registry import register_system
from memory_systems.stored import StoredSystem
from recallbed.corpus.records import MemoryItem, Turn


@register_system("none")
class NoMemory(StoredSystem):
    """Keeps nothing and answers without memories."""

    def __init__(
        self,
        context: SystemContext,
        reply_tokens: int = 2048,
        temperature: float | None = 0.0,
    ) -> None:
        super().__init__(context, reply_tokens=reply_tokens, temperature=temperature)

    def clear(self) -> None:
        """There is nothing to forget."""

    def load(self, items: Sequence[MemoryItem]) -> None:
        """Nothing of it is kept."""

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        """One NOOP."""
        return [Operation(Action.NOOP)]

    def memories(self) -> list[MemoryItem]:
        """None, whatever the file of the store holds."""
        return []
