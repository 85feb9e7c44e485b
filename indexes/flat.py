"""Exact search by inner product over all vectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from indexes.base import Hits, Ids, Vectors, in_order, places_of, squared_lengths
from indexes.files import Section
from indexes.vector_index import Sections, VectorIndex, exact_scores

_MARGIN = 16


class Flat(VectorIndex):
    """All vectors in one float32 matrix, 4 * `width` + 8 bytes per memory.

    FAISS finds the candidates, or a matrix product in numpy if it is not installed, with the same
    hits. Scores are inner products summed in float64 and rounded to float32, equal to those of
    `retrievers.dense`. Ties are ordered by id, and the first k hits are the first k of any longer
    search. A saved index is mapped, and copied at its first change.
    """

    kind = "flat"
    exact = True
    libraries = ("numpy",)

    def __init__(self, width: int, model: str | None = None) -> None:
        super().__init__(width, model)
        self._count = 0
        self._ids: Ids = np.empty(0, np.int64)
        self._matrix: Vectors = np.empty((0, width), np.float32)
        self._longest = 0.0  # upper bound of the length of a vector

    def __len__(self) -> int:
        return self._count

    @property
    @override
    def ids(self) -> Ids:
        return self._ids[: self._count]

    def _add(self, ids: Ids, vectors: Vectors) -> None:
        wanted = self._count + len(ids)
        if wanted > len(self._ids) or not self._matrix.flags.writeable:
            # The exact size at first, then a quarter more.
            room = wanted if not self._count else max(wanted, self._count * 5 // 4)
            matrix, held = np.empty((room, self.width), np.float32), np.empty(room, np.int64)
            matrix[: self._count], held[: self._count] = self._matrix[: self._count], self.ids
            self._matrix, self._ids = matrix, held
        self._matrix[self._count : wanted] = vectors
        self._ids[self._count : wanted] = ids
        self._count = wanted
        self._longest = max(self._longest, float(squared_lengths(vectors).max()) ** 0.5)

    @override
    def remove(self, ids: ArrayLike) -> None:
        gone = places_of(ids, self.ids)
        if not self._matrix.flags.writeable:
            self._matrix, self._ids = np.array(self._matrix), np.array(self._ids)
        left = self._count - len(gone)
        gaps = gone[gone < left]
        tail = np.ones(self._count - left, bool)
        tail[gone[gone >= left] - left] = False
        movers = left + np.flatnonzero(tail)
        self._matrix[gaps], self._ids[gaps] = self._matrix[movers], self._ids[movers]
        self._count = left

    def _search(self, queries: Vectors, k: int) -> list[Hits]:
        matrix, found = self._matrix[: self._count], []
        rough, near = _candidates(queries, matrix, k + _MARGIN)
        # Bound of the error of a float32 product in any summation order (Higham, Accuracy and
        # Stability of Numerical Algorithms, section 3.1). Scores closer than twice the bound may
        # be in the wrong order.
        off = 1.01 * (self.width + 2) * 2.0**-24 * self._longest * np.sqrt(squared_lengths(queries))
        for i, query in enumerate(queries):
            slack = 2 * float(off[i])
            if near is not None and rough[i, -1] < rough[i, k - 1] - slack:
                places = near[i]
            else:
                places = _within(query, matrix, k, slack)
            found.append(in_order(self._ids[places], exact_scores(query, matrix, places), k))
        return found

    def _sections(self) -> dict[str, Section]:
        return {"ids": self.ids, "vectors": self._matrix[: self._count]}

    def _facts(self) -> dict[str, Any]:
        return {"longest": self._longest}

    def _restore(self, path: Path, header: Mapping[str, Any], sections: Sections) -> None:
        self._ids = np.frombuffer(sections["ids"], np.int64)
        self._count, self._longest = len(self._ids), float(header["longest"])
        self._matrix = np.frombuffer(sections["vectors"], np.float32).reshape(-1, self.width)
        if len(self._matrix) != self._count:
            raise ValueError


def _candidates(
    queries: Vectors, matrix: Vectors, count: int
) -> tuple[NDArray[np.float32], NDArray[np.int64] | None]:
    """Rounded scores and places of the `count` best rows for each query, (len(queries), count).

    No places if FAISS is not installed, or if `count` covers all rows.
    """
    nothing = np.empty((len(queries), 0), np.float32), None
    if count >= len(matrix):
        return nothing
    try:
        import faiss
    except ImportError:
        return nothing
    scores, places = faiss.knn(queries, matrix, count, metric=faiss.METRIC_INNER_PRODUCT)
    return scores, places


def _within(query: Vectors, matrix: Vectors, k: int, slack: float) -> NDArray[np.int64]:
    """Places of the `k` best rows by rounded score, and of all less than `slack` below them."""
    if k == len(matrix):
        return np.arange(k)
    rough = matrix @ query
    return np.flatnonzero(rough >= np.partition(rough, -k)[-k] - slack)
