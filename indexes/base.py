"""Interface of an index: the caller's ids in, hits by (-score, id) out."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from recallbed.errors import UserError


class IndexingError(UserError):
    """Base class of the errors of indexes."""


class RepeatedId(IndexingError):
    """An id that the index already holds, or that is given twice."""


class UnknownId(IndexingError):
    """An id to be removed that the index does not hold."""


class WrongWidth(IndexingError):
    """Vectors whose width differs from that of the index."""


class NotFinite(IndexingError):
    """A vector with NaN or infinity in it."""


class TooFewPoints(IndexingError):
    """Fewer vectors than an approximate index needs for its training."""


class NotAnIndex(IndexingError):
    """A file that is no index, is damaged, or was written by a newer version."""


class ServerUnavailable(IndexingError):
    """A vector database that cannot be reached."""


Ids = NDArray[np.int64]
Vectors = NDArray[np.float32]
Items = TypeVar("Items")
"""The items and queries of an index: `Vectors` of shape (n, width), or n texts."""


class Hits(NamedTuple):
    """The hits of one query, best first, equal scores by id; `ids` and `scores` have shape (n,).

    n is at most the requested k, and less if the index holds less. There is no padding id.
    """

    ids: Ids
    scores: NDArray[np.float32]


class Index(ABC, Generic[Items]):
    """An index that is built once. Higher scores are better.

    Every method raises a subclass of IndexingError for invalid input.
    """

    kind: ClassVar[str]
    """The name in `--kind`."""
    exact: ClassVar[bool]
    """Whether a search finds the true best k."""

    @abstractmethod
    def build(self, ids: ArrayLike, items: Items) -> None:
        """Fill an empty index, all or nothing; `ids` are int64, distinct, one per item."""

    @abstractmethod
    def search(self, queries: Items, k: int) -> list[Hits]:
        """Return the best `k` for each query, or all if there are fewer."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write to `path` atomically: after a crash an older index is unchanged."""

    @classmethod
    @abstractmethod
    def load(cls, path: Path) -> Self:
        """Open the index at `path`. Raises NotAnIndex with what else it is."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items that a search can find."""


class MutableIndex(Index[Items]):
    """An index to which items can be added and from which they can be removed."""

    @override
    def build(self, ids: ArrayLike, items: Items) -> None:
        if len(self):
            raise IndexingError(f"build: the index already holds {len(self):,} items. Use add")
        self.add(ids, items)

    @abstractmethod
    def add(self, ids: ArrayLike, items: Items) -> None:
        """Add items, all or nothing."""

    @abstractmethod
    def remove(self, ids: ArrayLike) -> None:
        """Remove these ids, all or nothing. Raises UnknownId."""


def as_ids(ids: ArrayLike, count: int) -> Ids:
    """Return `ids` as int64, (count,), checked to be integers from 0, and distinct."""
    try:
        given = np.asarray(ids)
    except ValueError:
        raise IndexingError("ids: a flat list of integers is needed") from None
    if given.shape != (count,):
        raise IndexingError(f"ids of shape {given.shape} for {count} items: give one id per item")
    if count and given.dtype.kind not in "iu":
        raise IndexingError(f"ids of type {given.dtype}: ids must be integers below 2**63")
    if count and (given.min() < 0 or given.max() > np.iinfo(np.int64).max):
        raise IndexingError(f"ids {given.min()} to {given.max()}: ids must be from 0 to 2**63 - 1")
    known: Ids = given.astype(np.int64)
    ordered = np.sort(known)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice):
        raise RepeatedId(f"id {twice[0]} is given twice")
    return known


def _among(held: Ids, ids: Ids) -> NDArray[np.bool_]:
    """Mask of `held` that are in `ids`, (len(held),). Fast for long `held` and short `ids`."""
    ordered = np.sort(ids)
    at = np.minimum(np.searchsorted(ordered, held), len(ordered) - 1)
    return np.asarray(ordered[at] == held)


def refuse_known(ids: Ids, held: Ids) -> None:
    """Raise RepeatedId if one of `ids` is in `held`."""
    known = held[_among(held, ids)] if len(ids) else ids
    if len(known):
        raise RepeatedId(f"id {known.min()} is already in the index. Remove it first")


def places_of(ids: ArrayLike, held: Ids) -> NDArray[np.int64]:
    """Return the places of `ids` in `held`, ascending. Raises UnknownId for a missing one."""
    given = as_ids(ids, np.size(ids))
    places = np.flatnonzero(_among(held, given)) if len(given) else np.empty(0, np.int64)
    if len(places) < len(given):
        raise UnknownId(f"id {np.setdiff1d(given, held[places])[0]} is not in the index")
    return places.astype(np.int64)


def as_vectors(
    vectors: Any, width: int | None, what: str = "vector", model: str | None = None
) -> Vectors:
    """Return `vectors` as float32, (n, width), checked to be finite; any width if it is None.

    Raises WrongWidth with both widths, and NotFinite with the first invalid row: NaN, infinity, or
    a squared length beyond float32, so that no inner product overflows.
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
        raise NotFinite(f"{what} {faulty[0]} of {len(given)} is not finite")
    return given


def squared_lengths(vectors: Vectors) -> NDArray[np.float32]:
    """Return the squared length of each row, (n,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.einsum("ij,ij->i", vectors, vectors))


def as_k(k: int) -> int:
    """Return `k`, checked to be an integer from 1."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise IndexingError(f"k {k}: must be an integer of at least 1")
    return int(k)


def in_order(ids: Ids, scores: NDArray[np.float32], k: int) -> Hits:
    """Return the first `k` by (-score, id)."""
    order = np.lexsort((ids, -scores))[:k]
    return Hits(ids[order], scores[order])


def no_hits() -> Hits:
    """Return the hits of an empty index."""
    return Hits(np.empty(0, np.int64), np.empty(0, np.float32))


def check_texts(texts: Sequence[str]) -> None:
    """Raise IndexingError unless `texts` is a sequence of strings."""
    if isinstance(texts, str):
        raise IndexingError("a list of texts is needed, not one text")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise IndexingError(f"text {i} is of type {type(text).__name__}, not a string")


# Both limits follow the measurements in docs/indexes.md.
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
    """Return the kind that `auto` selects for `count` memories."""
    if count <= FLAT_UP_TO:
        return "flat"
    return "hnsw" if count <= HNSW_UP_TO else "ivfpq"


def make_index(kind: str, count: int = 0, **settings: Any) -> Index[Any]:
    """Return an empty index; `kind` "auto" depends on `count`, the number of memories to come.

    Raises IndexingError for an unknown kind or setting.
    """
    cls = _find(kind_for(count) if kind == "auto" else kind)
    try:
        index: Index[Any] = cls(**settings)
    except TypeError as error:
        raise IndexingError(f"index {kind}: {error}") from None
    return index


def open_index(path: Path, address: str | None = None) -> Index[Any]:
    """Open the index saved at `path`, of any kind. Raises NotAnIndex.

    $MILVUS_TOKEN is sent only to a server whose `address` the user gave, not to an address that
    only the file contains.
    """
    from indexes.files import read_header

    kind = read_header(path)["kind"]
    if kind not in _CLASSES:
        raise NotAnIndex(f"{path}: an index of kind `{kind}`, unknown to this recallbed")
    found = _find(kind)
    index: Index[Any] = found.load(path, address) if kind == "milvus" else found.load(path)
    return index
