"""What can go wrong with an index, each with a type of its own and one line of text."""

from __future__ import annotations

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
