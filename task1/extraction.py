"""Task 1 for a memory system: the memories after a dialogue are its prediction."""

from __future__ import annotations

from typing import Any

from memory_systems.base import MemorySystem
from memory_systems.options import TaskOptions
from memory_systems.run import Task, ingest_result, summarise_ingests
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.records import Task1Row
from recallbed.corpus.tracks import TASK1

JSON = Any
SYSTEMS = {"extractive": "task1.extractive:Extractive"}


def extraction_task(options: TaskOptions) -> Task[Task1Row]:
    """Return the rows that the options name. References are not opened. Raise DataError."""
    inputs = read_inputs(options.data.data, options.data.split, TASK1, options.data.limit)
    return Task(
        name="task1",
        rows=inputs.rows,
        data=inputs.fingerprint(),
        work=extract,
        predictions=lambda row, result: [extraction_row(row, result)],
        summarise=summarise_ingests,
        systems=SYSTEMS,
    )


def extract(system: MemorySystem, row: Task1Row) -> dict[str, JSON]:
    """Return the operations on one dialogue, the system's only input. Raise SystemFailure."""
    return ingest_result(system, system.ingest(row.dialogue))


def extraction_row(row: Task1Row, result: JSON) -> dict[str, JSON]:
    """Return the official row: {benchmark_id, memory_items}."""
    return {"benchmark_id": row.benchmark_id, "memory_items": result["memory_items"]}
