"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from harness.errors import UserError


def refuse_output(out: Path, overwrite: bool) -> None:
    """Say what is wrong with a file to be written before any work is done for it."""
    if out.exists() and not out.is_file():
        raise UserError(f"{out}: is not a file. Give another --out")
    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}. Make it first")
    if out.exists() and not overwrite:
        raise UserError(f"{out}: is there already. Give another --out, or --overwrite")


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A stream that becomes `path` at the end, in one step; after an error `path` is as it was."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace `path` in one step; after a crash it holds the old content or the new."""
    with written_whole(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
