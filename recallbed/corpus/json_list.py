"""Reading one JSON list of objects, however long the file, an object at a time."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO

from recallbed.corpus.user_file import empty, max_line, open_data, raise_limit
from recallbed.errors import DataError
from recallbed.harness.strict_json import STRICT_JSON, RepeatedKey

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
        raise DataError(f"cannot be read ({error})", path=path) from error


def _members(text: _Buffer) -> Iterator[tuple[int, dict[str, Any]]]:
    first = text.next()
    if not first:
        raise empty(text.path)
    if first != "[":
        raise DataError(
            f"the file must hold one JSON list, and starts with {first!r}", path=text.path
        )
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
            path=self.path,
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
                path=self.path,
                todo="Save it as UTF-8",
            ) from error
        self.before += self.at
        self.text, self.at = left + new, 0
        return bool(new)
