"""Loading task 3: queries, candidates and gold, and nothing that would give the gold away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from corpus.errors import DataError
from corpus.fields import Fields
from corpus.jsonl import find_jsonl, new_digest, read_jsonl
from corpus.records import Memory, Task3File, Task3Row


def load_task3(folder: Path, size: int) -> Task3File:
    """Read `folder/task3/d<size>`, both files, into rows in file order.

    Only `benchmark_id`, `session_id`, `input.query` and each candidate's `memory_id`, `value` and
    `label` are taken from the input, and only the selected memory from the reference. Everything
    else (`stratum`, `metadata`, `dialogue`, ...) is left behind: some of it names the gold.

    Raises DataError, with file and line, for a fault in either file.
    """
    place = folder / "task3" / f"d{size}"
    inputs = find_jsonl(place, "model_input")
    if inputs is None:
        raise DataError("no model_input.jsonl here", path=place)
    repairs: Counter[str] = Counter()
    digest = new_digest()
    rows: dict[str, Task3Row] = {}
    repeated = 0
    for line, value in read_jsonl(inputs, repairs, digest):
        row = _read_input(value, Fields(inputs, line, repairs))
        if row.benchmark_id in rows:
            raise DataError(
                f"benchmark_id `{row.benchmark_id}` stands twice,"
                f" first on line {rows[row.benchmark_id].line}",
                path=inputs,
                line=line,
                todo="Keep one of the two rows",
            )
        repeated += len(set(row.memory_ids)) < len(row.memory_ids)
        rows[row.benchmark_id] = row
    references = find_jsonl(place, "reference_output")
    if references is not None:
        rows = _with_gold(rows, inputs, references, repairs, digest)
    return Task3File(inputs, size, tuple(rows.values()), digest.hexdigest(), repairs, repeated)


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
        gold=None,
        line=fields.line,
    )


def _with_gold(
    rows: dict[str, Task3Row], inputs: Path, references: Path, repairs: Counter[str], digest: Any
) -> dict[str, Task3Row]:
    done: dict[str, int] = {}
    filled = dict(rows)
    for line, value in read_jsonl(references, repairs, digest):
        fields = Fields(references, line, repairs)
        benchmark_id = fields.text(value, "benchmark_id")
        if benchmark_id in done:
            raise fields.fault(
                f"benchmark_id `{benchmark_id}` stands twice, first on line {done[benchmark_id]}",
                "Keep one of the two rows",
            )
        if benchmark_id not in rows:
            raise fields.fault(f"benchmark_id `{benchmark_id}` has no row in {inputs.name}")
        done[benchmark_id] = line
        filled[benchmark_id] = _place_gold(rows[benchmark_id], value, fields)
    for benchmark_id, row in rows.items():
        if benchmark_id not in done:
            raise DataError(
                f"benchmark_id `{benchmark_id}` has no row in {references.name}",
                path=inputs,
                line=row.line,
            )
    return filled


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
    return Task3Row(
        row.benchmark_id,
        row.session_id,
        row.query,
        row.candidates,
        row.memory_ids,
        places[0],
        row.line,
    )
