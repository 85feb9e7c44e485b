"""Exact search by inner product: every vector is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexes.base import (
    Hits,
    Ids,
    MutableIndex,
    Vectors,
    as_ids,
    as_k,
    as_vectors,
    in_order,
    places_of,
    refuse_known,
)
from indexes.files import read_index, write_index

_MARGIN = 16
_BLOCK = 8192
_ROUNDING = 1e-5


class Flat(MutableIndex[Vectors]):
    """All vectors in one float32 matrix, 4 * `width` + 8 bytes a memory.

    FAISS finds the candidates where it is installed, a matrix product in numpy where it isn't; the
    hits are the same. Scores are inner products summed in float64 and rounded to float32 (a cosine
    may pass 1 by about 1e-7), equal to those of `retrievers.dense`. Ties go by id, and the first k
    hits are the first k of any longer search. A saved index is mapped, not read.
    """

    kind = "flat"
    exact = True

    def __init__(self, width: int, model: str | None = None) -> None:
        self.width, self.model = width, model
        self._count = 0
        self._ids: Ids = np.empty(0, np.int64)
        self._matrix: Vectors = np.empty((0, width), np.float32)

    def __len__(self) -> int:
        return self._count

    def build(self, ids: ArrayLike, items: Vectors) -> None:
        """Fill the empty index; the vectors are copied."""
        self.add(ids, items)

    def add(self, ids: ArrayLike, items: Vectors) -> None:
        """Take up more vectors, (n, width). Room grows by a quarter at a time."""
        vectors = as_vectors(items, self.width, model=self.model)
        given = as_ids(ids, len(vectors))
        refuse_known(given, self._ids[: self._count])
        wanted = self._count + len(given)
        if wanted > len(self._ids) or not self._matrix.flags.writeable:
            room = wanted if not self._count else max(wanted, self._count * 5 // 4)
            matrix = np.empty((room, self.width), np.float32)
            matrix[: self._count] = self._matrix[: self._count]
            self._matrix = matrix
            self._ids = np.concatenate(
                [self._ids[: self._count], np.empty(room - self._count, np.int64)]
            )
        self._matrix[self._count : wanted] = vectors
        self._ids[self._count : wanted] = given
        self._count = wanted

    def remove(self, ids: ArrayLike) -> None:
        """Forget these ids; the last vectors move into the gaps."""
        gone = np.sort(places_of(ids, self._ids[: self._count]))
        if not self._matrix.flags.writeable:
            self._matrix = np.array(self._matrix)
            self._ids = np.array(self._ids)
        left = self._count - len(gone)
        gaps = gone[gone < left]
        tail = np.ones(self._count - left, bool)
        tail[gone[gone >= left] - left] = False
        movers = left + np.flatnonzero(tail)
        self._matrix[gaps], self._ids[gaps] = self._matrix[movers], self._ids[movers]
        self._count = left

    def search(self, queries: Vectors, k: int) -> list[Hits]:
        """The best `k` of all for each row of `queries`, (n, width)."""
        asked = as_vectors(queries, self.width, "query vector", self.model)
        wanted = min(as_k(k), self._count)
        if not wanted:
            return [Hits(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in asked]
        matrix, ids = self._matrix[: self._count], self._ids[: self._count]
        taken = min(self._count, wanted + _MARGIN)
        rough, places = _candidates(asked, matrix, taken)
        found = []
        for query, about, candidates in zip(asked, rough, places, strict=True):
            # Candidates come rounded, and ties come cut: all that might be among the best k by
            # exact score must be among them, else everything is looked at.
            slack = _ROUNDING * max(1.0, float(np.abs(about).max()))
            if taken < self._count and about[-1] >= about[wanted - 1] - slack:
                candidates = np.arange(self._count)
            scores = exact_scores(query, matrix, candidates)
            found.append(in_order(ids[candidates], scores, wanted))
        return found

    def save(self, path: Path) -> None:
        """Write it as one file (`indexes.files`)."""
        header = {"width": self.width, "model": self.model, "metric": "inner product"}
        write_index(
            path,
            self.kind,
            {**header, "count": self._count},
            {
                "ids": lambda write: write(self._ids[: self._count].tobytes()),
                "vectors": lambda write: _write_blocks(write, self._matrix[: self._count]),
            },
            ("numpy",),
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Map the index at `path`; what the file holds is copied when it is first changed."""
        header, sections = read_index(path, cls.kind)
        index = cls(header["width"], header["model"])
        index._count = header["count"]
        index._ids = np.frombuffer(sections["ids"], np.int64)
        index._matrix = np.frombuffer(sections["vectors"], np.float32).reshape(-1, index.width)
        return index


def exact_scores(query: Vectors, matrix: Vectors, places: NDArray[np.int64]) -> Vectors:
    """Inner products with the rows at `places`, (len(places),), summed in float64."""
    scores = np.empty(len(places), np.float32)
    for start in range(0, len(places), _BLOCK):
        rows = matrix[places[start : start + _BLOCK]].astype(np.float64)
        scores[start : start + _BLOCK] = np.einsum("ij,j->i", rows, query)
    return scores


def _candidates(queries: Vectors, matrix: Vectors, count: int) -> tuple[Vectors, NDArray[np.int64]]:
    """The `count` best places for each query and their rounded scores, best first."""
    try:
        import faiss
    except ImportError:
        scores = queries @ matrix.T
        if count < len(matrix):
            places = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        else:
            places = np.broadcast_to(np.arange(count), scores.shape)
        taken = np.take_along_axis(scores, places, axis=1)
        order = np.argsort(-taken, axis=1)
        return np.take_along_axis(taken, order, axis=1), np.take_along_axis(places, order, axis=1)
    found: tuple[Vectors, NDArray[np.int64]] = faiss.knn(
        queries, matrix, count, metric=faiss.METRIC_INNER_PRODUCT
    )
    return found


def _write_blocks(write: object, matrix: Vectors) -> None:
    assert callable(write)
    for start in range(0, len(matrix), _BLOCK):
        write(matrix[start : start + _BLOCK].tobytes())
