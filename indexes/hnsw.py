"""Approximate search in a graph of near neighbours (Malkov & Yashunin, 2018), by FAISS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexes.base import Hits, Ids, Vectors, in_order, places_of
from indexes.errors import IndexingError
from indexes.faiss_bytes import faiss_module, parse_index, stream_index, threads
from indexes.files import Write
from indexes.vector_index import Sections, VectorIndex, exact_scores

COMPACT_AT = 0.2
"""The share of removed vectors past which the graph is built anew from those that are left."""


class HNSW(VectorIndex):
    """A graph over the vectors: 4 * `width` + 8 * `links` bytes and a few more a memory.

    `links` (M) neighbours a node; `effort_build` (efConstruction), `effort` (efSearch) candidates
    kept while building and while searching: more of each is slower and finds more. FAISS can't take
    a vector out of its graph, so `remove` marks it (a tombstone): the search passes through it and
    never gives it back. Past `COMPACT_AT` of the vectors marked, the graph is built anew.

    The scores of the hits are exact, as in `Flat`, and there are always as many hits. On one thread
    (the default) equal calls build equal graphs; `threads` 0 takes all cores, and the graph then
    depends on timing.
    """

    kind = "hnsw"
    exact = False
    setting_names = ("links", "effort_build", "effort", "threads")

    def __init__(
        self,
        width: int,
        model: str | None = None,
        links: int = 32,
        effort_build: int = 100,
        effort: int = 512,
        threads: int = 1,
    ) -> None:
        super().__init__(width, model)
        for name, value in (("links", links), ("effort_build", effort_build), ("effort", effort)):
            if value < 2:
                raise IndexingError(f"{name} {value}: must be at least 2")
        if threads < 0:
            raise IndexingError(f"threads {threads}: must be at least 0")
        self.links, self.effort_build, self.effort = links, effort_build, effort
        self.threads = threads
        self._graph = self._empty_graph()
        # One of each a node; an id may stand there several times, alive once at most.
        self._ids: Ids = np.empty(0, np.int64)
        self._alive: NDArray[np.bool_] = np.empty(0, bool)

    def _empty_graph(self) -> Any:
        faiss = faiss_module()
        graph = faiss.IndexHNSWFlat(self.width, self.links, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = self.effort_build
        return graph

    def __len__(self) -> int:
        return int(np.count_nonzero(self._alive))

    @property
    def ids(self) -> Ids:
        """The ids that a search can find, (len(self),)."""
        return self._ids[self._alive]

    @property
    def removed(self) -> int:
        """How many vectors in the graph are marked as removed."""
        return len(self._alive) - len(self)

    def _add(self, ids: Ids, vectors: Vectors) -> None:
        before = len(self._ids)
        try:
            with threads(self.threads):
                self._graph.add(vectors)
        finally:
            # Stopped half way (by Ctrl-C, say), what came into the graph is a tombstone.
            came = self._graph.ntotal - before
            self._ids = np.concatenate([self._ids, ids[:came]])
            self._alive = np.concatenate([self._alive, np.zeros(came, bool)])
        self._alive[before:] = True

    def remove(self, ids: ArrayLike) -> None:
        """Mark these ids as removed; build anew where too many are."""
        alive = np.flatnonzero(self._alive)
        self._alive[alive[places_of(ids, self._ids[alive])]] = False
        if self.removed > COMPACT_AT * len(self._alive):
            self._compact()

    def _compact(self) -> None:
        kept, graph = np.flatnonzero(self._alive), self._empty_graph()
        if len(kept):
            with threads(self.threads):
                graph.add(self._vectors()[kept])
        self._graph, self._ids, self._alive = graph, self._ids[kept], np.ones(len(kept), bool)

    def _vectors(self) -> Vectors:
        faiss = faiss_module()
        store = faiss.downcast_index(self._graph.storage)
        flat = faiss.rev_swig_ptr(store.get_xb(), store.ntotal * self.width)
        vectors: Vectors = flat.reshape(-1, self.width)
        return vectors

    def _search(self, queries: Vectors, k: int) -> list[Hits]:
        faiss = faiss_module()
        how: dict[str, Any] = {"efSearch": max(self.effort, 2 * k)}
        if not self._alive.all():
            how["sel"] = faiss.IDSelectorBitmap(np.packbits(self._alive, bitorder="little"))
        _, places = self._graph.search(queries, k, params=faiss.SearchParametersHNSW(**how))
        matrix, found = self._vectors(), []
        for query, near in zip(queries, places, strict=True):
            near = near[near >= 0]
            if len(near) < k:  # the graph led nowhere, past too many removed ones
                near = np.flatnonzero(self._alive)
            found.append(in_order(self._ids[near], exact_scores(query, matrix, near), k))
        return found

    def _sections(self) -> dict[str, Callable[[Write], None]]:
        return {
            "ids": lambda write: write(self._ids.tobytes()),
            "alive": lambda write: write(self._alive.tobytes()),
            "faiss": lambda write: stream_index(self._graph, write),
        }

    def _facts(self) -> dict[str, Any]:
        return {"removed": self.removed}

    def _restore(self, path: Path, header: Mapping[str, Any], sections: Sections) -> None:
        # Copies, so that the file isn't kept mapped beside what FAISS holds of it.
        self._ids = np.array(np.frombuffer(sections["ids"], np.int64))
        self._alive = np.array(np.frombuffer(sections["alive"], np.uint8)).astype(bool)
        if len(self._alive) != len(self._ids):
            raise ValueError
        count = len(self._ids)
        self._graph = parse_index(path, sections["faiss"], "IndexHNSWFlat", self.width, count)
