"""The paper's control: the gold memories are given, so that only their use is measured."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from memory_systems.base import Action, Operation
from memory_systems.registry import register_system
from memory_systems.stored import StoredSystem
from recallbed.corpus.records import Turn


@register_system("gold-memory")
class GoldMemory(StoredSystem):
    """Keeps the memories that are loaded and ignores dialogues."""

    @override
    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        return self.apply([Operation(Action.NOOP)])
