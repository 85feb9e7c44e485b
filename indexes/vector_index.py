"""Base class of vector indexes: checked input, the header on disk, and FAISS imported late."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
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
    refuse_known,
)
from indexes.files import Section, Write, damaged, read_index, write_index
from indexes.groups import Groups

_ROWS_AT_ONCE = 8192
Sections = Mapping[str, memoryview]


class VectorIndex(MutableIndex[Vectors]):
    """Inner products of float32 vectors of one `width`; `model` is the name of their encoder.

    For vectors of length 1 a score is a cosine, which rounding may lift above 1 by less than 1e-5.
    """

    libraries: ClassVar[tuple[str, ...]] = ("numpy", "faiss-cpu")
    """Distributions whose versions are in the header of a saved index."""
    setting_names: ClassVar[tuple[str, ...]] = ()
    """Parameters of the constructor that are saved in the header with width and model."""

    def __init__(self, width: int, model: str | None = None) -> None:
        if width < 1:
            raise IndexingError(f"width {width}: must be at least 1")
        self.width, self.model = width, model

    @property
    @abstractmethod
    def ids(self) -> Ids:
        """The ids that a search can find, (len(self),), in any order."""

    @abstractmethod
    def _add(self, ids: Ids, vectors: Vectors) -> None:
        """Add at least one vector; the input is checked."""

    @abstractmethod
    def _search(self, queries: Vectors, k: int) -> list[Hits]:
        """Search for at least one query; `k` is at most len(self)."""

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
        # An empty FAISS index returns padding, in one case with id 0.
        return self._search(asked, wanted) if wanted and len(asked) else [no_hits() for _ in asked]

    def settings(self) -> dict[str, Any]:
        """Return the settings of the index except width and model."""
        return {name: getattr(self, name) for name in self.setting_names}

    @abstractmethod
    def _sections(self) -> dict[str, Section]:
        """Return the sections to save."""

    @abstractmethod
    def _restore(self, path: Path, header: Mapping[str, Any], sections: Sections) -> None:
        """Fill a new instance. Raises ValueError or KeyError for inconsistent parts."""

    def _facts(self) -> dict[str, Any]:
        """Return further keys of the header."""
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
            raise damaged(path, "inconsistent parts") from None
        return index


class GroupedIndex(VectorIndex):
    """A vector index in FAISS that holds each distinct vector once, as a node."""

    exact = False

    def __init__(self, width: int, model: str | None, threads: int) -> None:
        super().__init__(width, model)
        if threads < 0:
            raise IndexingError(f"threads {threads}: must be at least 0")
        self.threads, self._groups = threads, Groups()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    @override
    def ids(self) -> Ids:
        return self._groups.ids

    @override
    def _sections(self) -> dict[str, Section]:
        return {"ids": self._groups.ids, "nodes": self._groups.nodes}


def exact_scores(query: Vectors, matrix: Vectors, places: NDArray[np.int64]) -> Vectors:
    """Return inner products with the rows at `places`, (len(places),), summed in float64.

    Row by row, so that a score does not depend on the other rows.
    """
    scores, wide = np.empty(len(places), np.float32), query.astype(np.float64)
    for start in range(0, len(places), _ROWS_AT_ONCE):
        rows = matrix[places[start : start + _ROWS_AT_ONCE]].astype(np.float64)
        scores[start : start + _ROWS_AT_ONCE] = np.einsum("ij,j->i", rows, wide)
    return scores


_PIECE = 1 << 20


def faiss_module() -> Any:
    """Return the module faiss. Raises IndexingError with the extra to install."""
    try:
        import faiss
    except ImportError:
        raise IndexingError(
            "this index needs FAISS. Run: pip install 'recallbed[index]', or use kind flat"
        ) from None
    return faiss


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run FAISS on `count` threads inside the block; 0 for all cores."""
    faiss = faiss_module()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count or before)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def stream_index(index: Any, write: Write) -> None:
    """Write `index` in FAISS's format to `write`, piece by piece."""
    faiss = faiss_module()
    faiss.write_index(index, faiss.PyCallbackIOWriter(write))


def parse_index(path: Path, data: memoryview, kind: str, width: int, count: int) -> Any:
    """Return the FAISS index in `data`, read piece by piece and checked against the header."""
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
        raise damaged(path, "not the index that its header describes")
    return index
