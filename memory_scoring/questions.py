"""The rows of task 4, one track per ability, and their questions by dimension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexes.language import language_of
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.jsonl import find_jsonl
from recallbed.corpus.layout import sample_root, split_folder
from recallbed.corpus.records import MemoryItem, Query, Task4Gold, Task4Row
from recallbed.corpus.tracks import ABILITIES, task4_track
from recallbed.errors import DataError, UserError

DIMENSIONS = ("pa", "pf_general", "pf_interaction", "vra", "cf", "ei_en", "ei_cn", "ei_other")
"""The paper's columns; `ei_other` is for other data, with questions in other languages."""
UNUSED = ("vra", "cf")
"""Dimensions in which the memory must not be used: it is from fiction, or it is a limit."""
_EMOTIONAL = {"english": "ei_en", "chinese": "ei_cn"}


@dataclass(frozen=True, slots=True)
class UserQuestion:
    """One question with its row's reference; `memory` is the memory that it is about."""

    row: Task4Row
    query: Query
    gold: Task4Gold
    memory: MemoryItem
    dimension: str

    @property
    def name(self) -> str:
        """Its unique name: benchmark_id and query_id."""
        return f"{self.row.benchmark_id} {self.query.query_id}"

    @property
    def others(self) -> list[str]:
        """The texts of the user's other memories."""
        return [item.text for item in self.gold.memories if item.text != self.memory.text]


def questions_of(rows: Iterable[Task4Row]) -> list[UserQuestion]:
    """Return all questions of rows that were read with their references, in their order."""
    found = []
    for row in rows:
        assert row.gold is not None
        memory = whole_memory(row.gold)
        for query in row.queries:
            found.append(
                UserQuestion(row, query, row.gold, memory, dimension_of(row, query, memory))
            )
    return found


def whole_memory(gold: Task4Gold) -> MemoryItem:
    """Return the selected memory as in the list of all, which has label and evidence."""
    same = (item for item in gold.memories if item.text == gold.selected.text)
    return next(same, gold.selected)


def dimension_of(row: Task4Row, query: Query, memory: MemoryItem) -> str:
    """Return one of DIMENSIONS.

    Preference following is of interaction if the memory's label says so, as in
    `Preferences/Interaction_Preferences`; nothing else in the data separates its two kinds.
    """
    if row.ability == 2:
        manner = "interaction" in (memory.label or "").casefold()
        return "pf_interaction" if manner else "pf_general"
    if row.ability == 5:
        return _EMOTIONAL.get(language_of(query.text), "ei_other")
    return {1: "pa", 3: "vra", 4: "cf"}[row.ability]


@dataclass(frozen=True, slots=True)
class Task4Rows:
    """Rows by benchmark_id, ability by ability, each in file order; `data` identifies them."""

    rows: Mapping[str, Task4Row]
    data: Mapping[str, Any]


def read_task4(
    root: Path | None,
    split: str,
    abilities: Iterable[int] = (),
    limit: int | None = None,
    *,
    with_gold: bool = False,
) -> Task4Rows:
    """Return the first `limit` rows of each of `abilities` (1 to 5; by default all of the split).

    References are not opened unless they are asked for. Raise DataError for faulty files and for a
    benchmark_id in two abilities, UserError for a number that is not an ability.
    """
    folder = split_folder(root or sample_root(), split)
    present = [
        ability
        for ability in ABILITIES
        if find_jsonl(folder / task4_track(ability).name, "model_input")
    ]
    asked = sorted(set(abilities)) or present
    for ability in asked:
        if ability not in ABILITIES:
            raise UserError(f"--ability {ability}: task 4 has 1 to {ABILITIES[-1]}")
    if not asked:
        raise DataError(
            "no task4_ability<N> in this folder",
            folder,
            todo="Give --data the folder above the splits of a release",
        )
    rows: dict[str, Task4Row] = {}
    tracks: dict[str, Any] = {}
    sample = False
    for ability in asked:
        inputs = read_inputs(root, split, task4_track(ability), limit, with_gold=with_gold)
        for name, row in inputs.rows.items():
            if name in rows:
                raise DataError(
                    f"benchmark_id `{name}` is in ability {rows[name].ability} too",
                    folder / inputs.track,
                    row.line,
                    todo="Ask for one of them with --ability",
                )
            rows[name] = row
        tracks[inputs.track] = {"sha256": inputs.sha256, "rows": len(inputs.rows)}
        sample = inputs.sample
    return Task4Rows(rows, {"sample": sample, "split": split, "tracks": tracks})
