"""What identifies a session in a trained model: a digest, from which no text can be read."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from recallbed.corpus.records import Task3Row


def session_digest(session_id: str) -> str:
    """Return the digest of a session, 16 hex digits, as a trained model lists it."""
    return _digest("session", session_id)


def query_digest(query: str) -> str:
    """Return the digest of the text of a query, 16 hex digits."""
    return _digest("query", query)


def session_key(row: Task3Row) -> str:
    """Return the name of a row's session for `session_digest`.

    A row of a user's file without `session` and `id` is named after its line, which is another one
    in another file: its query identifies it instead.
    """
    return f"query: {row.query}" if row.unnamed else row.session_id


@lru_cache(maxsize=1 << 16)
def _digest(kind: str, text: str) -> str:
    return hashlib.sha256(f"recallbed-{kind}:{text}".encode()).hexdigest()[:16]
