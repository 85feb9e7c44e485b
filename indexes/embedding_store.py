"""Embeddings on disk, addressed by content: one SQLite file for all runs and processes.

A *space* is all that determines a vector: weights, length limit, normalisation, dtype, device and
the versions of the libraries. In a space the key of a vector is the sha256 of its text. The file
holds hashes and vectors, and no text. SQLite's journal protects it from crashes and concurrent
writers.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recallbed.errors import UserError
from recallbed.harness.checksums import check_of
from recallbed.harness.files import named_or_cached
from recallbed.harness.fingerprint import canonical
from recallbed.harness.sqlite_file import IN_LIST, Kind, SqliteFile, select_in
from recallbed.harness.terminal import note

_OURS = 0x52424544  # SQLite's application id: "RBED"
_LATEST = 1 << 36  # seconds since 1970; a later time is damaged
_TABLES = """
CREATE TABLE space (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, width INTEGER NOT NULL, used REAL NOT NULL,
    crc INTEGER
);
CREATE TABLE request (key TEXT PRIMARY KEY, settings TEXT NOT NULL, crc INTEGER);
CREATE TABLE vector (
    space INTEGER NOT NULL REFERENCES space (id), text BLOB NOT NULL,
    cut INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX vector_text ON vector (space, text)
"""
# Vectors are not changed: their former checksum, of the data alone, is still accepted.
_FROM_1 = """
ALTER TABLE space ADD COLUMN crc INTEGER;
ALTER TABLE request ADD COLUMN crc INTEGER;
UPDATE space SET crc = check_of(id, CAST(name AS BLOB), width);
UPDATE request SET crc = check_of(CAST(key AS BLOB), CAST(settings AS BLOB))
"""
# Created on demand: stores of older versions have no such table.
_INPUTS = """
CREATE TABLE IF NOT EXISTS input (
    space INTEGER NOT NULL, input BLOB NOT NULL, text BLOB NOT NULL,
    PRIMARY KEY (space, input, text)
) WITHOUT ROWID
"""


class StoreError(UserError):
    """An embedding store that cannot be used: missing, full, damaged, too new, or no store."""


class VectorBatch(NamedTuple):
    """Vectors, (n, width), of the texts at `places` in a list, with a mask of truncated texts.

    `inputs` are digests of the model inputs, one per place; empty if the texts were not tokenised.
    """

    places: NDArray[np.int64]
    vectors: NDArray[np.float32]
    cut: NDArray[np.bool_]
    inputs: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Space:
    """The content of one space; `used` is a time in seconds since 1970."""

    id: int
    name: str
    width: int
    vectors: int
    bytes: int
    used: float


def store_path(named: str | None) -> Path | None:
    """Return `named`, or $RECALLBED_STORE, or a file in the user's cache; None for "none"."""
    return named_or_cached(named, "RECALLBED_STORE", "embeddings.sqlite")


def choose_store(named: str | None) -> Path | None:
    """Return the store of a run: `store_path(named)`, created if it does not exist.

    Raises StoreError if a named store cannot be used. For one in the cache that cannot be used,
    print a note on stderr and return None.
    """
    path = store_path(named)
    required = bool(named or os.environ.get("RECALLBED_STORE"))
    return path if path is not None and _usable(path, required) else None


@cache
def _usable(path: Path, required: bool) -> bool:
    """Whether a run can use the store at `path`; checked and reported once per process."""
    try:
        EmbeddingStore(path).check()
    except StoreError as error:
        if required:
            raise
        note(f"{error}. This run uses no store")
        return False
    return True


class EmbeddingStore(SqliteFile):
    """The store in the file `path`, created if it does not exist. Pickled by its path.

    A damaged vector is computed again and replaced, and a note reports their number. Every method
    raises StoreError, with the file, if it cannot be opened, is damaged as a whole, is no store or
    comes from a newer version.
    """

    kind = Kind(
        "embedding store",
        _OURS,
        2,
        _TABLES,
        "another with --store FILE, or --store none",
        StoreError,
        upgrades={1: _FROM_1},
        again="damaged vectors, computed again",
        recovery="Remove it (its vectors are computed again), or give",
    )

    def check(self) -> None:
        """Raise StoreError unless the file is a store that can be written."""
        with self._transaction():
            pass
        self.close()

    def recall_settings(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the settings recorded for `request`, None if there are none."""
        with self._using() as connection:
            found = connection.execute(
                "SELECT settings, crc FROM request WHERE key = ?", [canonical(request)]
            ).fetchone()
        if found is None or found[1] != check_of(canonical(request), found[0]):
            return None
        settings: dict[str, Any] = json.loads(found[0])
        return settings

    def keep_settings(self, request: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Record the settings of `request`."""
        with self._transaction() as connection:
            values = canonical(request), canonical(settings)
            connection.execute(
                "INSERT OR REPLACE INTO request VALUES (?, ?, ?)", [*values, check_of(*values)]
            )

    def width(self, space: Mapping[str, Any]) -> int | None:
        """Return the width of the vectors of `space`, None if the store has none."""
        with self._using() as connection:
            found = self._space(connection, canonical(space))
        return found[1] if found else None

    @staticmethod
    def _space(connection: sqlite3.Connection, name: str) -> tuple[int, int] | None:
        """Number and width of a space; None if it is missing or damaged."""
        found = connection.execute(
            "SELECT id, width, crc FROM space WHERE name = ?", [name]
        ).fetchone()
        if found is None or found[2] != check_of(found[0], name, found[1]):
            return None
        return int(found[0]), int(found[1])

    def read(self, space: Mapping[str, Any], texts: Sequence[str]) -> Iterator[VectorBatch]:
        """Yield the stored vectors of `texts` in batches. Marks the space as used."""
        name = canonical(space)
        with self._using() as connection:
            found = self._space(connection, name)
            if found is None:
                return
            number, width = found
            connection.execute("UPDATE space SET used = ? WHERE id = ?", [time.time(), number])
        for start in range(0, len(texts), IN_LIST):
            keys = [_key(text) for text in texts[start : start + IN_LIST]]
            with self._using() as connection:
                rows, damaged = self._rows(connection, number, width, name, keys)
            for _ in range(damaged):
                self._count_damage()
            places = [i for i, key in enumerate(keys) if key in rows]
            if places:
                yield VectorBatch(
                    np.array(places, np.int64) + start,
                    np.stack([rows[keys[i]][0] for i in places]),
                    np.array([rows[keys[i]][1] for i in places], bool),
                )

    @staticmethod
    def _rows(
        connection: sqlite3.Connection, number: int, width: int, name: str, keys: Sequence[bytes]
    ) -> tuple[dict[bytes, tuple[NDArray[np.float32], bool]], int]:
        """Vector and truncation mark of each stored key, and the number of damaged rows."""
        found, damaged, of_space = {}, 0, check_of(name)
        query = "SELECT text, cut, crc, data FROM vector WHERE space = ? AND text IN ({})"
        for key, cut, crc, data in select_in(connection, query, [number], keys):
            whole = isinstance(data, bytes) and isinstance(key, bytes) and len(data) == 4 * width
            if (
                whole
                and cut in (0, 1)
                and crc in (_check(of_space, key, cut, data), zlib.crc32(data))
            ):
                found[key] = np.frombuffer(data, "<f4"), bool(cut)
            else:
                damaged += 1
        return found, damaged

    def write(
        self,
        space: Mapping[str, Any],
        texts: Sequence[str],
        vectors: NDArray[np.float32],
        cut: NDArray[np.bool_],
        inputs: Sequence[bytes] = (),
    ) -> NDArray[np.float32]:
        """Store vectors, (len(texts), width), all or nothing; return those now in the store.

        If another process has stored a vector of the text first, that one is kept and returned, so
        that all runs, also resumed ones, use the same bits. With `inputs`, digests of the model
        inputs, the same holds for texts with equal inputs: they share one vector.
        """
        name, kept = canonical(space), np.array(vectors, np.float32)
        of_space = check_of(name)
        keys = [_key(text) for text in texts]
        with self._transaction() as connection:
            connection.execute(_INPUTS)
            number, width = self._space(connection, name) or self._new_space(
                connection, name, vectors.shape[1]
            )
            for start in range(0, len(keys), IN_LIST):
                chunk = slice(start, start + IN_LIST)
                known, _ = self._rows(connection, number, width, name, keys[chunk])
                some = list({*inputs[chunk]})
                known_inputs = self._of_inputs(connection, number, width, name, some)
                for i, key in enumerate(keys[chunk], start):
                    if key in known:
                        kept[i] = known[key][0]
                        continue
                    if inputs:
                        kept[i] = known_inputs.setdefault(inputs[i], kept[i])
                        connection.execute(
                            "INSERT OR IGNORE INTO input VALUES (?, ?, ?)", [number, inputs[i], key]
                        )
                    data = kept[i].astype("<f4").tobytes()
                    crc = _check(of_space, key, int(cut[i]), data)
                    connection.execute(
                        "INSERT OR REPLACE INTO vector VALUES (?, ?, ?, ?, ?)",
                        [number, key, int(cut[i]), crc, data],
                    )
        return kept

    @staticmethod
    def _new_space(connection: sqlite3.Connection, name: str, width: int) -> tuple[int, int]:
        """Create a space, replacing a damaged one; return its number and width."""
        connection.execute("DELETE FROM space WHERE name = ?", [name])
        number = connection.execute(
            "INSERT INTO space (name, width, used) VALUES (?, ?, ?)", [name, width, time.time()]
        ).lastrowid
        assert number is not None
        connection.execute("DELETE FROM vector WHERE space = ?", [number])
        connection.execute("DELETE FROM input WHERE space = ?", [number])
        connection.execute(
            "UPDATE space SET crc = ? WHERE id = ?", [check_of(number, name, width), number]
        )
        return number, width

    def of_inputs(
        self, space: Mapping[str, Any], inputs: Collection[bytes]
    ) -> dict[bytes, NDArray[np.float32]]:
        """Return the vectors of texts with these model inputs, by input."""
        name = canonical(space)
        with self._transaction() as connection:
            connection.execute(_INPUTS)
            found = self._space(connection, name)
            return self._of_inputs(connection, *found, name, list(inputs)) if found else {}

    def _of_inputs(
        self,
        connection: sqlite3.Connection,
        number: int,
        width: int,
        name: str,
        inputs: Sequence[bytes],
    ) -> dict[bytes, NDArray[np.float32]]:
        query = "SELECT input, text FROM input WHERE space = ? AND input IN ({})"
        pairs = list(select_in(connection, query, [number], inputs))
        rows, _ = self._rows(connection, number, width, name, [text for _, text in pairs])
        return {one: rows[text][0] for one, text in pairs if text in rows}

    def spaces(self) -> list[Space]:
        """Return all spaces, the last used first."""
        with self._using() as connection:
            rows = connection.execute(
                "SELECT s.id, s.name, s.width, count(v.text), coalesce(sum(length(v.data)), 0),"
                " s.used, s.crc FROM space s LEFT JOIN vector v ON v.space = s.id"
                " GROUP BY s.id ORDER BY s.used DESC, s.id"
            ).fetchall()
        found = []
        for number, name, width, vectors, size, used, crc in rows:
            sound = type(used) is float and 0 <= used < _LATEST
            if not sound or crc != check_of(number, name, width):
                raise self._complaint(
                    f"the {self.kind.name} is damaged (space {number}). {self.kind.recovery}"
                )
            found.append(Space(number, name.decode(), width, vectors, int(size), used))
        return found

    def models(self) -> dict[str, list[str]]:
        """Return the requested names of models, by the hash of their weights."""
        with self._using() as connection:
            rows = connection.execute("SELECT key, settings, crc FROM request").fetchall()
        found: dict[str, set[str]] = {}
        for key, text, crc in rows:
            if crc == check_of(key, text):
                settings = json.loads(text)
                found.setdefault(settings["weights"], set()).add(settings["model"])
        return {weights: sorted(names) for weights, names in found.items()}

    def remove(self, spaces: Sequence[int]) -> None:
        """Remove these spaces with all their vectors, and shrink the file."""
        with self._transaction() as connection:
            connection.execute(_INPUTS)
            for field in ("input WHERE space", "vector WHERE space", "space WHERE id"):
                connection.executemany(f"DELETE FROM {field} = ?", [[number] for number in spaces])
        with self._using() as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _check(of_space: int, key: bytes, cut: int, data: bytes) -> int:
    """The CRC-32 of a vector with its key and that of its space."""
    return zlib.crc32(data, zlib.crc32(key + bytes([cut]), of_space))
