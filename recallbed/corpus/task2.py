"""Task 2, update: memories and a new dialogue in, the updated memories as gold.

`metadata` is left behind: it names the memory that is to be changed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recallbed.corpus.fields import Fields
from recallbed.corpus.items import read_items, read_turns
from recallbed.corpus.records import Task2Row
from recallbed.corpus.stream import Track


def _read(value: dict[str, Any], fields: Fields) -> Task2Row:
    body = fields.take(value, "input", dict)
    return Task2Row(
        benchmark_id=fields.text(value, "benchmark_id"),
        session_id=fields.text(value, "session_id"),
        old_dialogue=read_turns(fields, body, "old_dialogue", "input"),
        new_dialogue=read_turns(fields, body, "new_dialogue", "input"),
        memories=read_items(fields, body, "memory", "input"),
        line=fields.line,
    )


def _attach(row: Task2Row, value: dict[str, Any], fields: Fields) -> Task2Row:
    gold = fields.take(value, "gold", dict)
    return replace(row, gold=read_items(fields, gold, "answer", "gold"))


TASK2 = Track("task2", _read, _attach)
