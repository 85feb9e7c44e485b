"""Reading what several tracks share: turns and structured memories."""

from __future__ import annotations

from typing import Any

from recallbed.corpus.fields import Fields
from recallbed.corpus.records import Evidence, MemoryItem, Turn


def read_turns(fields: Fields, value: Any, field: str, where: str) -> tuple[Turn, ...]:
    """`value[field]`, a list of `{role, text}`."""
    return tuple(
        Turn(fields.text(turn, "role", name), fields.text(turn, "text", name))
        for name, turn in fields.objects(value, field, where)
    )


def read_items(fields: Fields, value: Any, field: str, where: str) -> tuple[MemoryItem, ...]:
    """`value[field]`, a list of structured memories."""
    return tuple(
        read_item(fields, item, name) for name, item in fields.objects(value, field, where)
    )


def read_item(fields: Fields, item: Any, where: str) -> MemoryItem:
    """One structured memory: `value`, and what is there of the rest; `reasoning` is not read."""
    return MemoryItem(
        text=fields.text(item, "value", where),
        id=fields.optional_text(item, "memory_id", where),
        label=fields.optional_text(item, "label", where),
        type=fields.optional_text(item, "type", where),
        confidence=fields.number(item, "confidence", where),
        time_scope=fields.optional_text(item, "time_scope", where),
        attitude=fields.optional_text(item, "preference_attitude", where),
        emotion=fields.optional_text(item, "emotion", where),
        evidence=_read_evidence(fields, item.get("evidence"), f"{where}.evidence"),
    )


def _read_evidence(fields: Fields, value: Any, where: str) -> Evidence | None:
    if value is None:
        return None
    session = fields.optional_text(value, "session_id", where) or ""
    found = value.get("utterance_index") if isinstance(value, dict) else None
    numbers: list[Any] = found if isinstance(found, list) else [] if found is None else [found]
    if any(isinstance(n, bool) or not isinstance(n, int) for n in numbers):
        raise fields.fault(f"field `{where}.utterance_index` must be a number or a list of them")
    return Evidence(session, tuple(numbers), fields.text(value, "text", where))
