"""Writing files and folders whole or not at all."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from recallbed.errors import UserError

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


def file_name(text: str) -> str:
    """`text` as one part of the name of a file: letters, digits and `-_.+`, no dot in front."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "-", text).lstrip(".") or "-"


def named_or_cached(named: str | None, variable: str, name: str) -> Path | None:
    """`named`, else the environment's `variable`, else `name` in the user's cache.

    None for "none".
    """
    chosen = named or os.environ.get(variable)
    if chosen == "none":
        return None
    return Path(chosen).expanduser() if chosen else user_cache() / name


def user_cache() -> Path:
    """Our folder in the user's cache, which need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "recallbed"


def refuse_output(out: Path, overwrite: bool) -> None:
    """Say what is wrong with a file to be written before any work is done for it."""
    if out.exists() and not out.is_file():
        raise UserError(f"{out}: is not a file. Give another --out")
    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}. Make it first")
    if out.exists() and not overwrite:
        raise UserError(f"{out}: already exists. Pass another --out or --overwrite")


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A stream that becomes `path` at the end, in one step; after an error `path` is as it was.

    Drafts that killed processes left are removed.
    """
    _remove_drafts(path)
    while True:
        draft = _draft(path)
        try:
            # What lies there, such as a link to another file, is never written to.
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666)
        except FileExistsError:
            continue
        except OSError as error:  # the user knows `path`, not the draft
            raise OSError(error.errno, error.strerror, str(path)) from None
        if _locked(draft, handle):
            break
        os.close(handle)
    try:
        with open(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def drafted_folder(path: Path) -> Iterator[Path]:
    """A new folder next to `path`, to be renamed to it; removed at the end if it was not.

    Drafts that killed processes left are removed.
    """
    _remove_drafts(path)
    while True:
        draft = _draft(path)
        with suppress(FileExistsError, FileNotFoundError):
            draft.mkdir()
            handle = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
            if _locked(draft, handle):
                break
            os.close(handle)
    try:
        yield draft
    finally:
        os.close(handle)
        shutil.rmtree(draft, ignore_errors=True)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _locked(draft: Path, handle: int) -> bool:
    """Lock a draft, which says that its writer lives; False if it was removed before that."""
    with suppress(OSError):  # a file system without locks: drafts are never removed there
        fcntl.flock(handle, fcntl.LOCK_EX)  # waits for one who is about to remove it
    try:
        return os.path.samestat(os.lstat(draft), os.fstat(handle))
    except FileNotFoundError:
        return False


def _remove_drafts(path: Path) -> None:
    """Remove the drafts of `path` that no living process holds."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]+\.tmp")
    for entry in [e for e in os.scandir(path.parent) if name.fullmatch(e.name)]:
        with suppress(OSError):
            if entry.is_symlink():
                os.unlink(entry.path)
                continue
            handle = os.open(entry.path, os.O_RDONLY | os.O_NONBLOCK | _FLAGS)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if entry.is_dir():
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
            finally:
                os.close(handle)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace `path` in one step; after a crash it holds the old content or the new."""
    with written_whole(path) as stream:
        # The bytes of a file name that are not UTF-8 become escapes, in JSON and elsewhere.
        if isinstance(content, str):
            content = content.encode("utf-8", "backslashreplace")
        stream.write(content)
