"""An unexpected exception as the cause of a failure."""

from __future__ import annotations

import traceback
from pathlib import Path

from recallbed.harness.terminal import debugging, note
from recallbed.harness.users_code import is_users

_shown: set[str] = set()


def cause_of(error: BaseException) -> str:
    """`ZeroDivisionError: division by zero (mymodule.py:12)`, on one line.

    The place is the innermost line of a user's own code that the exception passed through; it is
    left out if there is none. With --debug the traceback is shown on stderr, once per cause.
    """
    words = f"{type(error).__name__}: {error}".split()
    found = " ".join(words).encode("utf-8", "backslashreplace").decode()
    place = users_place(error)
    cause = f"{found} ({place})" if place else found
    if debugging() and cause not in _shown:
        _shown.add(cause)
        note(*"".join(traceback.format_exception(error)).splitlines())
    return cause


def users_place(error: BaseException) -> str | None:
    """`mymodule.py:12`, the innermost line of a user's own code that `error` passed through."""
    frames = traceback.extract_tb(error.__traceback__)
    files = [f for f in frames if not f.filename.startswith("<") and is_users(Path(f.filename))]
    return f"{Path(files[-1].filename).name}:{files[-1].lineno}" if files else None
