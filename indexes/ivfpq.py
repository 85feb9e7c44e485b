"""Compressed approximate search: inverted lists of product-quantised vectors, by FAISS."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from indexes.base import Hits, Ids, Vectors, in_order, places_of
from indexes.errors import IndexingError, TooFewPoints
from indexes.faiss_bytes import faiss_module, parse_index, stream_index, threads
from indexes.files import Write
from indexes.vector_index import Sections, VectorIndex

POINTS_A_CENTROID = 39
"""Training vectors a centroid, the least that FAISS advises."""
SAMPLE = 64
"""Training vectors a centroid at most; more are drawn from, with the seed."""


class IVFPQ(VectorIndex):
    """Each vector as `codes` bytes in the list of its nearest centroid (Jegou et al., 2011).

    `codes` + 16 bytes a memory, some percent of `Flat`; scores are those of the compressed vectors.
    `lists` centroids (None: 4 * sqrt(n), as far as training vectors allow), of which `probes` are
    looked into; `codes` must divide `width` (None: a quarter of it, or less). A search that comes
    short looks into all lists.

    Raises TooFewPoints where there are not `POINTS_A_CENTROID` vectors for each of 256 codewords:
    below some 10,000 memories an exact index is both smaller to handle and better.
    """

    kind = "ivfpq"
    exact = False
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
        super().__init__(width, model)
        faiss_module()
        if codes is None:
            codes = max(d for d in range(1, max(width // 4, 1) + 1) if width % d == 0)
        if codes < 1 or width % codes:
            raise IndexingError(f"codes {codes}: must divide the width {width}")
        if probes < 1 or (lists is not None and lists < 1):
            raise IndexingError("lists and probes must be at least 1")
        if not 0 <= seed < 2**31 - 1 or threads < 0:
            raise IndexingError("seed and threads must be at least 0, the seed below 2**31 - 1")
        self.lists, self.codes, self.probes = lists, codes, probes
        self.seed, self.threads = seed, threads
        self._index: Any = None  # made when it is trained
        self._ids: Ids = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def ids(self) -> Ids:
        """The ids that it holds, (len(self),)."""
        return self._ids

    def build(self, ids: ArrayLike, items: Vectors) -> None:
        """Train on the vectors (n, width), a seeded sample where there are many, and add them."""
        if not len(self):
            self._index = None  # an emptied index is trained anew
        super().build(ids, items)

    def _add(self, ids: Ids, vectors: Vectors) -> None:
        # Lists and codewords stay as they are first trained.
        index = self._train(vectors) if self._index is None else self._index
        try:
            with threads(self.threads):
                index.add_with_ids(vectors, ids)
        except BaseException:  # stopped half way, by Ctrl-C, say
            index.remove_ids(ids)
            raise
        self._index, self._ids = index, np.concatenate([self._ids, ids])

    def _train(self, vectors: Vectors) -> Any:
        faiss = faiss_module()
        count = len(vectors)
        lists = self.lists or max(1, min(int(4 * math.sqrt(count)), count // POINTS_A_CENTROID))
        needed = POINTS_A_CENTROID * max(lists, 256)
        if count < needed:
            raise TooFewPoints(
                f"{count} vectors are too few to train {lists} lists and 256 codewords:"
                f" {needed} are needed. Take kind flat or hnsw"
            )
        quantizer = faiss.IndexFlatIP(self.width)
        index = faiss.IndexIVFPQ(
            quantizer, self.width, lists, self.codes, 8, faiss.METRIC_INNER_PRODUCT
        )
        index.cp.seed = index.pq.cp.seed = self.seed + 1
        rng = np.random.default_rng(self.seed)
        most = SAMPLE * max(lists, 256)
        if count > most:
            vectors = vectors[np.sort(rng.choice(count, most, replace=False))]
        with threads(self.threads):
            index.train(vectors)
        return index

    def remove(self, ids: ArrayLike) -> None:
        """Forget these ids."""
        places = places_of(ids, self._ids)
        if not len(places):
            return
        self._index.remove_ids(self._ids[places])
        self._ids = np.delete(self._ids, places)

    def _search(self, queries: Vectors, k: int) -> list[Hits]:
        scores, ids = self._probe(queries, k, min(self.probes, self._index.nlist))
        short = np.flatnonzero((ids < 0).any(axis=1))
        if len(short):
            scores[short], ids[short] = self._probe(queries[short], k, self._index.nlist)
        return [in_order(*pair, k) for pair in zip(ids, scores, strict=True)]

    def _probe(self, queries: Vectors, k: int, probes: int) -> tuple[Vectors, Ids]:
        faiss = faiss_module()
        parameters = faiss.SearchParametersIVF(nprobe=probes)
        found: tuple[Vectors, Ids] = self._index.search(queries, k, params=parameters)
        return found

    def _sections(self) -> dict[str, Callable[[Write], None]]:
        found: dict[str, Callable[[Write], None]] = {}
        found["ids"] = lambda write: write(self._ids.tobytes())
        if self._index is not None:
            found["faiss"] = lambda write: stream_index(self._index, write)
        return found

    def _restore(self, path: Path, header: Mapping[str, Any], sections: Sections) -> None:
        # A copy, so that the file isn't kept mapped beside what FAISS holds of it.
        self._ids = np.array(np.frombuffer(sections["ids"], np.int64))
        if "faiss" in sections or len(self):
            count = len(self._ids)
            self._index = parse_index(path, sections["faiss"], "IndexIVFPQ", self.width, count)
