"""From a retriever and a released pool to prediction rows: one memory chosen for each query."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.records import Memory, Task3File, Task3Row
from harness.errors import UserError
from harness.progress import progress
from retrievers.base import Retriever, RetrieverError
from task3.attempt import attempt

BATCH = 16


@dataclass(frozen=True, slots=True)
class Answers:
    """Prediction rows in file order, the queries without one by cause, and how many were ties."""

    rows: Sequence[Mapping[str, str]]
    failed: Counter[str]
    tied: int


def bank_of(file: Task3File) -> tuple[Memory, ...]:
    """The distinct candidates of a file, sorted by text, each with the label it has first."""
    bank: dict[str, Memory] = {}
    for row in file.rows:
        for memory in row.candidates:
            bank.setdefault(memory.text, memory)
    return tuple(bank[text] for text in sorted(bank))


def answer_all(label: str, retriever: Retriever, file: Task3File, seed: int) -> Answers:
    """Choose a memory for every query that the retriever can score; `label` is named as reason.

    Raises UserError where the retriever can't be prepared.
    """
    _prepare(label, retriever, file)
    rows: list[Mapping[str, str]] = []
    failed: Counter[str] = Counter()
    ties = 0
    with progress(label, len(file.rows)) as advance:
        for start in range(0, len(file.rows), BATCH):
            batch = file.rows[start : start + BATCH]
            results = attempt(retriever, [r.query for r in batch], [r.candidates for r in batch])
            for row, result in zip(batch, results, strict=True):
                if isinstance(result, RetrieverError):
                    failed[str(result.cause)] += 1
                    continue
                scores = np.asarray(result.scores)
                chosen, tied = choose(scores, row, seed)
                ties += tied > 1
                rows.append(_prediction(label, row, chosen, float(scores[chosen]), tied))
            advance(len(batch))
    return Answers(rows, failed, ties)


def _prepare(label: str, retriever: Retriever, file: Task3File) -> None:
    memories = {memory for row in file.rows for memory in row.candidates}
    try:
        retriever.prepare(
            sorted({row.query for row in file.rows}),
            sorted(memories, key=lambda m: (m.text, m.label or "")),
        )
    except (MemoryError, UserError):
        raise
    except Exception as error:
        raise UserError(f"{label}: cannot be prepared ({type(error).__name__}: {error})") from error


def choose(scores: NDArray[Any], row: Task3Row, seed: int) -> tuple[int, int]:
    """The position with the highest score, and how many share that score, itself included.

    Among equals a hash of seed, query and text decides, so that the order of a pool never does.
    """
    best = np.flatnonzero(scores == scores.max())
    start = hashlib.blake2b(f"{seed}\x00{row.query}\x00".encode(), digest_size=16, person=b"tie")

    def order(position: int) -> tuple[bytes, str]:
        digest = start.copy()
        digest.update(row.candidates[position].text.encode())
        # One text under several ids is one memory; which id stands for it must be settled too.
        return digest.digest(), row.memory_ids[position]

    return min(map(int, best), key=order), len(best)


def _prediction(label: str, row: Task3Row, chosen: int, score: float, tied: int) -> dict[str, str]:
    others = {1: "none", 2: "1 other"}.get(tied, f"{tied - 1} others")
    return {
        "benchmark_id": row.benchmark_id,
        "answer": row.candidates[chosen].text,
        "reason": f"{label}: highest score {score:.7g}, tied with {others}",
        "selected_memory_id": row.memory_ids[chosen],
    }
