"""Task 2 for a memory system: it is given memories, reads a new dialogue, and changes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from memory_systems.base import MemorySystem, item_json
from memory_systems.options import TaskOptions
from memory_systems.run import Task, ingest_result, summarise_ingests
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.records import MemoryItem, Task2Row
from recallbed.corpus.tracks import TASK2
from task2.actions import UpdateAction

JSON = Any
SYSTEMS = {"copy": "task2.baselines:Copy", "replace": "task2.baselines:Replace"}


def update_task(options: TaskOptions) -> Task[Task2Row]:
    """Return the rows that the options name. References are not opened. Raise DataError."""
    inputs = read_inputs(options.data.data, options.data.split, TASK2, options.data.limit)
    return Task(
        name="task2",
        rows=inputs.rows,
        data=inputs.fingerprint(),
        work=update,
        predictions=lambda row, result: [update_row(row, result)],
        summarise=_summarise,
        systems=SYSTEMS,
    )


def update(system: MemorySystem, row: Task2Row) -> dict[str, JSON]:
    """What the system makes of the memories after the new dialogue. Raises SystemFailure.

    It sees the memories as `m1` and so on in their order, since stored ids stay with the loader,
    and so does `operations`; `given` holds the stored ids in that order, and `memory_items` the
    whole list with the ids of `with_official_ids`.
    """
    given = {f"m{n}": item for n, item in enumerate(row.memories, 1)}
    system.load([replace(item, id=number) for number, item in given.items()])
    system.read_before(row.old_dialogue)
    result = ingest_result(system, system.ingest(row.new_dialogue))
    official = with_official_ids(given, system.memories())
    return {
        **result,
        "given": [item.id for item in row.memories],
        "memory_items": [item_json(item) for item, _ in official],
        "actions": [action for _, action in official],
    }


def with_official_ids(
    given: Mapping[str, MemoryItem], now: Sequence[MemoryItem]
) -> list[tuple[MemoryItem, UpdateAction]]:
    """Return the memories `now` with ids that say what became of the `given`, and the actions.

    Retention has the stored id, and the text as it was; modification `<id>_updated`, and another
    text; addition `m_new_<n>` from 1. A given memory that is gone was deleted.
    """
    taken = {item.id for item in given.values()}
    free = (name for n in count(1) if (name := f"m_new_{n}") not in taken)
    named: list[tuple[MemoryItem, UpdateAction]] = []
    item_id: str | None
    for item in now:
        old = given.get(item.id or "")
        if old is None:
            item_id, action = next(free), UpdateAction.ADDITION
        elif old.text == item.text:
            item_id, action = old.id or item.id, UpdateAction.RETENTION
        else:
            item_id, action = f"{old.id or item.id}_updated", UpdateAction.MODIFICATION
        named.append((replace(item, id=item_id), action))
    return named


def update_row(row: Task2Row, result: JSON) -> dict[str, JSON]:
    """The official row: {benchmark_id, memory_items}, the whole updated list."""
    return {"benchmark_id": row.benchmark_id, "memory_items": result["memory_items"]}


def _summarise(results: Sequence[JSON]) -> dict[str, JSON]:
    found = Counter(action for result in results for action in result["actions"])
    actions = {action.value: found[action] for action in UpdateAction}
    return {**summarise_ingests(results), "actions": actions}
