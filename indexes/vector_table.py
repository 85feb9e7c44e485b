"""Vectors by text (or any key), in memory or, past a bound, in a temporary file that is mapped."""

from __future__ import annotations

import os
import sys
import tempfile
import weakref
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recallbed.errors import UserError

_CLAIMED = 1 << 22  # bytes of a file written at once


class VectorTable:
    """A float32 matrix that grows, one row a distinct text.

    `max_memory` bounds the bytes of the matrix in memory; a larger one lives in a temporary file,
    removed with the table or at the end of the process. A copy in a worker maps the same file, and
    takes a file of its own where it grows.
    """

    def __init__(self, max_memory: int | None = None) -> None:
        self.max_memory = max_memory
        self._row: dict[Hashable, int] = {}
        self._matrix: NDArray[np.float32] | None = None
        self._file: Path | None = None  # of our own

    def __contains__(self, text: Hashable) -> bool:
        return text in self._row

    def __len__(self) -> int:
        return len(self._row)

    @property
    def on_disk(self) -> bool:
        """Whether the matrix lives in a file."""
        return isinstance(self._matrix, np.memmap)

    def rows_at_once(self, width: int, bytes_each: int) -> int:
        """How many rows of `width` numbers the bound has room for; without one, any number."""
        return sys.maxsize if self.max_memory is None else self.max_memory // (width * bytes_each)

    def reserve(self, texts: Sequence[Hashable], width: int) -> NDArray[np.int64]:
        """Make a row for each of `texts`, distinct and new; gives back their numbers."""
        first = len(self._row)
        wanted = first + len(texts)
        if self._matrix is None or wanted > len(self._matrix):
            # Texts that come one by one find room for some more; a whole run's come at once.
            self._grow(wanted if first == 0 else max(wanted, first * 5 // 4), width)
        for text in texts:
            self._row[text] = len(self._row)
        return np.arange(first, wanted)

    def _grow(self, rows: int, width: int) -> None:
        in_place = self._file is not None
        if self.max_memory is not None and rows * width * 4 > self.max_memory:
            matrix = self._grow_file(rows, width)
        else:
            matrix = np.empty((rows, width), np.float32)
        if self._matrix is not None and not in_place:
            matrix[: len(self._matrix)] = self._matrix
        self._matrix = matrix

    def _grow_file(self, rows: int, width: int) -> NDArray[np.float32]:
        first = self._file is None
        try:
            if self._file is None:
                handle, name = tempfile.mkstemp(prefix="recallbed-", suffix=".vectors")
                os.close(handle)
                self._file = Path(name)
                weakref.finalize(self, self._file.unlink, missing_ok=True)
            # The room is claimed now: a full disk met later, through the map, would be a crash.
            with self._file.open("ab") as stream:
                for start in range(stream.tell(), rows * width * 4, _CLAIMED):
                    stream.write(bytes(min(_CLAIMED, rows * width * 4 - start)))
        except OSError as error:
            if first and self._file is not None:
                self._file.unlink(missing_ok=True)
                self._file = None
            raise UserError(
                f"{tempfile.gettempdir()}: no room for {rows * width * 4 >> 20} MiB of embeddings"
                f" ({error.strerror}). Free some, set TMPDIR, or raise --max-memory"
            ) from None
        return np.memmap(self._file, np.float32, "r+", shape=(rows, width))

    def drop(self, texts: Sequence[Hashable]) -> None:
        """Take back the last `reserve`, of these texts."""
        for text in texts:
            del self._row[text]

    def write(self, rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Fill reserved rows."""
        assert self._matrix is not None
        self._matrix[rows] = vectors

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of rows by number, (len(rows), width), as a copy."""
        assert self._matrix is not None
        return np.asarray(self._matrix[rows])

    def read(self, texts: Sequence[Hashable]) -> NDArray[np.float32]:
        """The vectors of `texts`, (len(texts), width), as a copy. KeyError for an unknown one."""
        assert self._matrix is not None
        return np.asarray(self._matrix[[self._row[text] for text in texts]])

    def __getstate__(self) -> dict[str, Any]:
        if self._file is None or self._matrix is None:
            return self.__dict__
        return {**self.__dict__, "_matrix": self._matrix.shape}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._file is not None:
            # Copy on write: a worker that meets a new text changes no one else's file.
            self._matrix = np.memmap(self._file, np.float32, "c", shape=state["_matrix"])
            self._file = None
