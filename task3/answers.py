"""From a retriever and a released pool to prediction rows: one memory chosen for each query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.official import prediction_row
from recallbed.corpus.records import Memory, Task3File
from recallbed.harness.progress import progress
from retrievers.base import NotScored, Retriever
from task3.order_check import check_order

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

    Raises UserError where the retriever can't be prepared, or its scores depend on the order in
    which queries are asked.
    """
    memories = (memory for row in file.rows for memory in row.candidates)
    retriever.prepare_for(label, (row.query for row in file.rows), memories)
    check_order(
        label,
        retriever,
        [row.benchmark_id for row in file.rows],
        lambda i: (file.rows[i].query, file.rows[i].candidates),
        seed,
    )
    rows: list[Mapping[str, str]] = []
    failed: Counter[str] = Counter()
    ties = 0
    with progress(label, len(file.rows)) as advance:
        for start in range(0, len(file.rows), BATCH):
            batch = file.rows[start : start + BATCH]
            results = retriever.results([r.query for r in batch], [r.candidates for r in batch])
            for row, result in zip(batch, results, strict=True):
                if isinstance(result, NotScored):
                    failed[result.cause] += 1
                    continue
                chosen, tied = prediction_row(label, row, np.asarray(result.scores), seed)
                ties += tied > 1
                rows.append(chosen)
            advance(len(batch))
    return Answers(rows, failed, ties)
