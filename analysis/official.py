"""The official prediction row of a released pool, from its scores."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recallbed.corpus.records import Task3Row


def prediction_row(
    label: str, row: Task3Row, scores: NDArray[Any], seed: int
) -> tuple[dict[str, str], int]:
    """Return {benchmark_id, answer, reason, selected_memory_id}, and the number of tied scores.

    `scores` has the shape (len(row.candidates),); `label` is named as reason.
    """
    chosen, tied = choose(scores, row, seed)
    others = {1: "none", 2: "1 other"}.get(tied, f"{tied - 1} others")
    return {
        "benchmark_id": row.benchmark_id,
        "answer": row.candidates[chosen].text,
        "reason": f"{label}: highest score {float(scores[chosen]):.7g}, tied with {others}",
        "selected_memory_id": row.memory_ids[chosen],
    }, tied


def choose(scores: NDArray[Any], row: Task3Row, seed: int) -> tuple[int, int]:
    """Return the position with the highest score, and how many share it, itself included.

    Ties are broken by a hash of seed, query and text, never by the order of the pool.
    """
    best = np.flatnonzero(scores == scores.max())
    start = hashlib.blake2b(f"{seed}\x00{row.query}\x00".encode(), digest_size=16, person=b"tie")

    def order(position: int) -> tuple[bytes, str]:
        digest = start.copy()
        digest.update(row.candidates[position].text.encode())
        # One text under several ids is one memory: the id breaks the remaining tie.
        return digest.digest(), row.memory_ids[position]

    return min(map(int, best), key=order), len(best)
