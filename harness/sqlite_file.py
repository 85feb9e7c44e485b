"""SQLite files of ours: opened with care, refused in one line, shared by threads and processes."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from harness.errors import UserError

_WAIT = 60
"""Seconds for which a call waits for other writers."""
IN_MEMORY = Path(":memory:")
"""The path of a database that is no file and lasts as long as its object."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file is to be: its name ("reply cache"), SQLite's application id, schema, tables.

    `instead` ends each complaint: what a user gives in place of a file that won't do. With
    `durable` what was committed outlives a power cut as well, not the process alone.
    """

    name: str
    application_id: int
    schema: int
    tables: str
    instead: str
    error: type[UserError] = UserError
    durable: bool = False


class SqliteFile:
    """The file `path` of the class's `kind`, made where there is none; pickled by its path.

    Methods built on `_using` and `_transaction` raise the kind's error, with the file, for one that
    can't be had, is damaged, is something else or comes from another version. One thread at a time.
    """

    kind: ClassVar[Kind]

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path == IN_MEMORY:
            raise TypeError(f"a {self.kind.name} in memory can't be pickled; give it a file")
        return type(self), (self.path,)

    def close(self) -> None:
        """Give the file free; the next call opens it again. What was in memory is gone."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The connection, outside any transaction."""
        with self._lock:
            try:
                yield self._open()
            except (sqlite3.Error, OSError) as error:
                why = getattr(error, "strerror", None) or error
                if self.path != IN_MEMORY:
                    self.close()
                raise self._complaint(
                    f"the {self.kind.name} can't be used ({why}). Mend or remove it, or give"
                ) from None

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """All or none, also on Ctrl-C. Other writers wait, for a minute at most.

        With a plain BEGIN, all that is read is of one moment.
        """
        with self._using() as connection:
            try:
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk has rolled it back already
                    connection.execute("ROLLBACK")
                raise

    def _complaint(self, what: str) -> UserError:
        return self.kind.error(f"{self.path}: {what} {self.kind.instead}")

    def _open(self) -> sqlite3.Connection:
        # A connection to a file must not cross a fork.
        inherited = self._process != os.getpid() and self.path != IN_MEMORY
        if self._connection is None or inherited:
            self._connection = None
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.path, timeout=_WAIT, isolation_level=None, check_same_thread=False
            )
            try:
                self._admit_in_time(connection)
            except BaseException:
                connection.close()
                raise
            self._connection, self._process = connection, os.getpid()
        return self._connection

    def _admit_in_time(self, connection: sqlite3.Connection) -> None:
        """`_admit`, again where others are opening the file at the same moment.

        SQLite's own waiting leaves out the switch to WAL: it gives up at once.
        """
        latest = time.monotonic() + _WAIT
        while True:
            try:
                return self._admit(connection)
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > latest:
                    raise
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                time.sleep(0.01)

    def _admit(self, connection: sqlite3.Connection) -> None:
        """Refuse what isn't ours before anything is written to it; fill an empty file."""
        try:
            ours = self._is_ours(connection)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            # Only now: closing a file of our own over a database gives up SQLite's locks on it,
            # those of other connections in this process as well.
            with self.path.open("rb") as stream:
                pointer = stream.read(23) == b"version https://git-lfs"
            what = "a Git LFS pointer" if pointer else "no database"
            raise self._complaint(f"can't be used: {what}, not {self._a_kind}. Give") from None
        if not ours:
            connection.execute("BEGIN IMMEDIATE")
            if not self._is_ours(connection):  # else another process was first
                for statement in self.kind.tables.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {self.kind.application_id}")
                connection.execute(f"PRAGMA user_version = {self.kind.schema}")
            connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self.kind.durable else 'NORMAL'}")

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """False for an empty database; raises for another program's or another version's."""
        # In one statement, so that all three are of one moment: another process may be filling it.
        found, version, tables = connection.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
            " FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if not tables and not found:
            return False
        if found != self.kind.application_id:
            raise self._complaint(f"another program's database, not {self._a_kind}. Give")
        if version != self.kind.schema:
            other = "a newer" if version > self.kind.schema else "an older"
            raise self._complaint(
                f"{self._a_kind} of schema {version}, from {other} recallbed;"
                f" this one reads schema {self.kind.schema}. Give"
            )
        return True

    @property
    def _a_kind(self) -> str:
        return f"{'an' if self.kind.name[0] in 'aeiou' else 'a'} {self.kind.name}"
