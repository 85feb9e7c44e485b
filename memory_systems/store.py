"""Persistent store of memories: one SQLite file for all users and processes, with the history.

An operation and its effect are stored in one transaction, so that replaying the history always
gives the memories. A write that was acknowledged survives a kill, a crash and a power cut; one that
was not has changed nothing.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from memory_systems.base import Action, Operation
from recallbed.corpus.records import Evidence, MemoryItem
from recallbed.errors import UserError
from recallbed.harness.checksums import check_of
from recallbed.harness.sqlite_file import IN_MEMORY, Kind, SqliteFile

_OURS = 0x52424D53  # SQLite's application id: "RBMS"
# A deleted memory keeps its row without an item, so that its id is never used again.
_TABLES = """
CREATE TABLE user (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    operations INTEGER NOT NULL DEFAULT 0, ids INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0, crc INTEGER
);
CREATE TABLE memory (
    user INTEGER NOT NULL REFERENCES user (number), added INTEGER NOT NULL, id TEXT NOT NULL,
    item TEXT, crc INTEGER, PRIMARY KEY (user, added)
) WITHOUT ROWID;
CREATE UNIQUE INDEX memory_id ON memory (user, id);
CREATE TABLE operation (
    user INTEGER NOT NULL REFERENCES user (number), number INTEGER NOT NULL, time REAL NOT NULL,
    action TEXT NOT NULL, before TEXT, after TEXT, crc INTEGER, PRIMARY KEY (user, number)
) WITHOUT ROWID
"""
# `held` is the sum of the checks of a user's memories, so that a lost row is noticed.
_FROM_1 = """
ALTER TABLE user ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
ALTER TABLE user ADD COLUMN crc INTEGER;
ALTER TABLE memory ADD COLUMN crc INTEGER;
ALTER TABLE operation ADD COLUMN crc INTEGER;
UPDATE memory SET crc = check_of(user, added, CAST(id AS BLOB), CAST(item AS BLOB));
UPDATE operation SET crc = check_of(
    user, number, time, CAST(action AS BLOB), CAST(before AS BLOB), CAST(after AS BLOB)
);
UPDATE user SET held = (
    SELECT coalesce(sum(m.crc), 0) FROM memory m WHERE m.user = user.number AND item IS NOT NULL
);
UPDATE user SET crc = check_of(number, CAST(name AS BLOB), operations, ids, held)
"""

_Items = dict[str | None, MemoryItem]
_FIELDS = tuple(one.name for one in fields(MemoryItem))


class StaleMemory(UserError):
    """A memory differs from the `before` of an operation. Read the memories and decide again."""


class RepeatedMemory(UserError):
    """A memory was to be added with an id that the user has or had."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A user's operation `number` (from 1, without gaps), at `time` in seconds since 1970."""

    number: int
    time: float
    operation: Operation


def memories_after(operations: Iterable[Operation]) -> list[MemoryItem]:
    """Return the memories, oldest first, after `operations` on an empty store."""
    items: _Items = {}
    _follow(items, operations)
    return list(items.values())


def _follow(items: _Items, operations: Iterable[Operation]) -> None:
    for operation in operations:
        before, after = operation.before, operation.after
        if operation.action is Action.DELETE and before is not None:
            items.pop(before.id, None)
        elif operation.action is not Action.NOOP and after is not None:
            items[after.id] = after


_USER = "number, name, operations, ids, held, crc"


class _User(NamedTuple):
    """A row of the table of users, with a correct check."""

    number: int
    name: str
    operations: int
    ids: int
    held: int


class _Found(NamedTuple):
    """A memory as it is stored; `item` is None after a DELETE."""

    added: int
    item: str | None
    crc: int


@dataclass(slots=True)
class _View:
    """Cache of the memories of the user last read, by id, after operation `last`."""

    connection: sqlite3.Connection
    user: int
    last: int
    items: _Items


class MemoryStore(SqliteFile):
    """The store in the file `path`, which is created if missing; None keeps it in memory.

    Safe in threads and processes; pickled by its path. A file that cannot be opened, is damaged, is
    not a memory store or has another version raises a UserError that names it. The time of an
    operation is the system clock's, which may be set back; the order is that of the numbers.
    """

    kind = Kind(
        "memory store", _OURS, 2, _TABLES, "another file", durable=True, upgrades={1: _FROM_1}
    )

    def __init__(self, path: Path | None) -> None:
        super().__init__(path or IN_MEMORY)
        self._view: _View | None = None

    def users(self) -> list[str]:
        """Return all users with a history, sorted."""
        with self._transaction("BEGIN") as connection:
            return sorted(user.name for user in self._users(connection))

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the number of memories and of operations by user, sorted."""
        found = {}
        with self._transaction("BEGIN") as connection:
            for user in self._users(connection):
                count, held = connection.execute(
                    "SELECT count(item), sum(crc) FROM memory WHERE user = ? AND item IS NOT NULL",
                    [user.number],
                ).fetchone()
                if (held or 0) != user.held:
                    raise self._damage(f"the memories of {user.name}")
                found[user.name] = count, user.operations
        return dict(sorted(found.items()))

    def _users(self, connection: sqlite3.Connection) -> list[_User]:
        rows = connection.execute(f"SELECT {_USER} FROM user NOT INDEXED").fetchall()
        indexed = connection.execute("SELECT name FROM user ORDER BY name").fetchall()
        if len(rows) != len(indexed):
            raise self._damage("its table of users")
        return [self._sound_user(row) for row in rows]

    def _user(self, connection: sqlite3.Connection, user: str) -> _User | None:
        """Return the row of a user; None if unknown."""
        name = json.dumps(user)
        row = connection.execute(f"SELECT {_USER} FROM user WHERE name = ?", [name]).fetchone()
        if row is not None:
            return self._sound_user(row, name)
        # A damaged index must not make a user unknown.
        if connection.execute("SELECT 1 FROM user NOT INDEXED WHERE name = ?", [name]).fetchone():
            raise self._damage("its table of users")
        return None

    def _sound_user(self, row: Sequence[Any], name: str | None = None) -> _User:
        *values, crc = row
        if crc != check_of(*values) or (name is not None and values[1] != name.encode()):
            raise self._damage("its table of users")
        return _User(values[0], json.loads(values[1]), *values[2:])

    def memories(self, user: str) -> list[MemoryItem]:
        """Return the memories of `user`, oldest first; none for an unknown user.

        Those of the user last read are cached. The next call reads only the operations since then,
        of whichever process.
        """
        with self._transaction("BEGIN") as connection:
            found = self._user(connection, user)
            if found is None:
                return []
            number, last = found.number, found.operations
            view = self._view
            if view is None or (view.connection, view.user) != (connection, number):
                items = self._items(connection, found)
                self._view = view = _View(connection, number, last, items)
            elif view.last < last:
                entries = self._entries(connection, found, view.last)
                _follow(view.items, [entry.operation for entry in entries])
                view.last = last
            return list(view.items.values())

    def _items(self, connection: sqlite3.Connection, user: _User) -> _Items:
        rows = connection.execute(
            "SELECT user, added, id, item, crc FROM memory WHERE user = ? AND item IS NOT NULL"
            " ORDER BY added",
            [user.number],
        ).fetchall()
        if any(crc != check_of(*values) for *values, crc in rows):
            raise self._damage(f"a memory of {user.name}")
        items = {item.id: item for item in (self._item(row[3]) for row in rows)}
        if sum(row[4] for row in rows) != user.held or len(items) != len(rows):
            raise self._damage(f"the memories of {user.name}")
        return items

    def history(self, user: str) -> list[HistoryEntry]:
        """Return every operation since the user was created or cleared, in order."""
        with self._transaction("BEGIN") as connection:
            found = self._user(connection, user)
            return [] if found is None else self._entries(connection, found)

    def _entries(
        self, connection: sqlite3.Connection, user: _User, after: int = 0
    ) -> list[HistoryEntry]:
        rows = connection.execute(
            "SELECT user, number, time, action, before, after, crc FROM operation"
            " WHERE user = ? AND number > ? ORDER BY number",
            [user.number, after],
        ).fetchall()
        if any(crc != check_of(*values) for *values, crc in rows):
            raise self._damage(f"an operation of {user.name}")
        if [row[1] for row in rows] != list(range(after + 1, user.operations + 1)):
            raise self._damage(f"the operations of {user.name}")
        return [
            HistoryEntry(
                number,
                when,
                Operation(
                    Action(action.decode()),
                    None if before is None else self._item(before),
                    None if after is None else self._item(after),
                ),
            )
            for _, number, when, action, before, after, _ in rows
        ]

    def apply(self, user: str, operations: Sequence[Operation]) -> list[Operation]:
        """Apply `operations` in order, all or none; return them with the ids they got.

        An ADD without an id gets the user's next, "m1", "m2" and so on; an UPDATE keeps the id of
        `before`. A NOOP changes nothing and is kept in the history. Raise StaleMemory if the
        `before` of an UPDATE or DELETE is not what is stored (after the operations before it),
        RepeatedMemory for an ADD with an id that was ever used, and ValueError for an invalid
        operation, such as an ADD with a `before`.
        """
        given = [_sound(operation) for operation in operations]
        if not given:
            return []
        name = json.dumps(user)
        with self._transaction() as connection:
            row = connection.execute(f"SELECT {_USER} FROM user WHERE name = ?", [name]).fetchone()
            if row is None:
                number = connection.execute("INSERT INTO user (name) VALUES (?)", [name]).lastrowid
                assert number is not None
                known = _User(number, user, 0, 0, 0)
            else:
                known = self._sound_user(row, name)
            changing = _Changing(connection, known, self._damage)
            done = [changing.do(operation) for operation in given]
            values = name, changing.operations, changing.ids, changing.held
            connection.execute(
                "UPDATE user SET operations = ?, ids = ?, held = ?, crc = ? WHERE number = ?",
                [*values[1:], check_of(known.number, *values), known.number],
            )
        return done

    def clear(self, user: str) -> None:
        """Delete everything about `user`, including the history and the ids."""
        with self._transaction() as connection:
            found = connection.execute(
                "SELECT number FROM user WHERE name = ?", [json.dumps(user)]
            ).fetchone()
            if found:
                for table, key in (("memory", "user"), ("operation", "user"), ("user", "number")):
                    connection.execute(f"DELETE FROM {table} WHERE {key} = ?", found)

    def _item(self, stored: bytes) -> MemoryItem:
        try:
            values = json.loads(stored)
            if evidence := values.pop("evidence", None):
                utterances = tuple(evidence.pop("utterances"))
                values["evidence"] = Evidence(utterances=utterances, **evidence)
            return MemoryItem(**values)
        except (ValueError, TypeError, AttributeError, KeyError):
            raise self._damage("a memory") from None

    def _damage(self, where: str) -> UserError:
        return self._complaint(
            f"the memory store is damaged ({where}: a check does not match). {self.kind.recovery}"
        )


class _Changing:
    """Applies operations of one user inside a transaction, and holds the user's counters."""

    def __init__(
        self, connection: sqlite3.Connection, user: _User, damage: Callable[[str], UserError]
    ) -> None:
        self.connection, self.number, self.name = connection, user.number, user.name
        self.operations, self.ids, self.held = user.operations, user.ids, user.held
        self.time, self._damage = time.time(), damage

    def do(self, operation: Operation) -> Operation:
        """Apply an operation and add it to the history; return it with its id."""
        self.operations += 1
        if operation.action is Action.ADD:
            operation = self._add(operation)
        elif operation.action is not Action.NOOP:
            self._replace(operation)
        before, after = map(_stored, (operation.before, operation.after))
        values = self.number, self.operations, self.time, operation.action.value, before, after
        self.connection.execute(
            "INSERT INTO operation VALUES (?, ?, ?, ?, ?, ?, ?)", [*values, check_of(*values)]
        )
        return operation

    def _add(self, operation: Operation) -> Operation:
        item = operation.after
        assert item is not None
        if item.id is None:
            self.ids += 1
            while self._find(f"m{self.ids}"):  # an id that a caller chose
                self.ids += 1
            item = replace(item, id=f"m{self.ids}")
        elif self._find(item.id):
            raise RepeatedMemory(
                f"{self.name}: memory `{item.id}` already exists or was deleted. Use another id"
            )
        values = self.number, self.operations, json.dumps(item.id), _stored(item)
        crc = check_of(*values)
        self.connection.execute("INSERT INTO memory VALUES (?, ?, ?, ?, ?)", [*values, crc])
        self.held += crc
        return replace(operation, after=item)

    def _replace(self, operation: Operation) -> None:
        before = operation.before
        assert before is not None
        found = self._find(before.id)
        if found is None or found.item != _stored(before):
            what = "changed" if found and found.item else "deleted" if found else "never added"
            raise StaleMemory(
                f"{self.name}: memory `{before.id}` was {what}, so {operation.action} cannot be"
                " applied. Read the memories and decide again"
            )
        after = _stored(operation.after)
        crc = check_of(self.number, found.added, json.dumps(before.id), after)
        self.connection.execute(
            "UPDATE memory SET item = ?, crc = ? WHERE user = ? AND added = ?",
            [after, crc, self.number, found.added],
        )
        self.held += (0 if after is None else crc) - found.crc

    def _find(self, name: str | None) -> _Found | None:
        """Return what is stored under an id; None if it was never used."""
        row = self.connection.execute(
            "SELECT user, added, id, item, crc FROM memory WHERE user = ? AND id = ?",
            [self.number, json.dumps(name)],
        ).fetchone()
        if row is None:
            return None
        *values, crc = row
        if crc != check_of(*values) or values[2] != json.dumps(name).encode():
            raise self._damage(f"a memory of {self.name}")
        _, added, _, item = values
        return _Found(added, None if item is None else item.decode(), crc)


def _sound(operation: Operation) -> Operation:
    """Return the operation, an UPDATE with its id on both sides; ValueError if it is invalid."""
    before, after = operation.before, operation.after
    if operation.action is Action.UPDATE and before and after and after.id is None:
        operation = replace(operation, after=(after := replace(after, id=before.id)))
    match operation.action:
        case Action.ADD:
            sound = before is None and after is not None
        case Action.UPDATE:
            sound = before is not None and after is not None and before.id == after.id is not None
        case Action.DELETE:
            sound = before is not None and before.id is not None and after is None
        case Action.NOOP:
            sound = before == after
    if not sound:
        raise ValueError(f"invalid operation: {operation}")
    return operation


def _stored(item: MemoryItem | None) -> str | None:
    """Return an item as JSON without empty fields; equal items give equal text.

    All of it is ASCII: SQLite does not accept a lone surrogate, which a model may write.
    """
    if item is None:
        return None
    values = {name: value for name in _FIELDS if (value := getattr(item, name)) is not None}
    if item.confidence is not None:
        values["confidence"] = float(item.confidence)
    if item.evidence is not None:
        values["evidence"] = asdict(item.evidence)
    return json.dumps(values)
