"""Inputs of tasks 1, 2 and 4 as pools: a field of the row may name the memory that is asked for.

The pool is the list of memories of the row, the gold the one that the row is about: the one to be
changed (task 2), or the selected one (tasks 1 and 4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.audit_data import AuditRow, scalar_fields
from analysis.field_shortcuts import row_field_shortcuts
from analysis.shortcuts import Shortcut
from recallbed.corpus.jsonl import find_jsonl, read_jsonl
from recallbed.corpus.records import Memory

TASKS = ("task1", "task2", *(f"task4_ability{number}" for number in range(1, 6)))
_UPDATED = "_updated"


def other_task_shortcuts(folder: Path) -> Iterator[tuple[tuple[AuditRow, ...], list[Shortcut]]]:
    """Yield, for each other task of a split, its rows as pools and the shortcuts by their fields.

    Lists of objects, such as dialogues, do not count as fields. A row that does not say which
    memory it is about is left out. Raise DataError for lines that are not JSON.
    """
    for task in TASKS:
        places = [find_jsonl(folder / task, name) for name in ("model_input", "reference_output")]
        if None in places:
            continue
        rows = tuple(_rows(*(place for place in places if place is not None)))
        shortcuts = [
            replace(one, name=f"{task}: {one.name}", group="other tasks", by=f"{one.by} in {task}")
            for one in row_field_shortcuts(rows)
        ]
        if shortcuts:
            yield rows, shortcuts


def _rows(inputs: Path, references: Path) -> Iterator[AuditRow]:
    golds = {
        name: value.get("gold")
        for _, value in read_jsonl(references, Counter())
        if isinstance(name := value.get("benchmark_id"), str)
    }
    for line, value in read_jsonl(inputs, Counter()):
        name, gold = value.get("benchmark_id"), None
        if isinstance(name, str):
            gold = golds.get(name)
        body = value.get("input")
        if not (isinstance(gold, dict) and isinstance(body, dict)):
            continue
        items, chosen = _pool(gold, body)
        if chosen is None or len(items) < 2:
            continue
        ids = tuple(str(item.get("memory_id")) for item in items)
        yield AuditRow(
            query_id=str(name),
            session=str(value.get("session_id")),
            query="",
            memories=tuple(Memory(str(item.get("value")), item.get("label")) for item in items),
            golds=(chosen,),
            line=line,
            ids=ids if all("memory_id" in item for item in items) else None,
            fields={
                path: found for path, found in scalar_fields(value).items() if "[]" not in path
            },
        )


def _pool(
    gold: Mapping[str, Any], body: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], int | None]:
    """The memories of a row, and the place of the one that it is about."""
    answer = gold.get("answer")
    if isinstance(answer, list):
        items = _objects(body.get("memory"))
        names = [str(item.get("memory_id")) for item in _objects(answer)]
        wanted = [name.removesuffix(_UPDATED) for name in names if name.endswith(_UPDATED)]
        places = [i for i, item in enumerate(items) if item.get("memory_id") in wanted]
        return items, places[0] if len(places) == 1 else None
    items = _objects(gold.get("extracted_memory", gold.get("memory_items")))
    selected = gold.get("selected_memory")
    key, value = "memory_id", gold.get("selected_memory_id")
    if isinstance(selected, dict):
        key, value = "value", selected.get("value")
    places = [i for i, item in enumerate(items) if value is not None and item.get(key) == value]
    return items, places[0] if len(places) == 1 else None


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
