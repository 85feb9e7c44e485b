"""No memory at all: what an answer is worth without any."""

from __future__ import annotations

from collections.abc import Sequence

from corpus.records import MemoryItem, Turn
from memory.base import Action, Operation, SystemContext
from memory.registry import register_system
from memory.stored import StoredSystem


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
