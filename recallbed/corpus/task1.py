"""Task 1, extraction: a dialogue in, the memories it holds as gold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recallbed.corpus.fields import Fields
from recallbed.corpus.items import read_items, read_turns
from recallbed.corpus.records import Task1Row, Turn
from recallbed.corpus.stream import Track


def _read(value: dict[str, Any], fields: Fields) -> Task1Row:
    body = fields.take(value, "input", dict)
    dialogue: list[Turn] = []
    for name, session in fields.objects(body, "sessions", "input"):
        dialogue += read_turns(fields, session, "turns", name)
    return Task1Row(
        benchmark_id=fields.text(value, "benchmark_id"),
        session_id=fields.text(value, "session_id"),
        dialogue=tuple(dialogue),
        line=fields.line,
    )


def _attach(row: Task1Row, value: dict[str, Any], fields: Fields) -> Task1Row:
    gold = fields.take(value, "gold", dict)
    return replace(row, gold=read_items(fields, gold, "memory_items", "gold"))


TASK1 = Track("task1", _read, _attach)
