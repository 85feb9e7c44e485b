"""Nodes of an index, one per distinct vector, and the ids of each node.

Copies of a vector would be linked to each other only, which disconnects a graph, so an index holds
each vector once.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexes.base import Hits, Ids, Vectors, in_order, places_of

Nodes = NDArray[np.int64]
_KEY = np.dtype("S16")


class Groups:
    """The ids of each node, 16 bytes per id: `ids` and `nodes`, (n,), sorted by node and id."""

    def __init__(self, ids: ArrayLike = (), nodes: ArrayLike = ()) -> None:
        self.ids: Ids = np.empty(0, np.int64)
        self.nodes: Nodes = np.empty(0, np.int64)
        self.add(np.asarray(ids, np.int64), np.asarray(nodes, np.int64))

    def add(self, ids: Ids, nodes: Nodes) -> None:
        """Add new ids to old or new nodes, (n,) each."""
        order = np.lexsort((ids, nodes))
        ids, nodes = ids[order], nodes[order]
        first, last = self._bounds(nodes)
        for i in np.flatnonzero(first < last):
            first[i] += np.searchsorted(self.ids[first[i] : last[i]], ids[i])
        self.ids = np.insert(self.ids, first, ids)
        self.nodes = np.insert(self.nodes, first, nodes)

    def remove(self, ids: ArrayLike) -> Nodes:
        """Remove these ids and return the nodes without any id left. Raises UnknownId."""
        places = places_of(ids, self.ids)
        touched = np.unique(self.nodes[places])
        self.ids, self.nodes = np.delete(self.ids, places), np.delete(self.nodes, places)
        first, last = self._bounds(touched)
        emptied: Nodes = touched[first == last]
        return emptied

    def used(self, count: int) -> NDArray[np.bool_]:
        """Return the mask of the nodes 0 to `count` - 1 that have an id, (count,)."""
        found = np.zeros(count, bool)
        found[self.nodes] = True
        return found

    def hits(self, nodes: Nodes, scores: NDArray[np.float32], k: int) -> Hits:
        """Return the first `k` ids by (-score, id) of distinct nodes with these scores, (m,)."""
        order = np.argsort(-scores, kind="stable")
        nodes, scores = nodes[order], scores[order]
        first, last = self._bounds(nodes)
        sizes = np.minimum(last - first, k)
        enough = np.searchsorted(np.cumsum(sizes), k)
        if enough < len(nodes):  # nodes below the score of the k-th id are left out
            sizes = np.where(scores >= scores[enough], sizes, 0)
        begins = np.cumsum(sizes) - sizes
        places = np.repeat(first - begins, sizes) + np.arange(sizes.sum())
        return in_order(self.ids[places], np.repeat(scores, sizes), k)

    def _bounds(self, nodes: Nodes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first and last place of each node's ids."""
        return (
            np.asarray(np.searchsorted(self.nodes, nodes, "left"), np.int64),
            np.asarray(np.searchsorted(self.nodes, nodes, "right"), np.int64),
        )


class KnownVectors:
    """The node of each distinct vector, by a digest of 16 bytes; 24 bytes per node."""

    def __init__(self, keys: ArrayLike = (), nodes: ArrayLike = ()) -> None:
        self.keys: NDArray[np.bytes_] = np.empty(0, _KEY)
        self.nodes: Nodes = np.empty(0, np.int64)
        self.add(np.asarray(keys, _KEY), np.asarray(nodes, np.int64))

    def assign(
        self, vectors: Vectors, start: int
    ) -> tuple[Nodes, NDArray[np.int64], NDArray[np.bytes_]]:
        """Return the node of each row, (n,); unknown vectors get nodes from `start` on, in order.

        Also return the first row of each new node, and its key.
        """
        keys, first, which = np.unique(digests(vectors), return_index=True, return_inverse=True)
        at = np.searchsorted(self.keys, keys)
        nodes = np.full(len(keys), -1, np.int64)
        inside = np.flatnonzero(at < len(self.keys))
        same = inside[self.keys[at[inside]] == keys[inside]]
        nodes[same] = self.nodes[at[same]]
        new = np.flatnonzero(nodes < 0)
        new = new[np.argsort(first[new])]
        nodes[new] = start + np.arange(len(new))
        return nodes[which.reshape(-1)], first[new], keys[new]

    def add(self, keys: NDArray[np.bytes_], nodes: Nodes) -> None:
        """Add new nodes."""
        order = np.argsort(keys, kind="stable")
        at = np.searchsorted(self.keys, keys[order])
        self.keys = np.insert(self.keys, at, keys[order])
        self.nodes = np.insert(self.nodes, at, nodes[order])

    def remove(self, nodes: Nodes) -> None:
        """Remove nodes."""
        kept = ~np.isin(self.nodes, nodes)
        self.keys, self.nodes = self.keys[kept], self.nodes[kept]


def digests(vectors: Vectors) -> NDArray[np.bytes_]:
    """Return a digest of each row, (n,): equal for equal vectors; 0 and -0 are equal."""
    found = np.empty(len(vectors), _KEY)
    for i, row in enumerate(vectors):
        found[i] = hashlib.blake2b((row + 0.0).tobytes(), digest_size=16).digest()
    return found
