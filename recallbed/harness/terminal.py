"""Printing: results on stdout, notes on stderr, and nothing in a text that steers the terminal."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable
from contextlib import suppress

# C0 and C1 controls (ANSI escapes start with one), bidirectional controls, line and paragraph
# separators, and unpaired surrogates (bytes of a file name that are not UTF-8).
_STEERING = "\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff"
_UNSAFE = re.compile(f"[{_STEERING}\n]")
_UNSAFE_JSON = re.compile(f"[{_STEERING}]")
_BLANKS = re.compile(r"[ \t\n\r\f\v]+")
DEBUG = "RECALLBED_DEBUG"
"""Set in the environment while --debug holds, so that worker processes know of it."""


def debugging() -> bool:
    """Whether tracebacks are shown."""
    return bool(os.environ.get(DEBUG))


def visible(text: object) -> str:
    r"""Return the text with characters that steer a terminal as escapes, such as `\x1b`, `\u202e`.

    The result is one line, can be encoded as UTF-8, and is safe in a terminal and a picture.
    """
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], str(text))


def one_line(text: object) -> str:
    """Return `visible` text with each run of blanks and line breaks as one space."""
    return visible(_BLANKS.sub(" ", str(text)).strip())


class SafeLine(str):
    """A line made of `visible` parts, which `say` prints as it is."""

    __slots__ = ()


def isolated(text: str) -> SafeLine:
    """Return `visible` text, between bidirectional isolates if it has right-to-left characters.

    They keep its direction from the rest of the line, and no terminal shows them.
    """
    text = visible(text)
    if any(unicodedata.bidirectional(c) in ("R", "AL") for c in text):
        text = f"\u2068{text}\u2069"
    return SafeLine(text)


def say(*lines: object) -> None:
    """Print lines of a result on stdout."""
    for line in lines:
        print(_encodable(line if isinstance(line, SafeLine) else visible(line)))


def note(*lines: object) -> None:
    """Print lines on stderr: remarks on the result, errors, progress."""
    if not lines:
        return
    with suppress(OSError):  # a closed pipe is found by whoever prints on it next
        sys.stdout.flush()  # so that both, into one file, keep their order
    for line in lines:
        print(visible(line), file=sys.stderr)


def say_json(text: str) -> None:
    """Print JSON on stdout: an equal value, with escapes for what steers a terminal."""
    text = _UNSAFE_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    try:
        text.encode(_encoding())
    except UnicodeEncodeError:
        text = json.dumps(json.loads(text), indent=1)
    print(text)


def say_result(value: object, lines: Iterable[object], as_json: bool) -> None:
    """Print a result on stdout: as canonical JSON, or as lines of text."""
    if as_json:
        from recallbed.harness.fingerprint import canonical

        say_json(canonical(value))
    else:
        say(*lines)


def _encoding() -> str:
    return sys.stdout.encoding or "utf-8"


def _encodable(line: str) -> str:
    return line.encode(_encoding(), "backslashreplace").decode(_encoding())
