"""What a run keeps of a dialogue that was read: the memories after it, and how they came about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from memory_systems.base import Action, MemorySystem, Operation
from memory_systems.item_json import item_json, operations_json

JSON = Any


def ingest_result(system: MemorySystem, operations: Sequence[Operation]) -> dict[str, JSON]:
    """`memory_items` as they are now, oldest first, and the `operations` of the dialogue."""
    return {
        "memory_items": [item_json(item) for item in system.memories()],
        "operations": operations_json(operations),
        "unknown_labels": system.unknown_labels,
    }


def summarise_ingests(results: Sequence[JSON]) -> dict[str, JSON]:
    """Sums over all results: memories at the end, operations by action, labels of nothing."""
    actions = Counter(one["action"] for result in results for one in result["operations"])
    return {
        "memories": sum(len(result["memory_items"]) for result in results),
        "operations": {action.value: actions[action.value] for action in Action},
        "unknown_labels": sum(result["unknown_labels"] for result in results),
    }
