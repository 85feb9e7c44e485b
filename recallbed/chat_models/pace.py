"""Rate limit of calls, and the wait before a retry."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from recallbed.errors import UserError

LONGEST_WAIT = 60.0
LONGEST_RETRY_AFTER = 300.0
"""Seconds. A server that asks for more is asked again after this long."""


class Pace:
    """Spreads the starts of calls evenly over a minute, and delays all of them on request."""

    def __init__(
        self, per_minute: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if per_minute is not None and not (math.isfinite(per_minute) and per_minute > 0):
            raise UserError(f"requests per minute {per_minute}: must be more than 0")
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._next = 0.0

    def turn(self) -> float:
        """Return the seconds to wait before the next call, and reserve that start."""
        now = self._clock()
        start = max(now, self._next)
        self._next = start + self._gap
        return start - now

    def hold(self, seconds: float) -> None:
        """Delay every start that is not reserved yet by at least `seconds` from now."""
        self._next = max(self._next, self._clock() + seconds)


def backoff(seed: int, what: str, attempt: int, first: float = 1.0) -> float:
    """Return the seconds to wait before attempt number `attempt` (from 1) is repeated.

    Doubles from `first` up to a minute, scaled by a factor in [0.5, 1) that is a hash of seed,
    request and attempt: calls that failed together are not repeated together, and a repeated run
    waits for the same time.
    """
    digest = hashlib.sha256(f"{seed}\n{what}\n{attempt}".encode()).digest()
    share = 0.5 + int.from_bytes(digest[:8]) / 2**65
    return float(min(LONGEST_WAIT, first * 2.0 ** (attempt - 1)) * share)


def retry_after(value: str | None, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds of a Retry-After header, a number or an HTTP date; None if neither.

    Never negative, and at most LONGEST_RETRY_AFTER. (RFC 9110, section 10.2.3)
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now()
        except (ValueError, OverflowError):  # no date, or out of range
            return None
    if not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)
