"""Approximate search in inverted lists of product-quantised vectors, by FAISS."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from indexes.base import Hits, Ids, IndexingError, NotAnIndex, TooFewPoints, Vectors
from indexes.files import Section
from indexes.groups import Groups, KnownVectors
from indexes.vector_index import (
    GroupedIndex,
    Sections,
    faiss_module,
    parse_index,
    stream_index,
    threads,
)

POINTS_PER_CENTROID = 39
"""Minimum training vectors per centroid, as FAISS advises."""
_SAMPLE = 64
"""Maximum training vectors per centroid, sampled with the seed."""


class IVFPQ(GroupedIndex):
    """Distinct vectors as `codes` bytes in the list of the nearest centroid (Jegou et al., 2011).

    `codes` + 48 bytes per memory, a few percent of `Flat`; scores are those of the compressed
    vectors. There are `lists` centroids (None: 4 * sqrt(n), if there are enough training vectors),
    of which `probes` are searched, and all if these have too few vectors. `codes` must divide
    `width` (None: at most a quarter of it).

    Raises TooFewPoints if there are not `POINTS_PER_CENTROID` distinct vectors for each of 256
    codewords: below about 10,000 memories an exact index is better in any case.
    """

    kind = "ivfpq"
    setting_names = ("lists", "codes", "probes", "seed", "threads")

    def __init__(
        self,
        width: int,
        model: str | None = None,
        lists: int | None = None,
        codes: int | None = None,
        probes: int = 32,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        super().__init__(width, model, threads)
        faiss_module()
        if codes is None:
            codes = max(d for d in range(1, max(width // 4, 1) + 1) if width % d == 0)
        if codes < 1 or width % codes:
            raise IndexingError(f"codes {codes}: must divide the width {width}")
        if probes < 1 or (lists is not None and lists < 1):
            raise IndexingError("lists and probes must be at least 1")
        if not 0 <= seed < 2**31 - 1:
            raise IndexingError(f"seed {seed}: must be at least 0 and below 2**31 - 1")
        self.lists, self.codes, self.probes, self.seed = lists, codes, probes, seed
        self._index: Any = None  # until it is trained
        self._known = KnownVectors()
        self._next = 0  # the number of the next node; numbers are not reused

    def build(self, ids: ArrayLike, items: Vectors) -> None:
        """Train on the vectors, (n, width), or a seeded sample of many, and add them."""
        if not len(self):
            self._index = None  # an empty index is trained again
        super().build(ids, items)

    def _add(self, ids: Ids, vectors: Vectors) -> None:
        nodes, rows, keys = self._known.assign(vectors, self._next)
        new = self._next + np.arange(len(rows))
        # Lists and codewords are trained once.
        index = self._train(vectors[rows]) if self._index is None else self._index
        try:
            with threads(self.threads):
                index.add_with_ids(vectors[rows], new)
        except BaseException:  # also if interrupted
            index.remove_ids(new)
            raise
        self._index, self._next = index, self._next + len(new)
        self._known.add(keys, new)
        self._groups.add(ids, nodes)

    def _train(self, vectors: Vectors) -> Any:
        faiss = faiss_module()
        count = len(vectors)
        lists = self.lists or max(1, min(int(4 * math.sqrt(count)), count // POINTS_PER_CENTROID))
        needed = POINTS_PER_CENTROID * max(lists, 256)
        if count < needed:
            raise TooFewPoints(
                f"{count} distinct vectors are too few to train {lists} lists and 256 codewords:"
                f" {needed} are needed. Use kind flat or hnsw"
            )
        quantizer = faiss.IndexFlatIP(self.width)
        index = faiss.IndexIVFPQ(
            quantizer, self.width, lists, self.codes, 8, faiss.METRIC_INNER_PRODUCT
        )
        index.cp.seed = index.pq.cp.seed = self.seed + 1
        rng = np.random.default_rng(self.seed)
        most = _SAMPLE * max(lists, 256)
        if count > most:
            vectors = vectors[np.sort(rng.choice(count, most, replace=False))]
        with threads(self.threads):
            index.train(vectors)
        return index

    @override
    def remove(self, ids: ArrayLike) -> None:
        gone = self._groups.remove(ids)
        if len(gone):
            self._index.remove_ids(gone)
            self._known.remove(gone)

    def _search(self, queries: Vectors, k: int) -> list[Hits]:
        wanted = min(k, self._index.ntotal)
        scores, nodes = self._probe(queries, wanted, min(self.probes, self._index.nlist))
        short = np.flatnonzero((nodes < 0).any(axis=1))
        if len(short):
            scores[short], nodes[short] = self._probe(queries[short], wanted, self._index.nlist)
        return [self._groups.hits(*pair, k) for pair in zip(nodes, scores, strict=True)]

    def _probe(self, queries: Vectors, k: int, probes: int) -> tuple[Vectors, Ids]:
        parameters = faiss_module().SearchParametersIVF(nprobe=probes)
        found: tuple[Vectors, Ids] = self._index.search(queries, k, params=parameters)
        return found

    @override
    def _sections(self) -> dict[str, Section]:
        known: dict[str, Section] = {"keys": self._known.keys, "key_nodes": self._known.nodes}
        if self._index is not None:
            known["faiss"] = partial(stream_index, self._index)
        return super()._sections() | known

    def _facts(self) -> dict[str, Any]:
        return {"next": self._next}

    def _restore(self, path: Path, header: Mapping[str, Any], sections: Sections) -> None:
        # Copies, so that the file does not stay mapped.
        ids = np.array(np.frombuffer(sections["ids"], np.int64))
        if header["format"] < 2:  # one node per id, with its number
            nodes, self._next = ids, int(ids.max(initial=-1)) + 1
            if self._next > 2**62:
                raise NotAnIndex(
                    f"{path}: an index of format 1 with ids past 2**62. Build it again"
                )
        else:
            nodes = np.array(np.frombuffer(sections["nodes"], np.int64))
            keys = np.array(np.frombuffer(sections["keys"], self._known.keys.dtype))
            key_nodes = np.array(np.frombuffer(sections["key_nodes"], np.int64))
            self._known, self._next = KnownVectors(keys, key_nodes), int(header["next"])
        if len(ids) != len(nodes):
            raise ValueError
        self._groups = Groups(ids, nodes)
        if "faiss" in sections or len(self):
            count = len(np.unique(nodes))
            self._index = parse_index(path, sections["faiss"], "IndexIVFPQ", self.width, count)
