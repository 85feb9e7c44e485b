"""The file of an index: sections of bytes, then a header with their hashes.

    MAGIC | sections, one after another | header (JSON) | its sha256 | its length (8 bytes) | END

The header is last, so that sections of any size can be streamed and a truncated file has no END. It
holds kind and settings of the index, the versions that wrote it, and length and sha256 of every
section. Nothing is unpickled, and no section is used before its hash is checked. A hash detects
damage, not malice: do not open files from people you do not trust.
"""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from indexes.base import IndexingError, NotAnIndex
from recallbed import __version__
from recallbed.harness.files import written_whole
from recallbed.harness.fingerprint import versions

INDEX_FORMAT = 2
"""The format written; older ones are read. Since 2 an index may hold each vector once."""
MAGIC, END = b"recallbed index\n", b"\nrecallbed end.\n"
_LFS = b"version https://git-lfs"
_TODO = "Build it or fetch it again"
_TAIL = 32 + 8 + len(END)
_ROWS_AT_ONCE = 8192
Write = Callable[[bytes], Any]
Section = NDArray[Any] | bytes | Callable[[Write], None]
"""What is written; a function streams bytes."""


def write_index(
    path: Path,
    kind: str,
    header: Mapping[str, Any],
    sections: Mapping[str, Section],
    libraries: tuple[str, ...],
) -> None:
    """Write an index to `path` atomically.

    Raises IndexingError if the folder cannot be written.
    """
    try:
        with written_whole(path) as stream:
            stream.write(MAGIC)
            table = [_write_section(stream, *section) for section in sections.items()]
            head = {
                "format": INDEX_FORMAT,
                "kind": kind,
                **header,
                "versions": {"recallbed": __version__, **versions(libraries)},
                "sections": table,
            }
            encoded = json.dumps(head, ensure_ascii=False, allow_nan=False).encode()
            digest = hashlib.sha256(encoded).digest()
            stream.write(encoded + digest + len(encoded).to_bytes(8, "big") + END)
    except OSError as error:
        raise IndexingError(f"{path}: {cannot_be_written(error)}") from None


def cannot_be_written(error: OSError) -> str:
    """Return the reason for an error, and what to do if the disk is full."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    todo = ". Free some space and run this again; an older store is unchanged" if full else ""
    return f"cannot be written ({error.strerror}){todo}"


def _write_section(stream: Any, name: str, section: Section) -> dict[str, Any]:
    digest, start = hashlib.sha256(), stream.tell()

    def write(data: bytes) -> int:
        digest.update(data)
        return int(stream.write(data))

    if callable(section):
        section(write)
    elif isinstance(section, bytes):
        write(section)
    else:
        for first in range(0, len(section), _ROWS_AT_ONCE):  # to bound memory
            write(section[first : first + _ROWS_AT_ONCE].tobytes())
    return {"name": name, "bytes": stream.tell() - start, "sha256": digest.hexdigest()}


def read_header(path: Path) -> dict[str, Any]:
    """Return the header of the index at `path`. Raises NotAnIndex with what else it is."""
    with _opened(path) as stream:
        return _header(path, stream)


def index_hash(path: Path) -> str:
    """Return the hash of the header, which identifies the index: it contains all other hashes.

    Raises NotAnIndex for a file that cannot be read.
    """
    with _opened(path) as stream:
        stream.seek(-_TAIL, os.SEEK_END)
        return stream.read(32).hex()


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise NotAnIndex(f"{path}: cannot be read ({error.strerror})") from None


def _header(path: Path, stream: BinaryIO) -> dict[str, Any]:
    start = stream.read(max(len(MAGIC), len(_LFS)))
    if not start:
        raise NotAnIndex(f"{path}: the file is empty. {_TODO}")
    if start.startswith(_LFS):
        raise NotAnIndex(f"{path}: a Git LFS pointer, not an index. Fetch it with git lfs")
    if not start.startswith(MAGIC):
        raise NotAnIndex(f"{path}: not an index of recallbed. {_TODO}")
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - _TAIL, 0))
    tail = stream.read(_TAIL)
    length = int.from_bytes(tail[32:40], "big")
    if tail[40:] != END or length > size - _TAIL - len(MAGIC):
        raise NotAnIndex(f"{path}: the file is truncated. {_TODO}")
    stream.seek(size - _TAIL - length)
    encoded = stream.read(length)
    try:
        if hashlib.sha256(encoded).digest() != tail[:32]:
            raise ValueError
        header = json.loads(encoded)
        if header["format"] > INDEX_FORMAT:
            raise NotAnIndex(
                f"{path}: written in format {header['format']} by a newer recallbed"
                f" ({header['versions']['recallbed']}). Update this one"
            )
        held = sum(section["bytes"] for section in header["sections"])
        if held != size - _TAIL - length - len(MAGIC) or not isinstance(header["kind"], str):
            raise ValueError
    except NotAnIndex:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged(path, "its header") from None
    return dict(header)


def damaged(path: Path, where: str) -> NotAnIndex:
    """Return the error for a damaged index."""
    return NotAnIndex(f"{path}: the file is damaged ({where}). {_TODO}")


def read_index(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """Return header and sections of the index at `path`, with every section's hash checked.

    Sections are views of the mapped file. Raises NotAnIndex for another kind, another file or a
    damaged one.
    """
    with _opened(path) as stream:
        header = _header(path, stream)
        if header["kind"] != kind:
            raise NotAnIndex(f"{path}: an index of kind {header['kind']}, not {kind}")
        view = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    sections, at = {}, len(MAGIC)
    for entry in header["sections"]:
        section = view[at : at + entry["bytes"]]
        if hashlib.sha256(section).hexdigest() != entry["sha256"]:
            raise damaged(path, f"section {entry['name']}")
        sections[entry["name"]] = section
        at += entry["bytes"]
    return header, sections
