"""A user's mistake, in one line."""

from __future__ import annotations


class UserError(ValueError):
    """What was wrong and what to do, shown by the commands as one line with exit code 2."""
