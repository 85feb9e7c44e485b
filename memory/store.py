"""Memories on disk: one SQLite file for all users and processes, with the history of every change.

What an operation changed and the operation itself are stored in one transaction, so that the
history, replayed, always gives the memories. A write that was acknowledged outlives a kill, a crash
and a power cut; one that wasn't has changed nothing.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from corpus.records import Evidence, MemoryItem
from harness.errors import UserError
from harness.sqlite_file import IN_MEMORY, Kind, SqliteFile
from memory.base import Action, Operation

_OURS = 0x52424D53  # SQLite's application id: "RBMS"
# A removed memory keeps its row, without an item: its id is never given again.
_TABLES = """
CREATE TABLE user (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    operations INTEGER NOT NULL DEFAULT 0, ids INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE memory (
    user INTEGER NOT NULL REFERENCES user (number), added INTEGER NOT NULL, id TEXT NOT NULL,
    item TEXT, PRIMARY KEY (user, added)
) WITHOUT ROWID;
CREATE UNIQUE INDEX memory_id ON memory (user, id);
CREATE TABLE operation (
    user INTEGER NOT NULL REFERENCES user (number), number INTEGER NOT NULL, time REAL NOT NULL,
    action TEXT NOT NULL, before TEXT, after TEXT, PRIMARY KEY (user, number)
) WITHOUT ROWID
"""

_Items = dict[str | None, MemoryItem]
_FIELDS = tuple(one.name for one in fields(MemoryItem))


class StaleMemory(UserError):
    """A memory isn't any more what the operation was decided on. Read again and decide anew."""


class RepeatedMemory(UserError):
    """A memory was to be added under an id that the user has, or once had."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A user's operation `number` (from 1, without gaps), at `time` in seconds since 1970."""

    number: int
    time: float
    operation: Operation


def replay(operations: Iterable[Operation]) -> list[MemoryItem]:
    """The memories that operations lead to from none, oldest first."""
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


@dataclass(slots=True)
class _View:
    """The memories of the user last asked for, by id, as they were after operation `last`."""

    connection: sqlite3.Connection
    user: int
    last: int
    items: _Items


class MemoryStore(SqliteFile):
    """The store in the file `path`, made where there is none, or in memory; None is in memory.

    Safe in threads and processes; pickled by its path. A file that can't be had, is damaged, is
    something else or comes from another version is a UserError that names it. The time of an
    operation is the computer's, which may be put back: numbers alone say the order.
    """

    kind = Kind("memory store", _OURS, 1, _TABLES, "another file", durable=True)

    def __init__(self, path: Path | None) -> None:
        super().__init__(path or IN_MEMORY)
        self._view: _View | None = None

    def users(self) -> list[str]:
        """All who have a history, sorted."""
        with self._using() as connection:
            rows = connection.execute("SELECT name FROM user").fetchall()
        return sorted(json.loads(name) for (name,) in rows)

    def counts(self) -> dict[str, tuple[int, int]]:
        """By user, sorted: how many memories there are, and how many operations there were."""
        with self._using() as connection:
            rows = connection.execute(
                "SELECT name, (SELECT count(item) FROM memory WHERE user = number), operations"
                " FROM user"
            ).fetchall()
        return dict(sorted((json.loads(name), (kept, done)) for name, kept, done in rows))

    def memories(self, user: str) -> list[MemoryItem]:
        """The memories of `user`, oldest first; none for one who isn't known.

        Those of the user last asked for are held in memory. Asked again, the store reads no more
        than the operations since, whichever process they are of.
        """
        with self._transaction("BEGIN") as connection:
            found = connection.execute(
                "SELECT number, operations FROM user WHERE name = ?", [json.dumps(user)]
            ).fetchone()
            if found is None:
                return []
            number, last = found
            view = self._view
            if view is None or (view.connection, view.user) != (connection, number):
                rows = connection.execute(
                    "SELECT item FROM memory WHERE user = ? AND item IS NOT NULL ORDER BY added",
                    [number],
                )
                items = {item.id: item for item in (self._item(stored) for (stored,) in rows)}
                self._view = view = _View(connection, number, last, items)
            elif view.last < last:
                news = self._entries(connection, number, view.last)
                _follow(view.items, [entry.operation for entry in news])
                view.last = last
            return list(view.items.values())

    def history(self, user: str) -> list[HistoryEntry]:
        """Every operation since the user was first seen, or was cleared, in order."""
        with self._transaction("BEGIN") as connection:
            found = connection.execute(
                "SELECT number FROM user WHERE name = ?", [json.dumps(user)]
            ).fetchone()
            return [] if found is None else self._entries(connection, *found)

    def _entries(
        self, connection: sqlite3.Connection, user: int, after: int = 0
    ) -> list[HistoryEntry]:
        rows = connection.execute(
            "SELECT number, time, action, before, after FROM operation"
            " WHERE user = ? AND number > ? ORDER BY number",
            [user, after],
        )
        return [
            HistoryEntry(
                number,
                when,
                Operation(
                    Action(action),
                    None if before is None else self._item(before),
                    None if after is None else self._item(after),
                ),
            )
            for number, when, action, before, after in rows
        ]

    def apply(self, user: str, operations: Sequence[Operation]) -> list[Operation]:
        """Do `operations` in their order, all or none, and give them back with the ids they got.

        An ADD without an id gets the user's next, "m1", "m2" and so on; an UPDATE keeps the id of
        `before`. A NOOP changes nothing and stands in the history. Raises StaleMemory where the
        `before` of an UPDATE or DELETE isn't what is stored (after the operations before it),
        RepeatedMemory for an ADD of an id that was ever used, and ValueError for an operation that
        makes no sense, such as an ADD with a `before`.
        """
        given = [_sound(operation) for operation in operations]
        if not given:
            return []
        name = json.dumps(user)
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO user (name) VALUES (?)", [name])
            changing = _Changing(
                connection,
                user,
                *connection.execute(
                    "SELECT number, operations, ids FROM user WHERE name = ?", [name]
                ).fetchone(),
            )
            done = [changing.do(operation) for operation in given]
            connection.execute(
                "UPDATE user SET operations = ?, ids = ? WHERE number = ?",
                [changing.operations, changing.ids, changing.number],
            )
        return done

    def clear(self, user: str) -> None:
        """Forget all about `user`, the history and the ids as well."""
        with self._transaction() as connection:
            found = connection.execute(
                "SELECT number FROM user WHERE name = ?", [json.dumps(user)]
            ).fetchone()
            if found:
                for table, key in (("memory", "user"), ("operation", "user"), ("user", "number")):
                    connection.execute(f"DELETE FROM {table} WHERE {key} = ?", found)

    def _item(self, stored: str) -> MemoryItem:
        try:
            values = json.loads(stored)
            if evidence := values.pop("evidence", None):
                utterances = tuple(evidence.pop("utterances"))
                values["evidence"] = Evidence(utterances=utterances, **evidence)
            return MemoryItem(**values)
        except (ValueError, TypeError, AttributeError, KeyError):
            raise self._complaint(
                "the memory store is damaged. Mend or remove it, or give"
            ) from None


@dataclass(slots=True)
class _Changing:
    """A user's row and counters while operations are done, inside a transaction."""

    connection: sqlite3.Connection
    name: str
    number: int
    operations: int
    ids: int
    time: float = field(default_factory=time.time)

    def do(self, operation: Operation) -> Operation:
        """Do one, put it in the history, and give it back with its id."""
        self.operations += 1
        if operation.action is Action.ADD:
            operation = self._add(operation)
        elif operation.action is not Action.NOOP:
            self._replace(operation)
        before, after = map(_stored, (operation.before, operation.after))
        self.connection.execute(
            "INSERT INTO operation VALUES (?, ?, ?, ?, ?, ?)",
            [self.number, self.operations, self.time, operation.action.value, before, after],
        )
        return operation

    def _add(self, operation: Operation) -> Operation:
        item = operation.after
        assert item is not None
        if item.id is None:
            self.ids += 1
            while self._find(f"m{self.ids}"):  # one that was given from outside
                self.ids += 1
            item = replace(item, id=f"m{self.ids}")
        elif self._find(item.id):
            raise RepeatedMemory(
                f"{self.name}: there is or was a memory `{item.id}`. Add it under another id"
            )
        self.connection.execute(
            "INSERT INTO memory VALUES (?, ?, ?, ?)",
            [self.number, self.operations, json.dumps(item.id), _stored(item)],
        )
        return replace(operation, after=item)

    def _replace(self, operation: Operation) -> None:
        before = operation.before
        assert before is not None
        found = self._find(before.id)
        if found is None or found[0] != _stored(before):
            what = "changed" if found and found[0] else "removed" if found else "never there"
            raise StaleMemory(
                f"{self.name}: memory `{before.id}` was {what}, so {operation.action} can't be"
                " done to it. Read the memories again and decide anew"
            )
        self.connection.execute(
            "UPDATE memory SET item = ? WHERE user = ? AND id = ?",
            [_stored(operation.after), self.number, json.dumps(before.id)],
        )

    def _find(self, name: str | None) -> tuple[str | None] | None:
        """What is stored under an id: (None,) for a removed memory, None where there never was."""
        found: tuple[str | None] | None = self.connection.execute(
            "SELECT item FROM memory WHERE user = ? AND id = ?", [self.number, json.dumps(name)]
        ).fetchone()
        return found


def _sound(operation: Operation) -> Operation:
    """The operation, an UPDATE with its id on both sides; a ValueError for one without sense."""
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
        raise ValueError(f"an operation without sense: {operation}")
    return operation


def _stored(item: MemoryItem | None) -> str | None:
    """An item as JSON, fields without a value left out; equal items give equal text.

    All of it is ASCII: half a surrogate pair, which a model may write, is no text to SQLite.
    """
    if item is None:
        return None
    values = {name: value for name in _FIELDS if (value := getattr(item, name)) is not None}
    if item.confidence is not None:
        values["confidence"] = float(item.confidence)
    if item.evidence is not None:
        values["evidence"] = asdict(item.evidence)
    return json.dumps(values)
