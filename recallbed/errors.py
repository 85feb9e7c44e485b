"""Errors of the user's making, each shown as one line."""

from __future__ import annotations

from pathlib import Path


class UserError(ValueError):
    """What was wrong and what to do, shown by the commands as one line with exit code 2."""


class DataError(UserError):
    """A fault in the data: its file and line, what it is, what to do about it."""

    def __init__(
        self, what: str, path: Path | None = None, line: int | None = None, *, todo: str = ""
    ) -> None:
        self.what, self.path, self.line, self.todo = what, path, line, todo
        where = "" if path is None else str(path) + (f":{line}" if line else "") + ": "
        super().__init__(where + what + (f". {todo}" if todo else ""))
