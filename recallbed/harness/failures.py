"""Failures as rows name them: a cause to count by, and the reason that somebody else gave."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

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
