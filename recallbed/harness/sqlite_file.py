"""SQLite files of ours: opened with care, refused in one line, shared by threads and processes."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from recallbed.errors import UserError
from recallbed.harness.checksums import check_of
from recallbed.harness.terminal import note

_WAIT = 60
"""Seconds for which a call waits for other writers."""
T = TypeVar("T")
IN_MEMORY = Path(":memory:")
"""The path of a database that is no file and lasts as long as its object."""


RECOVER = "Keep it: what is readable can be recovered with `sqlite3 FILE .recover`. Or give"
_FULL = 1 << 20
"""Bytes free below which a failed write is taken for that of a full disk."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file is to be: its name ("reply cache"), SQLite's application id, schema, tables.

    `instead` ends each complaint: what a user gives in place of a file that cannot be used.
    `upgrades` holds, by the schema that they start from, the statements that lead to the next;
    they may call `check_of`. `again` says what happens to damaged rows that need not be refused,
    `recovery` what to do about a damaged file. With `durable` what was committed outlives a power
    cut as well, not the process alone.
    """

    name: str
    application_id: int
    schema: int
    tables: str
    instead: str
    error: type[UserError] = UserError
    durable: bool = False
    upgrades: Mapping[int, str] = field(default_factory=dict)
    again: str = "damaged rows"
    recovery: str = RECOVER


FAULTS = (sqlite3.Error, OSError, UnicodeDecodeError)
"""What SQLite raises; the last for a message that quotes a damaged schema."""


IN_LIST = 500
"""Values in an SQL list: some builds of SQLite accept at most 999 parameters."""


def select_in(
    connection: sqlite3.Connection, query: str, fixed: Sequence[Any], values: Sequence[Any]
) -> Iterator[Any]:
    """Yield the rows of `query`, its `{}` replaced by the list of `values` after the `fixed`."""
    for start in range(0, len(values), IN_LIST):
        some = values[start : start + IN_LIST]
        yield from connection.execute(query.format(",".join("?" * len(some))), [*fixed, *some])


def explain(
    error: sqlite3.Error | OSError | UnicodeDecodeError,
    path: Path,
    what: str,
    recovery: str = RECOVER,
) -> str:
    """Why `what`, the SQLite file `path`, cannot be used, and what to do that loses nothing.

    Ends in "give", for what a user gives instead.
    """
    if isinstance(error, UnicodeDecodeError):
        return f"the {what} is damaged (its schema is malformed). {recovery}"
    code = getattr(error, "sqlite_errorcode", -1) & 0xFF
    number = getattr(error, "errno", None)
    why = " ".join(str(getattr(error, "strerror", None) or error).split())
    failed = code == sqlite3.SQLITE_IOERR
    if (
        code == sqlite3.SQLITE_FULL
        or number in (errno.ENOSPC, errno.EDQUOT)
        or (failed and _free(path) < _FULL)
    ):
        return (
            f"the disk is full, so the {what} cannot be written ({why}). Nothing stored is lost:"
            " free some space and run this again, or give"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"the {what} is in use by another process ({why}). Wait until it ends, or give"
    if code == sqlite3.SQLITE_READONLY or number in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"the {what} cannot be written ({why}). Copy it to a writable folder, or give"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return f"the {what} is damaged ({why}). {recovery}"
    if failed:
        return f"the {what} cannot be read or written ({why}). Check the disk, or give"
    return f"the {what} cannot be opened or used ({why}). Check the path, or give"


def _free(path: Path) -> int:
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return _FULL


class SqliteFile:
    """The file `path` of the class's `kind`, made if there is none; pickled by its path.

    Methods built on `_using` and `_transaction` raise the kind's error, with the file, for one that
    cannot be opened, is damaged, is something else or comes from another version. A file of an
    older schema is upgraded in place. On a read-only file system what needs no writing works. One
    thread at a time. Text comes as bytes, so that damaged text is a wrong value and no error.
    """

    kind: ClassVar[Kind]

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._lock = threading.RLock()
        self._damaged: Counter[Path] = Counter()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path == IN_MEMORY:
            raise TypeError(f"a {self.kind.name} in memory cannot be pickled; give it a file")
        return type(self), (self.path,)

    def close(self) -> None:
        """Give the file free; the next call opens it again. What was in memory is gone."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None
            _report(self._damaged, self.kind.again)

    def _count_damage(self) -> None:
        """Count a damaged row that is made again; `close` and the end of the process say it."""
        if not self._damaged.total():
            weakref.finalize(self, _report, self._damaged, self.kind.again)
        self._damaged[self.path] += 1

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The connection, outside any transaction."""
        with self._lock:
            try:
                yield self._open()
            except FAULTS as error:
                if self.path != IN_MEMORY:
                    self.close()
                raise self._complaint(
                    explain(error, self.path, self.kind.name, self.kind.recovery)
                ) from None

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """All or none, also on Ctrl-C. Other writers wait, for a minute at most.

        With a plain BEGIN, all that is read is of one moment.
        """
        with self._using() as connection, _all_or_none(connection, begin):
            yield connection

    def _complaint(self, what: str) -> UserError:
        return self.kind.error(f"{self.path}: {what} {self.kind.instead}")

    def _open(self) -> sqlite3.Connection:
        # A connection to a file must not cross a fork.
        inherited = self._process != os.getpid() and self.path != IN_MEMORY
        if self._connection is None or inherited:
            self._connection = None
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                connection = self._connect(str(self.path))
                self._checked(connection, self._admit_in_time)
            except sqlite3.OperationalError:
                if not self.path.is_file() or os.access(self.path.parent, os.W_OK):
                    raise
                connection = self._read_only()
            self._connection, self._process = connection, os.getpid()
        return self._connection

    def _connect(self, name: str, uri: bool = False) -> sqlite3.Connection:
        connection = sqlite3.connect(
            name, timeout=_WAIT, isolation_level=None, check_same_thread=False, uri=uri
        )
        connection.text_factory = bytes
        connection.create_function("check_of", -1, check_of, deterministic=True)
        return connection

    @staticmethod
    def _checked(connection: sqlite3.Connection, check: Callable[[sqlite3.Connection], T]) -> T:
        """What `check` returns; the connection is closed if it raises."""
        try:
            return check(connection)
        except BaseException:
            connection.close()
            raise

    def _read_only(self) -> sqlite3.Connection:
        """The file if nothing can be written next to it, as WAL needs.

        Raises OperationalError if part of it lies in a WAL that cannot be read there.
        """
        wal = self.path.with_name(f"{self.path.name}-wal")
        # Without a WAL nobody is writing, so that SQLite may take the file to be unchanging.
        unchanging = not wal.exists() or not wal.stat().st_size
        uri = f"{self.path.resolve().as_uri()}?mode=ro" + "&immutable=1" * unchanging
        connection = self._connect(uri, uri=True)
        try:
            version = self._checked(connection, self._version)
        except sqlite3.OperationalError as error:
            if unchanging:
                raise
            raise self._complaint(
                f"the latest changes of the {self.kind.name} cannot be read here ({error})."
                f" Copy it, and the -wal file next to it, to a writable folder, or give"
            ) from None
        if version == self.kind.schema:
            return connection
        if version is None:
            connection.close()
            raise self._complaint(f"holds nothing, and {self._a_kind} cannot be made here. Give")
        copy = self._connect(str(IN_MEMORY))
        connection.backup(copy)
        connection.close()
        self._checked(copy, self._upgrade)
        return copy

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
                time.sleep(0.01)

    def _admit(self, connection: sqlite3.Connection) -> None:
        """Refuse what isn't ours before anything is written to it; fill an empty file."""
        try:
            version = self._version(connection)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            # Only now: closing a file of our own over a database gives up SQLite's locks on it,
            # those of other connections in this process as well.
            with self.path.open("rb") as stream:
                pointer = stream.read(23) == b"version https://git-lfs"
            what = "a Git LFS pointer" if pointer else "no database"
            raise self._complaint(f"cannot be used: {what}, not {self._a_kind}. Give") from None
        if version is None:
            with _all_or_none(connection):
                if self._version(connection) is None:  # else another process was first
                    for statement in self.kind.tables.split(";"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {self.kind.application_id}")
                    connection.execute(f"PRAGMA user_version = {self.kind.schema}")
        elif version < self.kind.schema:
            self._upgrade(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self.kind.durable else 'NORMAL'}")

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        """From an older schema to this one, whole or not at all."""
        with _all_or_none(connection):
            version = self._version(connection)  # another process may have been first
            assert version is not None
            for older in range(version, self.kind.schema):
                for statement in self.kind.upgrades[older].split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {self.kind.schema}")

    def _version(self, connection: sqlite3.Connection) -> int | None:
        """The schema, None of an empty database.

        Raises the kind's error for another program's, or a version's that cannot be upgraded.
        """
        # In one statement, so that all three are of one moment: another process may be filling it.
        found, version, tables = connection.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
            " FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if not tables and not found:
            return None
        if found != self.kind.application_id:
            raise self._complaint(f"another program's database, not {self._a_kind}. Give")
        if version not in (*self.kind.upgrades, self.kind.schema):
            other = "a newer" if version > self.kind.schema else "an older"
            raise self._complaint(
                f"{self._a_kind} of schema {version}, from {other} recallbed;"
                f" this one reads schema {self.kind.schema}. Give"
            )
        return int(version)

    @property
    def _a_kind(self) -> str:
        return f"{'an' if self.kind.name[0] in 'aeiou' else 'a'} {self.kind.name}"


@contextmanager
def _all_or_none(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    try:
        connection.execute(begin)
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has rolled it back already
            connection.execute("ROLLBACK")
        raise


def _report(damaged: Counter[Path], again: str) -> None:
    """One note for the damage of each file, once."""
    for path, count in damaged.items():
        note(f"note: {path}: {again}: {count}")
    damaged.clear()
