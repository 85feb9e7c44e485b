"""The twelve tracks of a release: how the rows and the gold of each task are read.

Fields that name the gold are not read: `metadata` of task 2, `stratum` and others of task 3, and in
ability 1 of task 4 the history in `model_input`; that of `audit_context.conversation` is used.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from recallbed.corpus.jsonl import Fields, find_jsonl, new_digest
from recallbed.corpus.records import (
    Evidence,
    Memory,
    MemoryItem,
    Query,
    Task1Row,
    Task2Row,
    Task3File,
    Task3Row,
    Task4Gold,
    Task4Row,
    Turn,
)
from recallbed.corpus.stream import Track, stream


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


def _read_task1(value: dict[str, Any], fields: Fields) -> Task1Row:
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


def _attach_task1(row: Task1Row, value: dict[str, Any], fields: Fields) -> Task1Row:
    gold = fields.take(value, "gold", dict)
    return replace(row, gold=read_items(fields, gold, "memory_items", "gold"))


TASK1 = Track("task1", _read_task1, _attach_task1)


def _read_task2(value: dict[str, Any], fields: Fields) -> Task2Row:
    body = fields.take(value, "input", dict)
    return Task2Row(
        benchmark_id=fields.text(value, "benchmark_id"),
        session_id=fields.text(value, "session_id"),
        old_dialogue=read_turns(fields, body, "old_dialogue", "input"),
        new_dialogue=read_turns(fields, body, "new_dialogue", "input"),
        memories=read_items(fields, body, "memory", "input"),
        line=fields.line,
    )


def _attach_task2(row: Task2Row, value: dict[str, Any], fields: Fields) -> Task2Row:
    gold = fields.take(value, "gold", dict)
    return replace(row, gold=read_items(fields, gold, "answer", "gold"))


TASK2 = Track("task2", _read_task2, _attach_task2)


def load_task3(folder: Path, size: int) -> Task3File:
    """Read `folder/task3/d<size>`, both files, into rows in file order.

    Only `benchmark_id`, `session_id`, `input.query` and each candidate's `memory_id`, `value` and
    `label` are taken from the input, and only the selected memory from the reference. Everything
    else (`stratum`, `metadata`, `dialogue`, ...) is not read: some of it names the gold.

    Raises DataError, with file and line, for a fault in either file.
    """
    track = task3_track(size)
    repairs: Counter[str] = Counter()
    digests = (new_digest(), new_digest())
    rows = sorted(stream(folder, track, repairs, digests=digests), key=lambda row: row.line)
    both = new_digest()
    for digest in digests:
        both.update(digest.digest())
    path = find_jsonl(folder / track.name, "model_input")
    assert path is not None
    repeated = sum(len(set(row.memory_ids)) < len(row.memory_ids) for row in rows)
    return Task3File(path, size, tuple(rows), both.hexdigest(), repairs, repeated)


def task3_track(size: int) -> Track[Task3Row]:
    """The track `task3/d<size>`."""
    return Track(f"task3/d{size}", _read_input, _place_gold)


def _read_input(value: dict[str, Any], fields: Fields) -> Task3Row:
    benchmark_id = fields.text(value, "benchmark_id")
    body = fields.take(value, "input", dict)
    candidates = fields.take(body, "candidate_memories", list, "input")
    if not candidates:
        raise fields.fault(f"the pool of `{benchmark_id}` is empty", "A pool needs its gold memory")
    memories, ids = [], []
    for position, candidate in enumerate(candidates):
        where = f"input.candidate_memories[{position}]"
        ids.append(fields.text(candidate, "memory_id", where))
        memories.append(
            Memory(
                fields.text(candidate, "value", where),
                fields.optional_text(candidate, "label", where),
            )
        )
    return Task3Row(
        benchmark_id=benchmark_id,
        session_id=fields.optional_text(value, "session_id") or benchmark_id,
        query=fields.text(body, "query", "input"),
        candidates=tuple(memories),
        memory_ids=tuple(ids),
        line=fields.line,
    )


def _place_gold(row: Task3Row, value: dict[str, Any], fields: Fields) -> Task3Row:
    gold = fields.take(fields.take(value, "gold", dict), "selected_memory", dict, "gold")
    text = fields.text(gold, "value", "gold.selected_memory")
    places = [i for i, memory in enumerate(row.candidates) if memory.text == text]
    if len(places) != 1:
        raise fields.fault(
            f"the gold memory of `{row.benchmark_id}` is"
            f" {'missing from' if not places else f'{len(places)} times in'} its pool",
            "A pool holds its gold exactly once",
        )
    return replace(row, gold=places[0])


ABILITIES = (1, 2, 3, 4, 5)


def _read_task4(value: dict[str, Any], fields: Fields, ability: int) -> Task4Row:
    body = fields.take(value, "input", dict)
    context = fields.take(body, "audit_context", dict, "input")
    queries = tuple(
        Query(
            fields.text(query, "query_id", name),
            fields.text(query, "query", name),
            fields.optional_text(query, "category", name),
        )
        for name, query in fields.objects(body, "queries", "input")
    )
    if not queries:
        raise fields.fault("`input.queries` is empty", "A row needs a question")
    return Task4Row(
        benchmark_id=fields.text(value, "benchmark_id"),
        session_id=fields.text(value, "session_id"),
        ability=ability,
        queries=queries,
        history=read_turns(fields, context, "conversation", "input.audit_context"),
        line=fields.line,
    )


def _attach_task4(row: Task4Row, value: dict[str, Any], fields: Fields) -> Task4Row:
    gold = fields.take(value, "gold", dict)
    selected = fields.take(gold, "selected_memory", dict, "gold")
    return replace(
        row,
        gold=Task4Gold(
            selected=read_item(fields, selected, "gold.selected_memory"),
            memories=read_items(fields, gold, "extracted_memory", "gold"),
        ),
    )


def task4_track(ability: int) -> Track[Task4Row]:
    """The track `task4_ability<ability>`."""
    return Track(f"task4_ability{ability}", partial(_read_task4, ability=ability), _attach_task4)


RELEASED_SIZES = (100, 300, 500, 700, 1000)
NAMES = (
    "task1",
    "task2",
    *(f"task3/d{size}" for size in RELEASED_SIZES),
    *(f"task4_ability{ability}" for ability in ABILITIES),
)


def track(name: str) -> Track[Any] | None:
    """The track called `name`; None for an unknown name. Task 3 may have any size."""
    if match := re.fullmatch(r"task3/d([1-9]\d*)", name):
        return task3_track(int(match[1]))
    known: dict[str, Track[Any]] = {"task1": TASK1, "task2": TASK2}
    known.update({f"task4_ability{ability}": task4_track(ability) for ability in ABILITIES})
    return known.get(name)


def tracks_in(folder: Path) -> tuple[list[Track[Any]], list[str]]:
    """The tracks that a split's folder holds, and the names of the folders that are no track."""
    names = []
    for place in sorted(p for p in folder.iterdir() if p.is_dir()):
        inner = [p for p in sorted(place.iterdir()) if p.is_dir()] if place.name == "task3" else []
        names += [f"task3/{p.name}" for p in inner] or [place.name]
    found = [(name, track(name)) for name in names]
    held = [t for name, t in found if t and find_jsonl(folder / name, "model_input")]
    order = {name: i for i, name in enumerate(NAMES)}
    held.sort(key=lambda t: (order.get(t.name, len(order)), t.name))
    return held, [name for name in names if name not in {t.name for t in held}]
