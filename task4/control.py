"""The paper's control: the model is shown the question together with the gold memories.

Nothing else in this task hands gold to a system, and this does it for `gold-memory` alone: a class
of anyone's, whatever it is called, goes the other way.
"""

from __future__ import annotations

from memory_systems.base import MemorySystem
from recallbed.corpus.records import MemoryItem, Task4Row

CONTROL = "gold-memory"


def load_gold(system: MemorySystem, row: Task4Row) -> None:
    """Put the row's gold memories into the system, in the place of its history."""
    system.load(gold_memories(row))


def gold_memories(row: Task4Row) -> list[MemoryItem]:
    """All that the reference read from the history; the selected one first if it isn't among them.

    The paper shows "the ground-truth memories", in the plural. Raises ValueError without reference.
    """
    if row.gold is None:
        raise ValueError(f"{row.benchmark_id} has no reference")
    known = {item.text for item in row.gold.memories}
    missing = [] if row.gold.selected.text in known else [row.gold.selected]
    return [*missing, *row.gold.memories]
