"""Task 4 for a memory system: one history is ingested, then its questions are answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from memory_scoring.questions import read_task4
from memory_systems.base import MemorySystem, SystemFailure
from memory_systems.options import TaskOptions
from memory_systems.run import Task, ingest_result, summarise_ingests
from recallbed.corpus.records import MemoryItem, Query, Task4Row

JSON = Any
SYSTEMS = {
    "extractive": "task4.extractive:Extractive",
    "llm": "memory_systems.llm:PlainHistory",
}
CONTROL = "gold-memory"
"""The paper's control: the model sees the question with the gold memories."""


def utilization_task(options: TaskOptions, abilities: Iterable[int] = ()) -> Task[Task4Row]:
    """Return the task on the rows that the options name. Raise DataError and UserError.

    References are not opened, so that no gold can reach a system, except for `gold-memory`.
    """
    control = options.system == CONTROL
    found = read_task4(
        options.data.data, options.data.split, abilities, options.data.limit, with_gold=control
    )
    return Task(
        name="task4",
        rows=found.rows,
        data=found.data,
        work=use_gold if control else use_history,
        predictions=predictions,
        summarise=summarise_answers,
        systems=SYSTEMS,
        settings={"known": "the gold memories" if control else "the history"},
    )


def use_history(system: MemorySystem, row: Task4Row) -> dict[str, JSON]:
    """Return the memories after the history, and the answers. Raise SystemFailure."""
    return answer_queries(system, row, ingest_result(system, system.ingest(row.history)))


def use_gold(system: MemorySystem, row: Task4Row) -> dict[str, JSON]:
    """Return how the system answers with the reference's memories. Raise SystemFailure.

    Nothing else in this task hands gold to a system.
    """
    system.load(gold_memories(row))
    return answer_queries(system, row, ingest_result(system, ()))


def gold_memories(row: Task4Row) -> list[MemoryItem]:
    """Return all that the reference read from the history; first the selected one if not among it.

    The paper shows "the ground-truth memories", in the plural. Raise ValueError without reference.
    """
    if row.gold is None:
        raise ValueError(f"{row.benchmark_id} has no reference")
    known = {item.text for item in row.gold.memories}
    missing = [] if row.gold.selected.text in known else [row.gold.selected]
    return [*missing, *row.gold.memories]


def answer_queries(
    system: MemorySystem, row: Task4Row, known: Mapping[str, JSON]
) -> dict[str, JSON]:
    """Return the answers with what is `known`; raise SystemFailure if no question was answered.

    If only some questions fail, each of those has an `error`.
    """
    places = {item: place for place, item in reversed(list(enumerate(system.memories())))}
    responses = [_answer(system, query, places) for query in row.queries]
    failed = [one["error"] for one in responses if one["error"] is not None]
    if len(failed) == len(responses):
        raise SystemFailure(failed[0])
    return {"ability": row.ability, **known, "responses": responses}


def _answer(system: MemorySystem, query: Query, places: Mapping[Any, int]) -> dict[str, JSON]:
    """Return one response; a hit is its memory's position in `memory_items` and its score."""
    answer: dict[str, JSON] = {"query_id": query.query_id}
    try:
        response = system.respond(query.text)
    except SystemFailure as failure:
        answer |= {"answer": None, "used_memory_fact": None, "hits": [], "left_out": 0}
        return {**answer, "error": str(failure.cause)}
    unseen = response.hits_left_out
    return {
        **answer,
        "answer": response.answer,
        "used_memory_fact": response.used_memory_fact,
        "hits": [[places.get(hit.item), hit.score] for hit in response.hits],
        "left_out": response.left_out,
        **({"hits_left_out": list(unseen)} if response.left_out and unseen is not None else {}),
        "error": None,
    }


def predictions(row: Task4Row, result: JSON) -> list[dict[str, JSON]]:
    """Return one row {benchmark_id, responses} of the answered questions; the format is ours.

    Each response has `query_id`, `response` and `used_memory_fact`.
    """
    responses = [
        {
            "query_id": one["query_id"],
            "response": one["answer"],
            "used_memory_fact": one["used_memory_fact"],
        }
        for one in result["responses"]
        if one["error"] is None
    ]
    return [{"benchmark_id": row.benchmark_id, "responses": responses}]


def summarise_answers(results: Sequence[JSON]) -> dict[str, JSON]:
    """Count by ability: asked, answered, failed by cause, answers that name a memory."""
    found: dict[str, JSON] = {}
    for ability in sorted({result["ability"] for result in results}):
        mine = [one for r in results if r["ability"] == ability for one in r["responses"]]
        failed = Counter(one["error"] for one in mine if one["error"] is not None)
        found[f"ability{ability}"] = {
            "asked": len(mine),
            "answered": len(mine) - failed.total(),
            "failed": dict(failed.most_common()),
            "name_a_used_memory": sum(bool(one["used_memory_fact"]) for one in mine),
            "memories_left_out": sum(one["left_out"] for one in mine),
        }
    return {"answers": found, **summarise_ingests(results)}
