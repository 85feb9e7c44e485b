"""Task 4, utilization: questions and a history in, the memory to be used as gold.

The history is `audit_context.conversation` for every ability: ability 1 carries its gold in
`model_input`, which is therefore not read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from recallbed.corpus.fields import Fields
from recallbed.corpus.items import read_item, read_items, read_turns
from recallbed.corpus.records import Query, Task4Gold, Task4Row
from recallbed.corpus.stream import Track

ABILITIES = (1, 2, 3, 4, 5)


def _read(value: dict[str, Any], fields: Fields, ability: int) -> Task4Row:
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


def _attach(row: Task4Row, value: dict[str, Any], fields: Fields) -> Task4Row:
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
    return Track(f"task4_ability{ability}", partial(_read, ability=ability), _attach)
