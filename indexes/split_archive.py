"""Unpacking a zip archive that is split over several files, with every file checked."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast
from zipfile import BadZipFile, ZipFile

from typing_extensions import override

from recallbed.harness.files import drafted_folder
from recallbed.harness.progress import progress

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_CHUNK = 1 << 20
# What zipfile raises for an archive that it cannot read, encrypted and unknown methods included.
_DAMAGE = (BadZipFile, EOFError, KeyError, NotImplementedError, RuntimeError, zlib.error)


class UnexpectedArchive(ValueError):
    """An archive is damaged or is not the expected one."""


def unpack(parts: Sequence[Path], inside: str, folder: Path, digests: Mapping[str, str]) -> None:
    """Make `folder` of the folder `inside` an archive whose bytes are those of `parts`, in order.

    `digests` are the SHA-256 of the files to take, by their path in `inside`. Nothing else of the
    archive is written, so no path in it leads elsewhere. `folder` appears in one step when all of
    its files have been checked; one that exists is replaced. At most about a megabyte is in memory.

    Raises UnexpectedArchive, and OSError for a file that cannot be read or written.
    """
    with drafted_folder(folder) as draft:
        try:
            with io.BufferedReader(_Joined(parts), _CHUNK) as stream:
                archive = ZipFile(cast(BinaryIO, stream))
                _extract(archive, inside, draft, digests)
        except _DAMAGE as error:
            raise UnexpectedArchive(f"the archive is damaged ({error})") from None
        if folder.exists():
            shutil.rmtree(folder)
        draft.rename(folder)


def _extract(archive: ZipFile, inside: str, folder: Path, digests: Mapping[str, str]) -> None:
    members = {name: archive.getinfo(f"{inside}/{name}") for name in digests}
    steps = sum(-(-member.file_size // _CHUNK) for member in members.values())
    with progress(f"Unpacking {inside}, MiB", steps) as advance:
        for name, member in members.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with archive.open(member) as source, path.open("xb") as target:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    target.write(chunk)
                    advance(1)
                target.flush()
                os.fsync(target.fileno())
            if digest.hexdigest() != digests[name]:
                raise UnexpectedArchive(
                    f"{name} has the SHA-256 {digest.hexdigest()} instead of {digests[name]}"
                )


class _Joined(io.RawIOBase):
    """Files that are read as one."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._at = self._size = 0
        self._files: list[tuple[int, int, io.FileIO]] = []  # first byte, size, stream
        with ExitStack() as opened:
            for path in paths:
                stream = opened.enter_context(io.FileIO(path))
                size = os.fstat(stream.fileno()).st_size
                self._files.append((self._size, size, stream))
                self._size += size
            self._opened = opened.pop_all()

    @override
    def close(self) -> None:
        if not self.closed:
            self._opened.close()
        super().close()

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:  # zipfile tries this on a short file
            raise OSError(f"negative position {start + offset}")
        self._at = start + offset
        return self._at

    @override
    def readinto(self, buffer: WriteableBuffer) -> int:
        for start, size, stream in self._files:
            if start <= self._at < start + size:
                stream.seek(self._at - start)
                count = stream.readinto(buffer) or 0
                self._at += count
                return count
        return 0
