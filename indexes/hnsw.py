"""Approximate search in a graph of near neighbours (Malkov & Yashunin, 2018), by FAISS."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

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
from indexes.errors import IndexingError
from indexes.faiss_bytes import faiss_module, parse_index, stream_index, threads
from indexes.files import read_index, write_index
from indexes.flat import exact_scores

COMPACT_AT = 0.2
"""The share of removed vectors past which the graph is built anew from those that are left."""


class HNSW(MutableIndex[Vectors]):
    """A graph over the vectors: 4 * `width` + 8 * `links` bytes and a few more a memory.

    `links` (M) neighbours a node; `effort_build` (efConstruction), `effort` (efSearch) candidates
    kept while building and while searching: more of each is slower and finds more. FAISS can't take
    a vector out of its graph, so `remove` marks it (a tombstone): the search passes through it and
    never gives it back. Past `COMPACT_AT` of the vectors marked, the graph is built anew.

    The scores of the hits are exact, as in `Flat`. On one thread (the default) equal calls build
    equal graphs; `threads` 0 takes all cores, and the graph then depends on timing.
    """

    kind = "hnsw"
    exact = False

    def __init__(
        self,
        width: int,
        model: str | None = None,
        links: int = 32,
        effort_build: int = 100,
        effort: int = 512,
        threads: int = 1,
    ) -> None:
        for name, value in (("links", links), ("effort_build", effort_build), ("effort", effort)):
            if value < 2:
                raise IndexingError(f"{name} {value}: must be at least 2")
        self.width, self.model = width, model
        self.links, self.effort_build, self.effort = links, effort_build, effort
        self.threads = threads
        self._clear()

    def _clear(self) -> None:
        faiss = faiss_module()
        self._graph = faiss.IndexHNSWFlat(self.width, self.links, faiss.METRIC_INNER_PRODUCT)
        self._graph.hnsw.efConstruction = self.effort_build
        self._ids: Ids = np.empty(0, np.int64)
        self._alive: NDArray[np.bool_] = np.empty(0, bool)

    def __len__(self) -> int:
        return int(self._alive.sum())

    @property
    def removed(self) -> int:
        """How many vectors in the graph are marked as removed."""
        return len(self._alive) - len(self)

    def build(self, ids: ArrayLike, items: Vectors) -> None:
        """Fill the empty index, vectors (n, width)."""
        self.add(ids, items)

    def add(self, ids: ArrayLike, items: Vectors) -> None:
        """Take up more vectors."""
        vectors = as_vectors(items, self.width, model=self.model)
        given = as_ids(ids, len(vectors))
        refuse_known(given, self._ids[self._alive])
        if not len(given):
            return
        with threads(self.threads):
            self._graph.add(vectors)
        self._ids = np.concatenate([self._ids, given])
        self._alive = np.concatenate([self._alive, np.ones(len(given), bool)])

    def remove(self, ids: ArrayLike) -> None:
        """Mark these ids as removed; build anew where too many are."""
        alive = np.flatnonzero(self._alive)
        self._alive[alive[places_of(ids, self._ids[alive])]] = False
        if self.removed > COMPACT_AT * len(self._alive):
            kept = np.flatnonzero(self._alive)
            ids_left, vectors = self._ids[kept], self._vectors()[kept]
            self._clear()
            self.add(ids_left, vectors)

    def _vectors(self) -> Vectors:
        faiss = faiss_module()
        store = faiss.downcast_index(self._graph.storage)
        flat = faiss.rev_swig_ptr(store.get_xb(), store.ntotal * self.width)
        vectors: Vectors = flat.reshape(-1, self.width)
        return vectors

    def search(self, queries: Vectors, k: int) -> list[Hits]:
        """About the best `k` for each row of `queries`; as many as `Flat` gives, always."""
        asked = as_vectors(queries, self.width, "query vector", self.model)
        wanted = min(as_k(k), len(self))
        if not wanted:
            return [Hits(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in asked]
        faiss = faiss_module()
        parameters = faiss.SearchParametersHNSW(efSearch=max(self.effort, 2 * wanted))
        if self.removed:
            selector = faiss.IDSelectorBitmap(np.packbits(self._alive, bitorder="little"))
            parameters.sel = selector
        _, places = self._graph.search(asked, wanted, params=parameters)
        matrix, found = self._vectors(), []
        for query, near in zip(asked, places, strict=True):
            near = near[near >= 0]
            if len(near) < wanted:  # the graph led nowhere, past too many removed ones
                near = np.flatnonzero(self._alive)
            found.append(in_order(self._ids[near], exact_scores(query, matrix, near), wanted))
        return found

    def save(self, path: Path) -> None:
        """Write it as one file (`indexes.files`), removed vectors included."""
        header = {
            **{"width": self.width, "model": self.model, "metric": "inner product"},
            "count": len(self),
            "removed": self.removed,
            "settings": self._settings(),
        }
        write_index(
            path,
            self.kind,
            header,
            {
                "ids": lambda write: write(self._ids.tobytes()),
                "alive": lambda write: write(self._alive.tobytes()),
                "faiss": lambda write: stream_index(self._graph, write),
            },
            ("numpy", "faiss-cpu"),
        )

    def _settings(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("links", "effort_build", "effort", "threads")
        }

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the index at `path` into memory."""
        header, sections = read_index(path, cls.kind)
        index = cls(header["width"], header["model"], **header["settings"])
        # Copies, so that the file isn't kept mapped beside what FAISS holds of it.
        index._ids = np.array(np.frombuffer(sections["ids"], np.int64))
        index._alive = np.array(np.frombuffer(sections["alive"], bool))
        index._graph = parse_index(
            path, sections["faiss"], "IndexHNSWFlat", index.width, len(index._ids)
        )
        return index
