"""The files of a user's external system: the live ones, and a snapshot to which they return.

    live/      what the worker opens; in any state while the worker runs
    NUMBER/    a whole copy made after the user's operation NUMBER, with what we know about it

The user's history in the memory store says which number counts: a snapshot that was made for
operations that were never stored is removed, so a kill at any moment leaves a whole store.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

LIVE = "live"
_STORE, _STATE, _UNFINISHED = "store", "state.json", "unfinished"


class StoreFolder:
    """The folder `path` of one user. It may be missing: then no operation was stored."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.live = path / LIVE

    def prepare(self, number: int) -> bool:
        """Make `live` equal to the snapshot of operation `number`; 0 is empty.

        Return whether there is such a snapshot.
        """
        self._remove_all_but(str(number) if number else "")
        kept = self.path / str(number)
        if number and not kept.exists():
            return False
        self.path.mkdir(parents=True, exist_ok=True)
        if number:
            copy_folder(kept / _STORE, self.live)
        else:
            self.live.mkdir()
        return True

    def state(self, number: int) -> str | None:
        """What `keep` was given for the snapshot of operation `number`; None without one."""
        try:
            return (self.path / str(number) / _STATE).read_text("utf-8")
        except FileNotFoundError:
            return None

    def keep(self, number: int, state: str) -> None:
        """Make the snapshot of `live`, which nobody may be writing to, for operation `number`.

        Raises FileNotFoundError if a file disappears meanwhile.
        """
        unfinished = self.path / _UNFINISHED
        unfinished.mkdir()
        copy_folder(self.live, unfinished / _STORE)
        (unfinished / _STATE).write_text(state, "utf-8")
        unfinished.rename(self.path / str(number))

    def drop_before(self, number: int) -> None:
        """Remove the snapshots that the one of operation `number` replaces."""
        self._remove_all_but(str(number), LIVE)

    def remove_live(self) -> None:
        """Remove what the worker opens. It must be closed."""
        self._remove_all_but(*(name for name in self._names() if name != LIVE))

    def remove(self) -> None:
        """Remove everything."""
        self._remove_all_but()
        with suppress(FileNotFoundError):
            self.path.rmdir()

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []

    def _remove_all_but(self, *kept: str) -> None:
        for name in self._names():
            if name not in kept:
                shutil.rmtree(self.path / name)


def copy_folder(source: Path, target: Path) -> None:
    """Copy files, folders and links; sockets and pipes, which belong to a process, are left out."""
    target.mkdir()
    with os.scandir(source) as entries:
        for entry in entries:
            copy = target / entry.name
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), copy)
            elif entry.is_dir():
                copy_folder(Path(entry.path), copy)
            elif entry.is_file():
                shutil.copy2(entry.path, copy)
    shutil.copystat(source, target)  # last: the folder may be one that nobody may write to
