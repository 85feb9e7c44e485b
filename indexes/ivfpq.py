"""Compressed approximate search: inverted lists of product-quantised vectors, by FAISS."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

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
from indexes.errors import IndexingError, TooFewPoints
from indexes.faiss_bytes import faiss_module, parse_index, stream_index, threads
from indexes.files import read_index, write_index

POINTS_A_CENTROID = 39
"""Training vectors a centroid, the least that FAISS advises."""
SAMPLE = 64
"""Training vectors a centroid at most; more are drawn from, with the seed."""


class IVFPQ(MutableIndex[Vectors]):
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
        if codes is None:
            codes = max(d for d in range(1, max(width // 4, 1) + 1) if width % d == 0)
        if codes < 1 or width % codes:
            raise IndexingError(f"codes {codes}: must divide the width {width}")
        if probes < 1 or (lists is not None and lists < 1):
            raise IndexingError("lists and probes must be at least 1")
        self.width, self.model, self.lists = width, model, lists
        self.codes, self.probes, self.seed, self.threads = codes, probes, seed, threads
        self._index: Any = None  # made when it is trained
        self._ids: Ids = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    def build(self, ids: ArrayLike, items: Vectors) -> None:
        """Train on the vectors (n, width), a seeded sample where there are many, and add them."""
        vectors = as_vectors(items, self.width, model=self.model)
        as_ids(ids, len(vectors))
        self._train(vectors)
        self.add(ids, vectors)

    def _train(self, vectors: Vectors) -> None:
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
        self._index = index

    def add(self, ids: ArrayLike, items: Vectors) -> None:
        """Take up more vectors; the lists and codewords stay as they were trained."""
        vectors = as_vectors(items, self.width, model=self.model)
        given = as_ids(ids, len(vectors))
        refuse_known(given, self._ids)
        if not len(given):
            return
        if self._index is None:
            self._train(vectors)
        with threads(self.threads):
            self._index.add_with_ids(vectors, given)
        self._ids = np.concatenate([self._ids, given])

    def remove(self, ids: ArrayLike) -> None:
        """Forget these ids."""
        places = places_of(ids, self._ids)
        if not len(places):
            return
        self._index.remove_ids(self._ids[places])
        self._ids = np.delete(self._ids, places)

    def search(self, queries: Vectors, k: int) -> list[Hits]:
        """About the best `k` for each row of `queries`; as many as `Flat` gives, always."""
        asked = as_vectors(queries, self.width, "query vector", self.model)
        wanted = min(as_k(k), len(self))
        if not wanted:
            return [Hits(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in asked]
        scores, ids = self._probe(asked, wanted, min(self.probes, self._index.nlist))
        short = np.flatnonzero((ids < 0).any(axis=1))
        if len(short):
            scores[short], ids[short] = self._probe(asked[short], wanted, self._index.nlist)
        return [in_order(*pair, wanted) for pair in zip(ids, scores, strict=True)]

    def _probe(self, queries: Vectors, k: int, probes: int) -> tuple[Vectors, Ids]:
        faiss = faiss_module()
        parameters = faiss.SearchParametersIVF(nprobe=probes)
        found: tuple[Vectors, Ids] = self._index.search(queries, k, params=parameters)
        return found

    def save(self, path: Path) -> None:
        """Write it as one file (`indexes.files`)."""
        if self._index is None:
            raise IndexingError("an index that holds nothing can't be saved. Build it first")
        header = {
            **{"width": self.width, "model": self.model, "metric": "inner product"},
            "count": len(self),
            "settings": self._settings(),
        }
        write_index(
            path,
            self.kind,
            header,
            {
                "ids": lambda write: write(self._ids.tobytes()),
                "faiss": lambda write: stream_index(self._index, write),
            },
            ("numpy", "faiss-cpu"),
        )

    def _settings(self) -> dict[str, Any]:
        names = ("lists", "codes", "probes", "seed", "threads")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the index at `path` into memory."""
        header, sections = read_index(path, cls.kind)
        index = cls(header["width"], header["model"], **header["settings"])
        # A copy, so that the file isn't kept mapped beside what FAISS holds of it.
        index._ids = np.array(np.frombuffer(sections["ids"], np.int64))
        index._index = parse_index(
            path, sections["faiss"], "IndexIVFPQ", index.width, len(index._ids)
        )
        return index
