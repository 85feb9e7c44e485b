"""The one file that an index is saved in: sections of bytes, then a header that vouches for them.

    MAGIC | sections, one after another | header (JSON) | length of the header (8 bytes) | END

The header comes last, so that sections of any size can be streamed, and a file cut short has no
END. It holds the kind, what the index is made of, the versions that wrote it, and the length and
sha256 of every section. Nothing is ever unpickled, and no byte of a section is handed on before its
hash agrees.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.fingerprint import own_version, versions
from indexes.errors import IndexingError, NotAnIndex

FORMAT = 1
MAGIC, END = b"recallbed index\n", b"\nrecallbed end.\n"
_LFS = b"version https://git-lfs"
_TODO = "Build it again, or fetch it again"
Write = Callable[[bytes], Any]


def write_index(
    path: Path,
    kind: str,
    header: Mapping[str, Any],
    sections: Mapping[str, Callable[[Write], None]],
    libraries: tuple[str, ...],
) -> None:
    """Write an index to `path` in one step; every section is a function that streams its bytes.

    After a crash at any moment `path` is the old file or the new, whole. Raises IndexingError where
    the folder can't be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as stream:
            stream.write(MAGIC)
            table = [_write_section(stream, name, fill) for name, fill in sections.items()]
            head = {
                "format": FORMAT,
                "kind": kind,
                **header,
                "versions": {"recallbed": own_version(), **versions(libraries)},
                "sections": table,
            }
            encoded = json.dumps(head, ensure_ascii=False, allow_nan=False).encode()
            stream.write(encoded + len(encoded).to_bytes(8, "big") + END)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        raise IndexingError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        draft.unlink(missing_ok=True)


def _write_section(stream: Any, name: str, fill: Callable[[Write], None]) -> dict[str, Any]:
    digest, start = hashlib.sha256(), stream.tell()

    def write(data: bytes) -> int:
        digest.update(data)
        return int(stream.write(data))

    fill(write)
    return {"name": name, "bytes": stream.tell() - start, "sha256": digest.hexdigest()}


def read_header(path: Path) -> dict[str, Any]:
    """The header of the index at `path`. Raises NotAnIndex saying what else it is."""
    try:
        with path.open("rb") as stream:
            return _header(path, stream)
    except OSError as error:
        raise NotAnIndex(f"{path}: cannot be read ({error.strerror})") from None


def _header(path: Path, stream: Any) -> dict[str, Any]:
    start = stream.read(max(len(MAGIC), len(_LFS)))
    if not start:
        raise NotAnIndex(f"{path}: the file is empty. {_TODO}")
    if start.startswith(_LFS):
        raise NotAnIndex(f"{path}: this is a Git LFS pointer, not the index. Fetch it with git lfs")
    if not start.startswith(MAGIC):
        raise NotAnIndex(f"{path}: not an index of recallbed. {_TODO}")
    tail = 8 + len(END)
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - tail, 0))
    ending = stream.read(tail)
    length = int.from_bytes(ending[:8], "big")
    if ending[8:] != END or length > size - tail - len(MAGIC):
        raise NotAnIndex(f"{path}: the file is cut short. {_TODO}")
    stream.seek(size - tail - length)
    try:
        header = json.loads(stream.read(length))
        newer = header["format"] > FORMAT
        sound = isinstance(header["kind"], str) and isinstance(header["sections"], list)
        held = sum(section["bytes"] for section in header["sections"])
        sound = sound and held == size - tail - length - len(MAGIC)
        if newer:
            raise NotAnIndex(
                f"{path}: written in format {header['format']} by a newer recallbed"
                f" ({header.get('versions', {}).get('recallbed')}). Update this one"
            )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, NotAnIndex):
            raise
        sound = False
    if not sound:
        raise NotAnIndex(f"{path}: the file is damaged (its header). {_TODO}")
    return dict(header)


def read_index(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """Header and sections of the index at `path`, every section checked against its hash.

    Sections are views of the mapped file. Raises NotAnIndex for another kind, a foreign or a
    damaged file.
    """
    header = read_header(path)
    if header["kind"] != kind:
        raise NotAnIndex(f"{path}: an index of kind {header['kind']}, not {kind}")
    with path.open("rb") as stream:
        view = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    sections, at = {}, len(MAGIC)
    for entry in header["sections"]:
        section = view[at : at + entry["bytes"]]
        if hashlib.sha256(section).hexdigest() != entry["sha256"]:
            raise NotAnIndex(f"{path}: the file is damaged (section {entry['name']}). {_TODO}")
        sections[entry["name"]] = section
        at += entry["bytes"]
    return header, sections
