"""The typed records of the house. What a retriever may see is `Memory`, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory as a retriever sees it: its text and, where the data has one, its label path.

    A stored id is not part of it: inside a pool a memory is identified by its position.
    """

    text: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Task3Row:
    """One retrieval query with the candidates of the file, gold included.

    `gold` is a position in `candidates`, None where the split comes without references.
    `memory_ids` runs beside `candidates`; it stays with the loader, for writing predictions.
    """

    benchmark_id: str
    session_id: str
    query: str
    candidates: tuple[Memory, ...]
    memory_ids: tuple[str, ...]
    gold: int | None
    line: int

    @property
    def gold_memory(self) -> Memory:
        """The gold memory; a ValueError where the row has none."""
        if self.gold is None:
            raise ValueError(f"{self.benchmark_id} has no reference")
        return self.candidates[self.gold]


@dataclass(frozen=True, slots=True)
class Task3File:
    """All rows of one `task3/d<N>` folder, in file order.

    `sha256` covers the bytes of both files, uncompressed. `repairs` counts what was mended while
    reading (byte order marks, blank lines, lone surrogates, NUL); `repeated_ids` counts the pools
    in which a stored id stands more than once.
    """

    path: Path
    size: int
    rows: tuple[Task3Row, ...]
    sha256: str
    repairs: Mapping[str, int]
    repeated_ids: int
