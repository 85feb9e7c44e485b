"""Opening a user's file: once, since a pipe cannot be read twice, and a line at a time."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from recallbed.errors import DataError

BOM = b"\xef\xbb\xbf"
MAX_LINE = 32_000_000
"""Bytes of the longest line that is read. Parsed, a line takes up to 17 times its length."""
MAX_LINE_VARIABLE = "RECALLBED_MAX_LINE"
_LFS = b"version https://git-lfs"
_REST = 1 << 20


def max_line() -> int:
    """MAX_LINE, or what the environment variable RECALLBED_MAX_LINE allows (such as 200MB).

    Raises UserError if the variable is not a size.
    """
    given = os.environ.get(MAX_LINE_VARIABLE)
    if not given:
        return MAX_LINE
    from recallbed.harness.options import parse_size

    return parse_size(MAX_LINE_VARIABLE, given)


def raise_limit() -> str:
    """What to do about a line that is too long."""
    return f"If it is meant to be so long, set {MAX_LINE_VARIABLE}, such as 200MB"


@contextmanager
def open_data(path: Path) -> Iterator[BinaryIO]:
    """The bytes of `path`, unpacked if its name ends in .gz. `path` is opened once.

    Raises OSError, and DataError for a Git LFS pointer: a clone without git-lfs holds three lines
    of text, even if the name ends in .gz.
    """
    with ExitStack() as stack:
        stream: BinaryIO = stack.enter_context(path.open("rb"))
        start = stream.read(len(BOM) + len(_LFS))
        if start.removeprefix(BOM).startswith(_LFS):
            raise DataError(
                "this is a Git LFS pointer, not the data",
                path=path,
                line=1,
                todo="Fetch the data with `git lfs install && git lfs pull` in its clone",
            )
        if stream.seekable():
            stream.seek(0)
        else:
            stream = cast(BinaryIO, io.BufferedReader(_Rejoined(start, stream)))
        if path.suffix == ".gz":
            stream = cast(BinaryIO, stack.enter_context(gzip.open(stream, "rb")))
        yield stream


class _Rejoined(io.RawIOBase):
    """A stream that cannot seek, with its start put back in front of it."""

    def __init__(self, start: bytes, rest: BinaryIO) -> None:
        self.start, self.rest = start, rest

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        got = self.start[: len(into)] or self.rest.read1(len(into))  # type: ignore[attr-defined]
        self.start = self.start[len(got) :]
        into[: len(got)] = got
        return len(got)


def read_lines(
    path: Path, digest: Any | None = None, on_fault: Callable[[DataError], None] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, bytes with the line end) for every line of `path`.

    Lines end at a line feed and nowhere else. `digest`, a hashlib object, is fed all bytes read,
    unpacked, so that it needs no second reading. Raises DataError for a file that cannot be read,
    and for a line longer than `max_line()`; with `on_fault` such a line is handed to it instead,
    and reading continues behind it.
    """
    number, limit = 0, max_line()

    def feed(raw: bytes) -> bytes:
        if digest is not None:
            digest.update(raw)
        return raw

    try:
        with open_data(path) as stream:
            while raw := feed(stream.readline(limit + 1)):
                number += 1
                if len(raw) <= limit:
                    yield number, raw
                    continue
                error = DataError(
                    f"longer than {limit:,} bytes", path=path, line=number, todo=raise_limit()
                )
                if on_fault is None:
                    raise error
                while raw and not raw.endswith(b"\n"):
                    raw = feed(stream.readline(_REST))
                on_fault(error)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"cannot be read ({error})", path=path, line=number + 1 if number else None
        ) from error


def empty(path: Path) -> DataError:
    """The fault of a file in which nothing was."""
    if path.exists() and not path.is_file():
        todo = "It is a pipe, which can be read only once. Save it to a file first"
    else:
        todo = "Fetch it again; nothing was read"
    return DataError("the file is empty", path=path, todo=todo)
