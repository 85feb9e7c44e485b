"""Loading task 3: queries, candidates and gold, and nothing that would give the gold away."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from recallbed.corpus.fields import Fields
from recallbed.corpus.jsonl import find_jsonl, new_digest
from recallbed.corpus.records import Memory, Task3File, Task3Row
from recallbed.corpus.stream import Track, stream


def load_task3(folder: Path, size: int) -> Task3File:
    """Read `folder/task3/d<size>`, both files, into rows in file order.

    Only `benchmark_id`, `session_id`, `input.query` and each candidate's `memory_id`, `value` and
    `label` are taken from the input, and only the selected memory from the reference. Everything
    else (`stratum`, `metadata`, `dialogue`, ...) is left behind: some of it names the gold.

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
            f"the gold memory of `{row.benchmark_id}` stands"
            f" {'nowhere' if not places else f'{len(places)} times'} in its pool",
            "A pool holds its gold exactly once",
        )
    return replace(row, gold=places[0])
