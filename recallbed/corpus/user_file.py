"""Reading a user's file once, since a pipe cannot be read twice: lines, or a JSON list."""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO, cast

from recallbed.errors import DataError
from recallbed.harness.input_text import STRICT_JSON, RepeatedKey

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
                path,
                1,
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
                error = DataError(f"longer than {limit:,} bytes", path, number, todo=raise_limit())
                if on_fault is None:
                    raise error
                while raw and not raw.endswith(b"\n"):
                    raw = feed(stream.readline(_REST))
                on_fault(error)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"cannot be read ({error})", path, number + 1 if number else None
        ) from error


def empty(path: Path) -> DataError:
    """The fault of a file in which nothing was."""
    if path.exists() and not path.is_file():
        todo = "It is a pipe, which can be read only once. Save it to a file first"
    else:
        todo = "Fetch it again; nothing was read"
    return DataError("the file is empty", path, todo=todo)


CHUNK = 1 << 20  # characters
_SPACE = re.compile(r"[ \t\n\r]*")
# The longest token besides a string that a cut may go through: `-Infinity`, or half a \uXXXX pair.
_TOKEN = 12


def read_json_list(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (position from 0, object) for every member of the list that `path` (or .gz) holds.

    Memory holds one object and its text, up to twice over. A byte order mark is passed over.
    `path` is opened once, so it may be a pipe.

    Raises DataError, with the position, for anything that is not one JSON list of objects, for an
    object that gives a key twice, and for one longer than `recallbed.corpus.user_file.max_line()`.
    """
    try:
        with open_data(path) as stream:
            yield from _members(_Buffer(path, stream))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot be read ({error})", path) from error


def _members(text: _Buffer) -> Iterator[tuple[int, dict[str, Any]]]:
    first = text.next()
    if not first:
        raise empty(text.path)
    if first != "[":
        raise DataError(f"the file must hold one JSON list, and starts with {first!r}", text.path)
    text.at += 1
    if text.next() == "]":
        text.at += 1
        text.finish()
        return
    while True:
        if text.next() != "{":
            raise text.unexpected("an object")
        yield text.position, text.object()
        text.position += 1
        if text.next() not in (",", "]"):
            raise text.unexpected("`,` or `]`")
        text.at += 1
        if text.text[text.at - 1] == "]":
            text.finish()
            return


class _Buffer:
    """The text from the object in hand to as far as the file was read."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path = path
        self.stream = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        self.text = ""
        self.at = 0
        self.before = 0  # characters of the file in front of `text`
        self.position = 0  # of the object in hand
        self.largest = max_line()  # characters of one object; LongMemEval's take about 5 million

    def next(self) -> str:
        """The next character that is no white space, not taken; "" at the end of the file."""
        while True:
            space = _SPACE.match(self.text, self.at)
            assert space is not None  # it matches nothing at all, too
            self.at = space.end()
            if self.at < len(self.text):
                return self.text[self.at]
            if not self._more():
                return ""

    def object(self) -> dict[str, Any]:
        """The object that starts here, taken."""
        while True:
            try:
                value, self.at = STRICT_JSON.raw_decode(self.text, self.at)
            except JSONDecodeError as error:
                # Either the text in hand ends too early or the JSON is wrong. A cut shows as a
                # string without end or as a fault in the last token.
                cut = error.msg.startswith("Unterminated string")
                if not cut and error.pos < len(self.text) - _TOKEN:
                    raise self._fault(f"not valid JSON ({error.msg})", error.pos) from error
                if len(self.text) - self.at > self.largest:
                    what = f"longer than {self.largest:,} characters"
                    raise self._fault(what, self.at, raise_limit()) from error
                if not self._more():
                    raise self._fault("the file breaks off, or isn't valid JSON", error.pos) from (
                        error
                    )
            except RecursionError as error:
                raise self._fault("JSON nested too deeply", self.at) from error
            except RepeatedKey as error:
                raise self._fault(str(error), self.at, "Keep one of the two") from error
            except ValueError as error:
                raise self._fault(f"not valid JSON ({error})", self.at) from error
            else:
                found: dict[str, Any] = value
                return found

    def finish(self) -> None:
        """Refuse text after the list."""
        if self.next():
            raise self._fault("unexpected text after the end of the list", self.at)

    def unexpected(self, wanted: str) -> DataError:
        """What is here instead of `wanted`."""
        found = self.next()
        if not found:
            return self._fault("the file breaks off", self.at)
        return self._fault(f"expected {wanted}, found {found!r}", self.at)

    def _fault(self, what: str, at: int, todo: str = "") -> DataError:
        return DataError(
            f"instance [{self.position}]: {what}, at character {self.before + at:,}",
            self.path,
            todo=todo,
        )

    def _more(self) -> bool:
        """Drop what was taken and at least double the rest, so that retries cost little."""
        left = self.text[self.at :]
        try:
            new = self.stream.read(max(CHUNK, len(left)))
        except UnicodeDecodeError as error:
            raise DataError(
                f"instance [{self.position}]: not UTF-8 ({error.reason})",
                self.path,
                todo="Save it as UTF-8",
            ) from error
        self.before += self.at
        self.text, self.at = left + new, 0
        return bool(new)
