"""Stopping a run whose first items all fail in the same way: the cause is common to all."""

from __future__ import annotations

import re
from collections.abc import Iterable

from recallbed.errors import UserError

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
