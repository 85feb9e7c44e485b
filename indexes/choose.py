"""An index by name, or by the number of memories it is to hold."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from indexes.base import Index
from indexes.errors import IndexingError, NotAnIndex
from indexes.files import read_header

# docs/indexes.md has the measurements behind both.
FLAT_UP_TO = 50_000
HNSW_UP_TO = 2_000_000

_CLASSES = {
    "flat": "indexes.flat:Flat",
    "hnsw": "indexes.hnsw:HNSW",
    "ivfpq": "indexes.ivfpq:IVFPQ",
    "bm25s": "indexes.lexical:Lexical",
    "milvus": "indexes.milvus:Milvus",
}
KINDS = tuple(_CLASSES)


def _find(kind: str) -> Any:
    if kind not in _CLASSES:
        raise IndexingError(f"no index of kind `{kind}` (there are: auto, {', '.join(KINDS)})")
    module, _, name = _CLASSES[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def kind_for(count: int) -> str:
    """The kind that `auto` means for so many memories."""
    if count <= FLAT_UP_TO:
        return "flat"
    return "hnsw" if count <= HNSW_UP_TO else "ivfpq"


def make_index(kind: str, count: int = 0, **settings: Any) -> Index[Any]:
    """An empty index; `kind` "auto" goes by `count`, the number of memories to come.

    Raises IndexingError for a kind or a setting that doesn't exist.
    """
    cls = _find(kind_for(count) if kind == "auto" else kind)
    try:
        index: Index[Any] = cls(**settings)
    except TypeError as error:
        raise IndexingError(f"index {kind}: {error}") from None
    return index


def open_index(path: Path, address: str | None = None) -> Index[Any]:
    """The index saved at `path`, of whatever kind it is. Raises NotAnIndex where it is none.

    `address` is a server's that the user gave: only there is $MILVUS_TOKEN sent, and not to one
    that the file alone names.
    """
    kind = read_header(path)["kind"]
    if kind not in _CLASSES:
        raise NotAnIndex(f"{path}: an index of kind `{kind}`, unknown to this recallbed")
    found = _find(kind)
    index: Index[Any] = found.load(path, address) if kind == "milvus" else found.load(path)
    return index
