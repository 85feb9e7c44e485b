"""FAISS, imported late, and its indexes as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from indexes.errors import IndexingError, NotAnIndex
from indexes.files import Write


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


def parse_index(path: Path, data: memoryview, kind: type | str, width: int, count: int) -> Any:
    """The FAISS index in `data`, checked to be what the header says it is."""
    faiss = faiss_module()
    try:
        index = faiss.deserialize_index(np.frombuffer(data, np.uint8))
    except RuntimeError:
        raise NotAnIndex(
            f"{path}: this FAISS ({faiss.__version__}) cannot read it. Build it again"
        ) from None
    if type(index).__name__ != kind or index.d != width or index.ntotal != count:
        raise NotAnIndex(f"{path}: the file is damaged (not the index of its header)")
    return index
