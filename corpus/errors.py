"""What is wrong with a data file, in one line."""

from __future__ import annotations

from pathlib import Path


class DataError(ValueError):
    """A fault in the data: where it stands, what it is, what to do about it.

    Printed by the commands as one line, ``file:line: what. todo.``
    """

    def __init__(
        self, what: str, *, path: Path | None = None, line: int | None = None, todo: str = ""
    ) -> None:
        self.what, self.path, self.line, self.todo = what, path, line, todo
        where = "" if path is None else str(path) + (f":{line}" if line else "") + ": "
        super().__init__(where + what + (f". {todo}" if todo else ""))
