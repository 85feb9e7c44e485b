"""Memories and operations as JSON, with the names that the release gives to their fields."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from memory_systems.base import Operation
from recallbed.corpus.records import MemoryItem
from recallbed.harness.clean_text import clean_text

JSON = Any


def item_json(item: MemoryItem) -> dict[str, JSON]:
    """A structured memory as in the release's references, which `corpus.items.read_item` reads."""
    evidence = item.evidence
    return {
        "memory_id": item.id,
        "type": item.type,
        "label": item.label,
        "value": item.text,
        "confidence": item.confidence,
        "time_scope": item.time_scope,
        "emotion": item.emotion,
        "preference_attitude": item.attitude,
        "evidence": evidence
        and {
            "session_id": evidence.session_id,
            "utterance_index": list(evidence.utterances),
            "text": evidence.text,
        },
    }


def operations_json(operations: Sequence[Operation]) -> list[dict[str, JSON]]:
    """Operations in order; an item that isn't there is null."""
    return [
        {
            "action": operation.action.value,
            "before": operation.before and item_json(operation.before),
            "after": operation.after and item_json(operation.after),
        }
        for operation in operations
    ]


def writable(value: JSON) -> JSON:
    """`value` so that it can be written as UTF-8 JSON, whatever a model or a user's class said.

    Lone surrogates become U+FFFD, numbers that aren't finite null.
    """
    if isinstance(value, str):
        return clean_text(value, Counter())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {writable(key): writable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [writable(inner) for inner in value]
    return value
