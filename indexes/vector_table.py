"""Vectors by text (or any key), in memory or, above a bound, in a mapped temporary file."""

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

Floats = NDArray[np.float64]
_BLOCK_BYTES = 1 << 22  # of a file written at once


class VectorTable:
    """A growing float32 matrix, one row per distinct text.

    `max_memory` bounds the bytes of the matrix in memory; a larger one is in a temporary file,
    removed with the table or at the end of the process. A copy in a worker maps the same file, and
    uses its own file if it grows.
    """

    def __init__(self, max_memory: int | None = None) -> None:
        self.max_memory = max_memory
        self._row: dict[Hashable, int] = {}
        self._matrix: NDArray[np.float32] | None = None
        self._file: Path | None = None  # created by this instance

    def __contains__(self, text: Hashable) -> bool:
        return text in self._row

    def __len__(self) -> int:
        return len(self._row)

    @property
    def on_disk(self) -> bool:
        """Whether the matrix is in a file."""
        return isinstance(self._matrix, np.memmap)

    def rows_at_once(self, width: int, bytes_each: int) -> int:
        """Return the number of rows of `width` numbers within the bound, unlimited without one."""
        return sys.maxsize if self.max_memory is None else self.max_memory // (width * bytes_each)

    def reserve(self, texts: Sequence[Hashable], width: int) -> NDArray[np.int64]:
        """Add a row for each of `texts`, distinct and new; return their numbers."""
        first = len(self._row)
        wanted = first + len(texts)
        if self._matrix is None or wanted > len(self._matrix):
            # The texts of a run are added at once; further ones are added one by one.
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
            # Allocated now: a full disk during a write to the map would crash the process.
            with self._file.open("ab") as stream:
                for start in range(stream.tell(), rows * width * 4, _BLOCK_BYTES):
                    stream.write(bytes(min(_BLOCK_BYTES, rows * width * 4 - start)))
        except OSError as error:
            if first and self._file is not None:
                self._file.unlink(missing_ok=True)
                self._file = None
            raise UserError(
                f"{tempfile.gettempdir()}: no space for {rows * width * 4 >> 20} MiB of embeddings"
                f" ({error.strerror}). Free some space, set TMPDIR, or raise --max-memory"
            ) from None
        return np.memmap(self._file, np.float32, "r+", shape=(rows, width))

    def drop(self, texts: Sequence[Hashable]) -> None:
        """Undo the last `reserve`, of these texts."""
        for text in texts:
            del self._row[text]

    def write(self, rows: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Fill reserved rows."""
        assert self._matrix is not None
        self._matrix[rows] = vectors

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return a copy of rows by number, (len(rows), width)."""
        assert self._matrix is not None
        return np.asarray(self._matrix[rows])

    def read(self, texts: Sequence[Hashable]) -> NDArray[np.float32]:
        """Return a copy of the vectors of `texts`, (len(texts), width). Raises KeyError."""
        assert self._matrix is not None
        return np.asarray(self._matrix[[self._row[text] for text in texts]])

    def products(self, texts: Sequence[Hashable], vector: Floats) -> Floats:
        """Return the inner product of `vector` with that of each text, (len(texts),).

        Row by row in float64, so that none depends on how many are computed together; in blocks
        that keep within the bound. Raises KeyError.
        """
        found = np.empty(len(texts))
        block = max(self.rows_at_once(len(vector), 4 + 8), 1)
        for start in range(0, len(texts), block):
            rows = self.read(texts[start : start + block]).astype(np.float64)
            found[start : start + block] = np.einsum("ij,j->i", rows, vector)
        return found

    def __getstate__(self) -> dict[str, Any]:
        if self._file is None or self._matrix is None:
            return self.__dict__
        return {**self.__dict__, "_matrix": self._matrix.shape}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._file is not None:
            # Copy on write: a worker does not change the file.
            self._matrix = np.memmap(self._file, np.float32, "c", shape=state["_matrix"])
            self._file = None
