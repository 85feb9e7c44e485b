"""Approximate search in a graph of neighbours (Malkov & Yashunin, 2018), by FAISS."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from indexes.base import Hits, Ids, IndexingError, Vectors
from indexes.files import Section
from indexes.groups import Groups, KnownVectors
from indexes.vector_index import (
    GroupedIndex,
    Sections,
    exact_scores,
    faiss_module,
    parse_index,
    stream_index,
    threads,
)

COMPACT_AT = 0.2
"""The share of nodes without ids above which the graph is rebuilt from the others."""


class HNSW(GroupedIndex):
    """A graph over the distinct vectors, about 4 * `width` + 8 * `links` bytes per node.

    `links` (M) is the number of neighbours of a node, `effort_build` (efConstruction) and `effort`
    (efSearch) the candidates kept while building and searching: larger values are slower and find
    more. FAISS cannot remove a vector from its graph, so a node whose last id is removed stays as a
    tombstone: the search passes through it and never returns it. Above a share of `COMPACT_AT` the
    graph is rebuilt.

    The scores of the hits are exact, and there are as many hits as in `Flat`. On one thread (the
    default) equal calls build equal graphs; with `threads` 0 (all cores) the graph depends on
    timing.
    """

    kind = "hnsw"
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
        super().__init__(width, model, threads)
        for name, value in (("links", links), ("effort_build", effort_build), ("effort", effort)):
            if value < 2:
                raise IndexingError(f"{name} {value}: must be at least 2")
        self.links, self.effort_build, self.effort = links, effort_build, effort
        self._graph = self._empty_graph()
        self._alive: NDArray[np.bool_] = np.empty(0, bool)  # of the nodes
        self._known: KnownVectors | None = KnownVectors()  # None: computed when needed

    def _empty_graph(self) -> Any:
        faiss = faiss_module()
        graph = faiss.IndexHNSWFlat(self.width, self.links, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = self.effort_build
        return graph

    @property
    def removed(self) -> int:
        """The number of tombstones in the graph."""
        return int(np.count_nonzero(~self._alive))

    def _add(self, ids: Ids, vectors: Vectors) -> None:
        before = self._graph.ntotal
        if self._known is None:
            self._known = KnownVectors()
            _, rows, keys = self._known.assign(self._vectors(), 0)
            self._known.add(keys, rows)
        known, self._known = self._known, None  # until the end
        nodes, rows, keys = known.assign(vectors, before)
        try:
            with threads(self.threads):
                self._graph.add(vectors[rows])
        finally:
            # If interrupted, the vectors added so far are tombstones.
            self._alive = self._groups.used(self._graph.ntotal)
        known.add(keys, before + np.arange(len(rows)))
        self._groups.add(ids, nodes)
        self._alive = self._groups.used(self._graph.ntotal)
        self._known = known

    @override
    def remove(self, ids: ArrayLike) -> None:
        self._alive[self._groups.remove(ids)] = False
        if self.removed > COMPACT_AT * len(self._alive):
            self._compact()

    def _compact(self) -> None:
        kept, graph = np.flatnonzero(self._alive), self._empty_graph()
        if len(kept):
            with threads(self.threads):
                graph.add(self._vectors()[kept])
        nodes = np.searchsorted(kept, self._groups.nodes)
        self._graph, self._groups = graph, Groups(self._groups.ids, nodes)
        self._alive, self._known = np.ones(len(kept), bool), None

    def _vectors(self) -> Vectors:
        faiss = faiss_module()
        store = faiss.downcast_index(self._graph.storage)
        flat = faiss.rev_swig_ptr(store.get_xb(), store.ntotal * self.width)
        vectors: Vectors = flat.reshape(-1, self.width)
        return vectors

    def _search(self, queries: Vectors, k: int) -> list[Hits]:
        how: dict[str, Any] = {"efSearch": max(self.effort, 2 * k)}
        if not self._alive.all():
            bits = np.packbits(self._alive, bitorder="little")
            how["sel"] = faiss_module().IDSelectorBitmap(bits)
        parameters = faiss_module().SearchParametersHNSW(**how)
        wanted = min(k, len(self._alive) - self.removed)
        _, places = self._graph.search(queries, wanted, params=parameters)
        matrix, found = self._vectors(), []
        for query, near in zip(queries, places, strict=True):
            near = near[near >= 0]
            if len(near) < wanted:  # too many tombstones on the way
                near = np.flatnonzero(self._alive)
            found.append(self._groups.hits(near, exact_scores(query, matrix, near), k))
        return found

    @override
    def _sections(self) -> dict[str, Section]:
        return {**super()._sections(), "faiss": partial(stream_index, self._graph)}

    def _facts(self) -> dict[str, Any]:
        return {"nodes": len(self._alive)}

    def _restore(self, path: Path, header: Mapping[str, Any], sections: Sections) -> None:
        # Copies, so that the file does not stay mapped.
        ids = np.array(np.frombuffer(sections["ids"], np.int64))
        if header["format"] < 2:  # one node per id ever added
            alive = np.array(np.frombuffer(sections["alive"], np.uint8)).astype(bool)
            count, nodes = len(ids), np.flatnonzero(alive)
            ids = ids[alive]
        else:
            count, nodes = header["nodes"], np.array(np.frombuffer(sections["nodes"], np.int64))
        if len(ids) != len(nodes) or (len(nodes) and not 0 <= nodes.min() <= nodes.max() < count):
            raise ValueError
        self._groups, self._known = Groups(ids, nodes), None
        self._alive = self._groups.used(count)
        self._graph = parse_index(path, sections["faiss"], "IndexHNSWFlat", self.width, count)
