"""Memory system without a model: every user turn is a memory."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from memory_systems.base import Action, Operation
from memory_systems.registry import register_system
from memory_systems.stored import StoredSystem
from recallbed.corpus.records import Evidence, MemoryItem, Turn


@register_system("turns")
class Turns(StoredSystem):
    """Stores what the user said, turn by turn and word for word."""

    @override
    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        known = {item.text: item for item in reversed(self.memories())}
        operations = []
        for number, turn in enumerate(dialogue):
            if turn.role != "user" or not turn.text.strip():
                continue
            if turn.text in known:
                same = known[turn.text]
                operations.append(Operation(Action.NOOP, same, same))
            else:
                item = MemoryItem(turn.text, evidence=Evidence("", (number,), turn.text))
                known[turn.text] = item
                operations.append(Operation(Action.ADD, after=item))
        return self.apply(operations)
