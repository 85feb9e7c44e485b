"""FAISS, imported late, and its indexes as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indexes.errors import IndexingError, NotAnIndex
from indexes.files import Write, damaged

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
