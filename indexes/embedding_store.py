"""Embeddings on disk, addressed by content: one SQLite file for all runs and processes.

A *space* is all that decides a vector: weights, length limit, normalisation, dtype, device and the
versions of the libraries. Inside a space a vector is found by the sha256 of its text. The file
holds hashes and vectors and no text. SQLite's journal keeps it whole through crashes and several
writers.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.fingerprint import canonical

SCHEMA = 1
_OURS = 0x52424544  # SQLite's application id: "RBED"
_CHUNK = 500
_TABLES = """
CREATE TABLE space (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, width INTEGER NOT NULL, used REAL NOT NULL
);
CREATE TABLE request (key TEXT PRIMARY KEY, settings TEXT NOT NULL);
CREATE TABLE vector (
    space INTEGER NOT NULL REFERENCES space (id), text BLOB NOT NULL,
    cut INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX vector_text ON vector (space, text);
"""


def choose_store(named: str | None) -> Path | None:
    """The file that a command uses: `named`, else $RECALLBED_STORE, else one in the user's cache.

    "none" is no store. Raises UserError where a named one can't be used; one in the cache that
    can't is left out, with a line on stderr.
    """
    wish = named or os.environ.get("RECALLBED_STORE")
    if wish == "none":
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    path = Path(wish).expanduser() if wish else cache / "recallbed" / "embeddings.sqlite"
    store = EmbeddingStore(path)
    try:
        store.recall_settings({})
    except UserError as error:
        if wish:
            raise
        print(f"{error}. This run goes without", file=sys.stderr)
        return None
    store.close()
    return path


@dataclass(frozen=True, slots=True)
class Space:
    """What a store holds of one space; `used` is a time in seconds since 1970."""

    id: int
    name: str
    width: int
    vectors: int
    bytes: int
    used: float


class EmbeddingStore:
    """The store in the file `path`, made where there is none.

    Every method raises UserError, with the file, for one that can't be had, is damaged, is
    something else or comes from a newer version. Pickled by its path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._process = 0

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_connection": None, "_process": 0}

    def _open(self) -> sqlite3.Connection:
        # A connection must not cross a fork.
        if self._connection is None or self._process != os.getpid():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self._process = os.getpid()
            self._check(self._connection)
        return self._connection

    def _check(self, connection: sqlite3.Connection) -> None:
        head = self.path.read_bytes()[:23] if self.path.stat().st_size < 4096 else b""
        if head.startswith(b"version https://git-lfs"):
            raise UserError(f"{self.path}: this is a Git LFS pointer, not an embedding store")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables and not found:
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_OURS}")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
            elif found != _OURS:
                raise UserError(f"{self.path}: another program's database. Give another --store")
            elif version > SCHEMA:
                raise UserError(
                    f"{self.path}: an embedding store of schema {version}, from a newer recallbed;"
                    f" this one knows {SCHEMA}. Give another --store"
                )
        finally:
            connection.execute("COMMIT")

    @contextmanager
    def _faults(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._open()
        except (sqlite3.Error, OSError) as error:
            why = getattr(error, "strerror", None) or error
            self.close()
            raise UserError(
                f"{self.path}: the embedding store can't be used ({why})."
                " Mend it, give another --store, or --store none"
            ) from None

    def close(self) -> None:
        """Give the file free; the next call opens it again."""
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
        self._connection = None

    def recall_settings(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The settings that were in force when `request` was last made; None if it never was."""
        with self._faults() as connection:
            found = connection.execute(
                "SELECT settings FROM request WHERE key = ?", [canonical(request)]
            ).fetchone()
        if found is None:
            return None
        settings: dict[str, Any] = json.loads(found[0])
        return settings

    def keep_settings(self, request: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        """Remember the settings that `request` led to."""
        with self._faults() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO request VALUES (?, ?)",
                [canonical(request), canonical(settings)],
            )

    def width(self, space: Mapping[str, Any]) -> int | None:
        """The width of the vectors of `space`, None where the store has none; marks it as used."""
        with self._faults() as connection:
            found = connection.execute(
                "SELECT id, width FROM space WHERE name = ?", [canonical(space)]
            ).fetchone()
            if found:
                connection.execute(
                    "UPDATE space SET used = ? WHERE id = ?", [time.time(), found[0]]
                )
        return int(found[1]) if found else None

    def read(
        self, space: Mapping[str, Any], texts: Sequence[str]
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]]:
        """What is stored of `texts`, in pieces: their places in `texts`, vectors, and cut marks."""
        width = self.width(space)
        for start in range(0, len(texts) if width else 0, _CHUNK):
            chunk = {_key(text): start + i for i, text in enumerate(texts[start : start + _CHUNK])}
            marks = ",".join("?" * len(chunk))
            with self._faults() as connection:
                rows = connection.execute(
                    f"SELECT text, cut, data FROM vector WHERE text IN ({marks})"
                    " AND space = (SELECT id FROM space WHERE name = ?)",
                    [*chunk, canonical(space)],
                ).fetchall()
            for key, _, data in rows:
                if len(data) != 4 * (width or 0):
                    raise UserError(
                        f"{self.path}: the embedding store is damaged (vector {key.hex()[:12]})."
                        " Remove the file, or give another --store"
                    )
            if rows:
                yield (
                    np.array([chunk[key] for key, _, _ in rows], np.int64),
                    np.frombuffer(b"".join(data for _, _, data in rows), np.float32).reshape(
                        len(rows), -1
                    ),
                    np.array([cut for _, cut, _ in rows], bool),
                )

    def write(
        self,
        space: Mapping[str, Any],
        texts: Sequence[str],
        vectors: NDArray[np.float32],
        cut: NDArray[np.bool_],
    ) -> None:
        """Store vectors (len(texts), width), all or none; a text that is there stays as it was."""
        name = canonical(space)
        with self._faults() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(
                    "INSERT OR IGNORE INTO space (name, width, used) VALUES (?, ?, ?)",
                    [name, vectors.shape[1], time.time()],
                )
                number = connection.execute(
                    "SELECT id FROM space WHERE name = ?", [name]
                ).fetchone()[0]
                connection.executemany(
                    "INSERT OR IGNORE INTO vector VALUES (?, ?, ?, ?)",
                    (
                        (number, _key(text), int(was_cut), row.tobytes())
                        for text, row, was_cut in zip(texts, vectors, cut, strict=True)
                    ),
                )
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def spaces(self) -> list[Space]:
        """All spaces with what they hold, the last used first."""
        with self._faults() as connection:
            rows = connection.execute(
                "SELECT s.id, s.name, s.width, count(v.text), coalesce(sum(length(v.data)), 0),"
                " s.used FROM space s LEFT JOIN vector v ON v.space = s.id"
                " GROUP BY s.id ORDER BY s.used DESC, s.id"
            ).fetchall()
        return [Space(*row) for row in rows]

    def models(self) -> dict[str, list[str]]:
        """By the hash of the weights, the names under which models were asked for."""
        with self._faults() as connection:
            rows = connection.execute("SELECT settings FROM request").fetchall()
        found: dict[str, set[str]] = {}
        for (text,) in rows:
            settings = json.loads(text)
            found.setdefault(settings["weights"], set()).add(settings["model"])
        return {weights: sorted(names) for weights, names in found.items()}

    def remove(self, spaces: Sequence[int]) -> None:
        """Forget these spaces with all their vectors, and give the room back to the disk."""
        with self._faults() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for number in spaces:
                connection.execute("DELETE FROM vector WHERE space = ?", [number])
                connection.execute("DELETE FROM space WHERE id = ?", [number])
            connection.execute("COMMIT")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
