"""What the indexes of vectors have in common: checks at the door, and the header on disk."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from indexes.base import (
    Hits,
    Ids,
    IndexingError,
    MutableIndex,
    NotAnIndex,
    Vectors,
    as_ids,
    as_k,
    as_vectors,
    no_hits,
    refuse_filled,
    refuse_known,
)
from indexes.files import Write, damaged, read_index, write_index

BLOCK = 8192
Sections = Mapping[str, memoryview]


class VectorIndex(MutableIndex[Vectors]):
    """Inner products of float32 vectors of one `width`; `model` names what made them.

    Where the vectors have length 1 a score is a cosine. Rounding may lift it past 1, by less than
    1e-5: it is given as it is.
    """

    libraries: ClassVar[tuple[str, ...]] = ("numpy", "faiss-cpu")
    """Distributions whose versions the header of a saved index holds."""
    setting_names: ClassVar[tuple[str, ...]] = ()
    """Attributes that the constructor takes and the header holds, beside width and model."""

    def __init__(self, width: int, model: str | None = None) -> None:
        if width < 1:
            raise IndexingError(f"width {width}: must be at least 1")
        self.width, self.model = width, model

    @property
    @abstractmethod
    def ids(self) -> Ids:
        """The ids that a search can find, (len(self),), in no order that means anything."""

    @abstractmethod
    def _add(self, ids: Ids, vectors: Vectors) -> None:
        """Take up at least one vector; all is checked."""

    @abstractmethod
    def _search(self, queries: Vectors, k: int) -> list[Hits]:
        """The hits of at least one query; `k` is at most len(self)."""

    @override
    def build(self, ids: ArrayLike, items: Vectors) -> None:
        refuse_filled(self)
        self.add(ids, items)

    @override
    def add(self, ids: ArrayLike, items: Vectors) -> None:
        vectors = as_vectors(items, self.width, model=self.model)
        given = as_ids(ids, len(vectors))
        refuse_known(given, self.ids)
        if len(given):
            self._add(given, vectors)

    @override
    def search(self, queries: Vectors, k: int) -> list[Hits]:
        asked = as_vectors(queries, self.width, "query vector", self.model)
        wanted = min(as_k(k), len(self))
        # Asked of an empty index, FAISS has answered padding, and once id 0.
        return self._search(asked, wanted) if wanted and len(asked) else [no_hits() for _ in asked]

    def settings(self) -> dict[str, Any]:
        """What the index was made with, beside width and model."""
        return {name: getattr(self, name) for name in self.setting_names}

    @abstractmethod
    def _sections(self) -> dict[str, Callable[[Write], None]]:
        """What is saved; each function streams its bytes."""

    @abstractmethod
    def _restore(self, path: Path, header: Mapping[str, Any], sections: Sections) -> None:
        """Fill a fresh instance. ValueError or KeyError where the parts don't fit together."""

    def _facts(self) -> dict[str, Any]:
        """What else the header holds."""
        return {}

    @override
    def save(self, path: Path) -> None:
        header = {
            "width": self.width,
            "model": self.model,
            "metric": "inner product",
            "count": len(self),
            "settings": self.settings(),
            **self._facts(),
        }
        write_index(path, self.kind, header, self._sections(), self.libraries)

    @classmethod
    @override
    def load(cls, path: Path) -> Self:
        header, sections = read_index(path, cls.kind)
        try:
            index = cls(header["width"], header["model"], **header["settings"])
            index._restore(path, header, sections)
            if len(index) != header["count"]:
                raise ValueError
        except IndexingError:
            raise
        except (ValueError, KeyError, TypeError):
            raise damaged(path, "its parts don't fit together") from None
        return index


def exact_scores(query: Vectors, matrix: Vectors, places: NDArray[np.int64]) -> Vectors:
    """Inner products with the rows at `places`, (len(places),), summed in float64 row by row.

    A score doesn't depend on what is computed beside it.
    """
    scores, wide = np.empty(len(places), np.float32), query.astype(np.float64)
    for start in range(0, len(places), BLOCK):
        rows = matrix[places[start : start + BLOCK]].astype(np.float64)
        scores[start : start + BLOCK] = np.einsum("ij,j->i", rows, wide)
    return scores


_PIECE = 1 << 20


def faiss_module() -> Any:
    """The module faiss; an IndexingError that names the extra where it isn't installed."""
    try:
        import faiss
    except ImportError:
        raise IndexingError(
            "this index needs FAISS. Run: pip install 'recallbed[index]', or take kind flat"
        ) from None
    return faiss


@contextmanager
def threads(count: int) -> Iterator[None]:
    """FAISS on `count` threads inside the block; 0 for as many as there are cores."""
    faiss = faiss_module()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count or before)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def stream_index(index: Any, write: Write) -> None:
    """Hand FAISS's own form of `index` to `write`, piece by piece."""
    faiss = faiss_module()
    writer = faiss.PyCallbackIOWriter(write)
    faiss.write_index(index, writer)


def parse_index(path: Path, data: memoryview, kind: str, width: int, count: int) -> Any:
    """The FAISS index in `data`, read piece by piece and checked to be what the header says."""
    faiss = faiss_module()
    at = 0

    def read(size: int) -> bytes:
        nonlocal at
        piece = bytes(data[at : at + size])
        at += len(piece)
        return piece

    try:
        index = faiss.read_index(faiss.PyCallbackIOReader(read, _PIECE))
    except RuntimeError:
        raise NotAnIndex(
            f"{path}: this FAISS ({faiss.__version__}) cannot read it. Build it again"
        ) from None
    if (type(index).__name__, index.d, index.ntotal) != (kind, width, count):
        raise damaged(path, "not the index of its header")
    return index
