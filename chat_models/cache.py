"""Replies on disk: one SQLite file for all runs and processes.

A reply is found by the sha256 of all that can change it. The file holds replies and what they
took, and of the prompts no more than that hash. Only whole replies come here: what was an error,
empty or cut is asked for again by the next run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

from chat_models.base import JSON, Rung, Usage
from harness.errors import UserError
from harness.fingerprint import canonical
from harness.sqlite_file import Kind, SqliteFile

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


class ReplyCache(SqliteFile):
    """The cache in the file `path`, made where there is none; safe in threads and processes.

    Every method raises UserError, with the file, for one that can't be had, is damaged, is
    something else or comes from a newer version. Pickled by its path.
    """

    kind = Kind("reply cache", _OURS, 1, _TABLES, "another with --replies FILE")

    def get(self, key: bytes) -> Stored | None:
        """The reply under `key`, None where there is none."""
        with self._using() as connection:
            found = connection.execute(
                "SELECT text, usage FROM reply WHERE key = ?", [key]
            ).fetchone()
        return None if found is None else self._stored(*found)

    def put(self, key: bytes, reply: Stored) -> Stored:
        """Store a reply, and give back what is stored: another process's, if that came first."""
        with self._using() as connection:
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
        with self._using() as connection:
            found = connection.execute("SELECT rung FROM rung WHERE key = ?", [key]).fetchone()
        try:
            return None if found is None else Rung(found[0])
        except ValueError:
            raise self._damaged() from None

    def keep_rung(self, key: bytes, rung: Rung) -> Rung:
        """Remember the rung that works; what is remembered already stays, and is given back."""
        with self._using() as connection:
            connection.execute("INSERT OR IGNORE INTO rung VALUES (?, ?)", [key, rung.value])
            found = connection.execute("SELECT rung FROM rung WHERE key = ?", [key]).fetchone()
        return Rung(found[0])

    def __len__(self) -> int:
        with self._using() as connection:
            return int(connection.execute("SELECT count(*) FROM reply").fetchone()[0])

    def _stored(self, text: str, usage: str) -> Stored:
        try:
            return Stored(json.loads(text), Usage(*json.loads(usage)))
        except (ValueError, TypeError):
            raise self._damaged() from None

    def _damaged(self) -> UserError:
        return self._complaint("the reply cache is damaged. Remove it, or give")
