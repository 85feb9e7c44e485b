"""Replies on disk: one SQLite file for all runs and processes.

A reply is found by the sha256 of all that can change it. The file holds replies and what they
took, and of the prompts no more than that hash. Only whole replies come here: what was an error,
empty or cut is asked for again by the next run.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from chat_models.base import JSON, Rung, Usage
from harness.errors import UserError
from harness.fingerprint import canonical

SCHEMA = 1
_OURS = 0x52425250  # SQLite's application id: "RBRP"
_TABLES = """
CREATE TABLE reply (key BLOB PRIMARY KEY, text TEXT NOT NULL, usage TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rung (key BLOB PRIMARY KEY, rung TEXT NOT NULL) WITHOUT ROWID;
"""


def choose_cache(named: str | None) -> Path | None:
    """The file that a command uses: `named`, else $RECALLBED_REPLIES, else in the user's cache.

    "none" is no cache.
    """
    wish = named or os.environ.get("RECALLBED_REPLIES")
    if wish == "none":
        return None
    if wish:
        return Path(wish).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "recallbed" / "replies.sqlite"


@dataclass(frozen=True, slots=True)
class Stored:
    """A whole reply, and what it took when it was sent for."""

    text: str
    usage: Usage


def key_of(parts: Mapping[str, JSON]) -> bytes:
    """The key of all that can change a reply."""
    return hashlib.sha256(canonical(parts).encode()).digest()


class ReplyCache:
    """The cache in the file `path`, made where there is none; safe in threads and processes.

    Every method raises UserError, with the file, for one that can't be had, is damaged, is
    something else or comes from a newer version. Pickled by its path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ReplyCache], tuple[Path]]:
        return ReplyCache, (self.path,)

    def get(self, key: bytes) -> Stored | None:
        """The reply under `key`, None where there is none."""
        with self._faults() as connection:
            found = connection.execute(
                "SELECT text, usage FROM reply WHERE key = ?", [key]
            ).fetchone()
        return None if found is None else self._stored(*found)

    def put(self, key: bytes, reply: Stored) -> Stored:
        """Store a reply, and give back what is stored: another process's, if that came first."""
        with self._faults() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO reply VALUES (?, ?, ?)",
                # As ASCII: half a surrogate pair, which a server may send, is no text to SQLite.
                [key, json.dumps(reply.text), json.dumps(astuple(reply.usage))],
            )
            found = connection.execute(
                "SELECT text, usage FROM reply WHERE key = ?", [key]
            ).fetchone()
        return self._stored(*found)

    def rung(self, key: bytes) -> Rung | None:
        """The rung that was found to work under `key`."""
        with self._faults() as connection:
            found = connection.execute("SELECT rung FROM rung WHERE key = ?", [key]).fetchone()
        try:
            return None if found is None else Rung(found[0])
        except ValueError:
            raise self._damaged() from None

    def keep_rung(self, key: bytes, rung: Rung) -> Rung:
        """Remember the rung that works; what is remembered already stays, and is given back."""
        with self._faults() as connection:
            connection.execute("INSERT OR IGNORE INTO rung VALUES (?, ?)", [key, rung.value])
            found = connection.execute("SELECT rung FROM rung WHERE key = ?", [key]).fetchone()
        return Rung(found[0])

    def __len__(self) -> int:
        with self._faults() as connection:
            return int(connection.execute("SELECT count(*) FROM reply").fetchone()[0])

    def close(self) -> None:
        """Give the file free; the next call opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()
        self._connection = None

    def _stored(self, text: str, usage: str) -> Stored:
        try:
            return Stored(json.loads(text), Usage(*json.loads(usage)))
        except (ValueError, TypeError):
            raise self._damaged() from None

    def _damaged(self) -> UserError:
        return UserError(f"{self.path}: the reply cache is damaged. Remove it, or give another")

    @contextmanager
    def _faults(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._open()
            except (sqlite3.Error, OSError) as error:
                why = getattr(error, "strerror", None) or error
                self._close()
                raise UserError(
                    f"{self.path}: the reply cache can't be used ({why}). Mend it, or give another"
                ) from None

    def _open(self) -> sqlite3.Connection:
        # A connection must not cross a fork.
        if self._connection is None or self._process != os.getpid():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, timeout=60, isolation_level=None, check_same_thread=False
            )
            self._process = os.getpid()
            self._check(self._connection)
        return self._connection

    def _check(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = _pragma(connection, "application_id")
            version = _pragma(connection, "user_version")
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables and not found:
                for statement in _TABLES.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {_OURS}")
                connection.execute(f"PRAGMA user_version = {SCHEMA}")
            elif found != _OURS:
                raise UserError(f"{self.path}: another program's database, not a reply cache")
            elif version > SCHEMA:
                raise UserError(
                    f"{self.path}: a reply cache of schema {version}, from a newer recallbed;"
                    f" this one knows {SCHEMA}"
                )
        finally:
            connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: Any = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return int(value)
