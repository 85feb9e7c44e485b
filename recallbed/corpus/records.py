"""The typed records. What a retriever may see is `Memory`, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory as a retriever sees it: its text and, if the data has one, its label path.

    A stored id is not part of it: inside a pool a memory is identified by its position.
    """

    text: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance of a dialogue; `role` is `user` or `assistant` in the release."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a memory was read from: utterances by number, from 0, and their text."""

    session_id: str
    utterances: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """A structured memory. Everything but its text may be missing."""

    text: str
    id: str | None = None
    label: str | None = None
    type: str | None = None
    confidence: float | None = None
    time_scope: str | None = None
    attitude: str | None = None
    emotion: str | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True)
class Task1Row:
    """Extraction: a dialogue in; `gold` the memories to be found in it, None without references."""

    benchmark_id: str
    session_id: str
    dialogue: tuple[Turn, ...]
    line: int
    gold: tuple[MemoryItem, ...] | None = None


@dataclass(frozen=True, slots=True)
class Task2Row:
    """Update: memories and a new dialogue in; `gold` the memories as they should be after it."""

    benchmark_id: str
    session_id: str
    old_dialogue: tuple[Turn, ...]
    new_dialogue: tuple[Turn, ...]
    memories: tuple[MemoryItem, ...]
    line: int
    gold: tuple[MemoryItem, ...] | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """One question of a task 4 row; `category` is known for ability 5 alone."""

    query_id: str
    text: str
    category: str | None = None


@dataclass(frozen=True, slots=True)
class Task4Gold:
    """The memory that a good answer uses, and all that were read from the history."""

    selected: MemoryItem
    memories: tuple[MemoryItem, ...]


@dataclass(frozen=True, slots=True)
class Task4Row:
    """Utilization: questions (several in ability 5) and the history to answer them from."""

    benchmark_id: str
    session_id: str
    ability: int
    queries: tuple[Query, ...]
    history: tuple[Turn, ...]
    line: int
    gold: Task4Gold | None = None


@dataclass(frozen=True, slots=True)
class Task3Row:
    """One retrieval query with the candidates of the file, gold included.

    `gold` is a position in `candidates`, None if the split comes without references. The
    release has one gold a query; a user's own data may have several, the others in `more_golds`.
    `memory_ids` is parallel to `candidates`; it stays with the loader, for writing predictions.
    `fields` holds the further fields of a user's own row, such as `category`, by which results may
    be grouped; no retriever sees them. `unnamed` rows have their line's number for an id, as their
    file gives them neither an id nor a session.
    """

    benchmark_id: str
    session_id: str
    query: str
    candidates: tuple[Memory, ...]
    memory_ids: tuple[str, ...]
    line: int
    gold: int | None = None
    more_golds: tuple[int, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False)
    unnamed: bool = field(default=False, compare=False)

    @property
    def golds(self) -> tuple[int, ...]:
        """The positions of all golds; empty if the row has no reference."""
        return () if self.gold is None else (self.gold, *self.more_golds)

    @property
    def gold_memory(self) -> Memory:
        """The (first) gold memory; a ValueError if the row has none."""
        if self.gold is None:
            raise ValueError(f"{self.benchmark_id} has no reference")
        return self.candidates[self.gold]

    @property
    def gold_memories(self) -> tuple[Memory, ...]:
        """All gold memories."""
        return tuple(self.candidates[i] for i in self.golds)


def bank_of(rows: Iterable[Task3Row]) -> tuple[Memory, ...]:
    """The distinct candidates of all rows, sorted by text, each with its first label."""
    bank: dict[str, Memory] = {}
    for row in rows:
        for memory in row.candidates:
            bank.setdefault(memory.text, memory)
    return tuple(bank[text] for text in sorted(bank))


@dataclass(frozen=True, slots=True)
class Task3File:
    """All rows of one `task3/d<N>` folder, in file order.

    `sha256` covers the bytes of both files, uncompressed. `repairs` counts what was repaired while
    reading (byte order marks, blank lines, lone surrogates, NUL); `repeated_ids` counts the pools
    in which a stored id appears more than once.
    """

    path: Path
    size: int
    rows: tuple[Task3Row, ...]
    sha256: str
    repairs: Mapping[str, int]
    repeated_ids: int
