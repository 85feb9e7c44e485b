"""Failures as rows name them: a cause to count by, and the reason that somebody else gave."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from recallbed.errors import UserError
from recallbed.harness.terminal import debugging, note
from recallbed.harness.users_code import is_users

_REASON = re.compile(r"(?s)(.*?) \(reason: (.*)\)")


def with_reason(cause: str, reason: str) -> str:
    """`cause (reason: reason)`, the text of a row's `error`; the cause alone without a reason."""
    return f"{cause} (reason: {reason})" if reason else cause


def without_reason(error: str) -> str:
    """The cause alone."""
    found = _REASON.fullmatch(error)
    return found[1] if found else error


class Failures:
    """Errors counted by cause, each cause with the first of its reasons."""

    def __init__(self, errors: Iterable[str | None]) -> None:
        """None means that it did not fail."""
        self.counts: Counter[str] = Counter()
        self.reasons: dict[str, str] = {}
        for error in errors:
            if error is None:
                continue
            cause = without_reason(error)
            self.counts[cause] += 1
            if cause != error and cause not in self.reasons:
                self.reasons[cause] = error[len(cause) + len(" (reason: ") : -1]

    def __str__(self) -> str:
        """All of them in one line, the most frequent first."""
        return "; ".join(
            f"{with_reason(cause, self.reasons.get(cause, ''))}: {count}"
            for cause, count in self.counts.most_common()
        )


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


LIMIT = 10
# `KeyError: 'tea' (mine.py:5)`: type and place are equal even if the message differs.
_PLACED = re.compile(r"(\w+): .*( \(\S+:\d+\))", re.DOTALL)


class FirstFailures:
    """Watches the outcomes of a run from its first item on.

    `decided` is True once an item succeeded or failed in another way than the first; until then
    no outcome should be kept. With `keep_going` nothing is watched.
    """

    def __init__(self, label: str, keep_going: bool = False) -> None:
        self.label, self.decided = label, keep_going
        self._key: tuple[str, ...] = ()
        self._count = 0

    def see(self, errors: Iterable[str | None]) -> None:
        """The causes of the next items, in order, None for success.

        Raises UserError when the first LIMIT items failed in the same way: by type and place in the
        user's code if the cause has one, else by the whole cause.
        """
        for error in errors:
            if self.decided:
                return
            placed = _PLACED.fullmatch(error) if error is not None else None
            key = placed.groups() if placed else (error or "",)
            if error is None or (self._count and key != self._key):
                self.decided = True
                return
            self._key, self._count = key, self._count + 1
            if self._count == LIMIT:
                raise UserError(
                    f"{self.label}: stopped, since the first {LIMIT} all failed in the same way"
                    f" ({error})."
                    " Correct the cause, or pass --keep-going"
                )
