"""The paper's control: the given memories are the memory, so that their use alone is measured."""

from __future__ import annotations

from collections.abc import Sequence

from corpus.records import Turn
from memory.base import Action, Operation
from memory.registry import register_system
from memory.stored import StoredSystem


@register_system("gold-memory")
class GoldMemory(StoredSystem):
    """Has what is loaded, and learns nothing from dialogues."""

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        """One NOOP."""
        return self.apply([Operation(Action.NOOP)])
