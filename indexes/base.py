"""The contract of an index: ids of the caller's own in, hits by (-score, id) out."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recallbed.errors import UserError


class IndexingError(UserError):
    """An index can't do what was asked."""


class RepeatedId(IndexingError):
    """An id that the index already holds, or that was given twice."""


class UnknownId(IndexingError):
    """An id to be removed that the index doesn't hold."""


class WrongWidth(IndexingError):
    """Vectors of another width than the index's."""


class NotFinite(IndexingError):
    """A vector with NaN or infinity in it."""


class TooFewPoints(IndexingError):
    """Fewer vectors than an approximate index needs for its training."""


class NotAnIndex(IndexingError):
    """A file that is foreign, damaged, or was written by something newer."""


class ServerUnavailable(IndexingError):
    """A vector database that can't be reached."""


Ids = NDArray[np.int64]
Vectors = NDArray[np.float32]
Items = TypeVar("Items")
"""What an index holds and is asked with: `Vectors` of shape (n, width), or n texts."""


class Hits(NamedTuple):
    """The answer to one query, best first, equal scores by id; `ids` and `scores` have shape (n,).

    n is at most the k asked for, less where the index holds less. There is no padding id.
    """

    ids: Ids
    scores: NDArray[np.float32]


class Index(ABC, Generic[Items]):
    """Built once, searched often. Higher scores are better.

    Every method raises a subclass of `indexes.base.IndexingError` for what a caller did wrong.
    """

    kind: ClassVar[str]
    """The name by which a user chooses it."""
    exact: ClassVar[bool]
    """Whether a search finds the true best k."""

    @abstractmethod
    def build(self, ids: ArrayLike, items: Items) -> None:
        """Fill an empty index; `ids` are int64, distinct, one an item. All or none."""

    @abstractmethod
    def search(self, queries: Items, k: int) -> list[Hits]:
        """The best `k` for each query; no hits from an empty index."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write it to `path` in one step: after a crash the old index is still there, whole."""

    @classmethod
    @abstractmethod
    def load(cls, path: Path) -> Self:
        """The index at `path`; NotAnIndex says what else it is."""

    @abstractmethod
    def __len__(self) -> int:
        """How many items a search can find."""


class MutableIndex(Index[Items]):
    """An index that grows and shrinks without being built anew."""

    @abstractmethod
    def add(self, ids: ArrayLike, items: Items) -> None:
        """Take up more items. All or none: a fault leaves the index as it was."""

    @abstractmethod
    def remove(self, ids: ArrayLike) -> None:
        """Forget these ids; UnknownId for one that isn't there, and then none is forgotten."""


def refuse_filled(index: Index[Any]) -> None:
    """Raises IndexingError where `index` holds something: `build` is for an empty one."""
    if len(index):
        raise IndexingError(f"build: the index holds {len(index):,} already. Use add")


def as_ids(ids: ArrayLike, count: int) -> Ids:
    """`ids` as int64 of shape (count,), checked to be whole, not negative and distinct."""
    try:
        given = np.asarray(ids)
    except ValueError:
        raise IndexingError("ids: a flat list of whole numbers is needed") from None
    if given.shape != (count,):
        raise IndexingError(f"ids of shape {given.shape} for {count} items: one id an item")
    if count and given.dtype.kind not in "iu":
        raise IndexingError(f"ids of type {given.dtype}: ids are whole numbers below 2**63")
    if count and (given.min() < 0 or given.max() > np.iinfo(np.int64).max):
        raise IndexingError(f"ids {given.min()} to {given.max()}: ids go from 0 to 2**63 - 1")
    known: Ids = given.astype(np.int64)
    ordered = np.sort(known)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise RepeatedId(f"id {twice[0]} is given twice")
    return known


def _among(held: Ids, ids: Ids) -> NDArray[np.bool_]:
    """Which of `held` are among `ids`, (len(held),). Quick where `held` is long and `ids` short."""
    ordered = np.sort(ids)
    at = np.minimum(np.searchsorted(ordered, held), len(ordered) - 1)
    return np.asarray(ordered[at] == held)


def refuse_known(ids: Ids, held: Ids) -> None:
    """Raises RepeatedId where one of `ids` is among `held`."""
    known = held[_among(held, ids)] if len(ids) else ids
    if len(known):
        raise RepeatedId(f"id {known.min()} is in the index already. Remove it first")


def places_of(ids: ArrayLike, held: Ids) -> NDArray[np.int64]:
    """Where `ids` stand in `held`, ascending. Raises UnknownId for one that doesn't."""
    given = as_ids(ids, np.size(ids))
    places = np.flatnonzero(_among(held, given)) if len(given) else np.empty(0, np.int64)
    if len(places) < len(given):
        raise UnknownId(f"id {np.setdiff1d(given, held[places])[0]} is not in the index")
    return places.astype(np.int64)


def as_vectors(
    vectors: Any, width: int | None, what: str = "vector", model: str | None = None
) -> Vectors:
    """`vectors` as float32 of shape (n, width), checked to be finite; any width where it is None.

    Raises WrongWidth naming both widths, and NotFinite naming the first faulty row: NaN, infinity,
    or a length whose square passes float32, so that no inner product overflows.
    """
    try:
        with np.errstate(over="ignore"):
            given = np.ascontiguousarray(vectors, np.float32)
    except (ValueError, TypeError):
        raise WrongWidth(f"{what}s: a matrix of numbers (n, width) is needed") from None
    if given.ndim != 2:
        raise WrongWidth(f"{what}s of shape {given.shape}: a matrix (n, width) is needed")
    if width is not None and given.shape[1] != width:
        raise WrongWidth(
            f"{what}s of width {given.shape[1]} for an index of width {width}"
            + (f", made by {model}" if model else "")
            + ": were they made by another model?"
        )
    faulty = np.flatnonzero(~np.isfinite(squared_lengths(given)))
    if len(faulty):
        raise NotFinite(f"{what} {faulty[0]} of {len(given)} isn't finite")
    return given


def squared_lengths(vectors: Vectors) -> NDArray[np.float32]:
    """The squared length of each row, (n,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.einsum("ij,ij->i", vectors, vectors))


def as_k(k: int) -> int:
    """`k`, checked to be a whole number from 1."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise IndexingError(f"k {k}: must be a whole number of at least 1")
    return int(k)


def in_order(ids: Ids, scores: NDArray[np.float32], k: int) -> Hits:
    """The first `k` by (-score, id)."""
    order = np.lexsort((ids, -scores))[:k]
    return Hits(ids[order], scores[order])


def no_hits() -> Hits:
    """What an empty index answers."""
    return Hits(np.empty(0, np.int64), np.empty(0, np.float32))


def check_texts(texts: Sequence[str]) -> None:
    """Raises IndexingError where `texts` is one string, or holds something else than strings."""
    if isinstance(texts, str):
        raise IndexingError("one text where a list of texts is needed")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise IndexingError(f"text {i} is {type(text).__name__}, not a string")


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
    from indexes.files import read_header

    kind = read_header(path)["kind"]
    if kind not in _CLASSES:
        raise NotAnIndex(f"{path}: an index of kind `{kind}`, unknown to this recallbed")
    found = _find(kind)
    index: Index[Any] = found.load(path, address) if kind == "milvus" else found.load(path)
    return index
