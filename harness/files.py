"""Writing a file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from harness.errors import UserError


def refuse_output(out: Path, overwrite: bool) -> None:
    """Say what is wrong with a file to be written before any work is done for it."""
    if out.exists() and not out.is_file():
        raise UserError(f"{out}: is not a file. Give another --out")
    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}. Make it first")
    if out.exists() and not overwrite:
        raise UserError(f"{out}: is there already. Give another --out, or --overwrite")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace `path` in one step; after a crash it holds the old content or the new."""
    data = content.encode() if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
