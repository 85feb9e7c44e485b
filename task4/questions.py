"""The questions of a split, each with the dimension that its answer is judged in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from indexes.language import language_of
from recallbed.corpus.records import MemoryItem, Query, Task4Gold, Task4Row

DIMENSIONS = ("pa", "pf_general", "pf_interaction", "vra", "cf", "ei_en", "ei_cn", "ei_other")
"""As the paper's columns; `ei_other` is for other data, with questions in other languages."""
_EMOTIONAL = {"english": "ei_en", "chinese": "ei_cn"}


@dataclass(frozen=True, slots=True)
class Question:
    """One question with its row's reference; `memory` is the memory that it is about."""

    row: Task4Row
    query: Query
    gold: Task4Gold
    memory: MemoryItem
    dimension: str

    @property
    def name(self) -> str:
        """What tells it from all others."""
        return f"{self.row.benchmark_id} {self.query.query_id}"

    @property
    def others(self) -> list[str]:
        """The texts of what else is known of the user."""
        return [item.text for item in self.gold.memories if item.text != self.memory.text]


def questions_of(rows: Iterable[Task4Row]) -> list[Question]:
    """All questions of rows that were read with their references, in their order."""
    found = []
    for row in rows:
        assert row.gold is not None
        memory = whole_memory(row.gold)
        for query in row.queries:
            found.append(Question(row, query, row.gold, memory, dimension_of(row, query, memory)))
    return found


def whole_memory(gold: Task4Gold) -> MemoryItem:
    """The selected memory as it stands among all, with label and evidence; often it has neither."""
    same = (item for item in gold.memories if item.text == gold.selected.text)
    return next(same, gold.selected)


def dimension_of(row: Task4Row, query: Query, memory: MemoryItem) -> str:
    """One of DIMENSIONS.

    Preference following is of interaction where the memory's label says so, as in
    `Preferences/Interaction_Preferences`; nothing else in the data tells its two kinds apart.
    """
    if row.ability == 2:
        manner = "interaction" in (memory.label or "").casefold()
        return "pf_interaction" if manner else "pf_general"
    if row.ability == 5:
        return _EMOTIONAL.get(language_of(query.text), "ei_other")
    return {1: "pa", 3: "vra", 4: "cf"}[row.ability]
