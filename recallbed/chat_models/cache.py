"""Reply cache: one SQLite file for all runs and processes.

The key of a reply is the sha256 of everything that can change it. The file holds replies and their
usage, and of prompts only that hash. Only complete replies are stored: after an error, an empty or
a truncated reply the next run sends the request again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from recallbed.chat_models.base import JSON, Rung, Usage
from recallbed.harness.checksums import check_of
from recallbed.harness.files import named_or_cached
from recallbed.harness.fingerprint import canonical
from recallbed.harness.sqlite_file import Kind, SqliteFile

_OURS = 0x52425250  # SQLite's application id: "RBRP"
_TABLES = """
CREATE TABLE reply (
    key BLOB PRIMARY KEY, text TEXT NOT NULL, usage TEXT NOT NULL, crc INTEGER
) WITHOUT ROWID;
CREATE TABLE rung (key BLOB PRIMARY KEY, rung TEXT NOT NULL, crc INTEGER) WITHOUT ROWID
"""
_FROM_1 = """
ALTER TABLE reply ADD COLUMN crc INTEGER;
ALTER TABLE rung ADD COLUMN crc INTEGER;
UPDATE reply SET crc = check_of(key, CAST(text AS BLOB), CAST(usage AS BLOB));
UPDATE rung SET crc = check_of(key, CAST(rung AS BLOB))
"""


def choose_cache(named: str | None) -> Path | None:
    """Return `named`, else $RECALLBED_REPLIES, else a file in the user's cache folder.

    None for "none", which is no cache.
    """
    return named_or_cached(named, "RECALLBED_REPLIES", "replies.sqlite")


@dataclass(frozen=True, slots=True)
class Stored:
    """A complete reply, and its usage when it was requested."""

    text: str
    usage: Usage


def key_of(parts: Mapping[str, JSON]) -> bytes:
    """Return the key for everything that can change a reply."""
    return hashlib.sha256(canonical(parts).encode()).digest()


class ReplyCache(SqliteFile):
    """The cache in the file `path`, created if missing; safe in threads and processes.

    A damaged reply counts as missing: it is requested again and replaced, and a note reports their
    number. Every method raises UserError, with the file, if it cannot be opened, is damaged as a
    whole, is another kind of file or of a newer version. Pickled by its path.
    """

    kind = Kind(
        "reply cache",
        _OURS,
        2,
        _TABLES,
        "another with --replies FILE",
        upgrades={1: _FROM_1},
        again="damaged replies, requested again",
        durable=True,  # replies are paid for, and every row needs the replies behind it
    )

    def get(self, key: bytes) -> Stored | None:
        """Return the reply under `key`, None if there is none."""
        with self._using() as connection:
            return self._reply(connection, key)

    def put(self, key: bytes, reply: Stored) -> Stored:
        """Store a reply and return what is stored: another process's reply if that came first."""
        with self._transaction() as connection:
            if (found := self._reply(connection, key, again=True)) is not None:
                return found
            # As ASCII: SQLite refuses lone surrogates, which a server may send.
            values = key, json.dumps(reply.text), json.dumps(astuple(reply.usage))
            connection.execute(
                "INSERT OR REPLACE INTO reply VALUES (?, ?, ?, ?)", [*values, check_of(*values)]
            )
        return reply

    def rung(self, key: bytes) -> Rung | None:
        """Return the rung that is known to work under `key`."""
        with self._using() as connection:
            return self._rung(connection, key)

    def keep_rung(self, key: bytes, rung: Rung) -> Rung:
        """Store the rung that works and return what is stored: an earlier one is kept."""
        with self._transaction() as connection:
            if (found := self._rung(connection, key)) is not None:
                return found
            connection.execute(
                "INSERT OR REPLACE INTO rung VALUES (?, ?, ?)",
                [key, rung.value, check_of(key, rung.value)],
            )
        return rung

    def __len__(self) -> int:
        with self._using() as connection:
            return int(connection.execute("SELECT count(*) FROM reply").fetchone()[0])

    def _reply(
        self, connection: sqlite3.Connection, key: bytes, again: bool = False
    ) -> Stored | None:
        found = connection.execute(
            "SELECT text, usage, crc FROM reply WHERE key = ?", [key]
        ).fetchone()
        if found is None:
            return None
        text, usage, crc = found
        try:
            if crc == check_of(key, text, usage):
                return Stored(json.loads(text), Usage(*json.loads(usage)))
        except (ValueError, TypeError):  # damaged before checksums were stored
            pass
        if not again:
            self._count_damage()
        return None

    def _rung(self, connection: sqlite3.Connection, key: bytes) -> Rung | None:
        """The rung, None for a damaged one: it is determined again."""
        found = connection.execute("SELECT rung, crc FROM rung WHERE key = ?", [key]).fetchone()
        if found is None or found[1] != check_of(key, found[0]):
            return None
        return Rung(found[0].decode())
