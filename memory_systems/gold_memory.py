"""The paper's control: the given memories are the memory, so that their use alone is measured."""

from __future__ import annotations

from collections.abc import Sequence

from memory_systems.base import Action, Operation
from memory_systems.registry import register_system
from memory_systems.stored import StoredSystem
from recallbed.corpus.records import Turn


@register_system("gold-memory")
class GoldMemory(StoredSystem):
    """Has what is loaded, and learns nothing from dialogues."""

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        """One NOOP."""
        return self.apply([Operation(Action.NOOP)])
