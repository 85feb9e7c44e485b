"""Updates without a model: none, or one replacement chosen by a retriever.

The summary says that both use no model. They are floors: a system that reads the dialogue must do
better than no change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory_systems.base import Action, Hit, Operation
from memory_systems.stored import StoredSystem
from recallbed.corpus.records import Turn


class Copy(StoredSystem):
    """Leaves the memories as they are, whatever the dialogue says."""

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        """Nothing."""
        return []


class Replace(StoredSystem):
    """Puts a user turn in the place of the one memory that the retriever finds nearest to it.

    Every user turn is a query over the memories. The turn and the memory with the highest score of
    all are taken; of equal ones the earliest turn and the oldest memory. The memory gets the turn's
    text and keeps its other fields.
    """

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        """Return one UPDATE; nothing without memories or user turns."""
        turns = dict.fromkeys(turn.text for turn in dialogue if turn.role == "user")
        items = self.memories()
        best: tuple[str, Hit] | None = None
        with self.attempt() as attempt:
            for text in turns:
                for hit in attempt.search(text, items, 1):
                    if best is None or hit.score > best[1].score:
                        best = text, hit
        if best is None:
            return []
        text, hit = best
        return self.apply([Operation(Action.UPDATE, hit.item, replace(hit.item, text=text))])
