"""Characters that a text should not hold, and texts that were decoded wrongly."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ESCAPES = re.compile(r"\\u[0-9a-fA-F]{4}")
_REPLACEMENT = "\ufffd"
# What a UTF-8 sequence of two to four bytes becomes if each byte is read as Windows-1252 or
# Latin-1: one character from U+00C2 to U+00F4, then those of bytes 80 to BF.
_AFTER = "\x80-\xbf" + "".join(
    bytes([byte]).decode("cp1252")
    for byte in range(0x80, 0xA0)
    if byte not in b"\x81\x8d\x8f\x90\x9d"
)
_TWICE = re.compile(f"[\xc2-\xdf][{_AFTER}]|[\xe0-\xef][{_AFTER}]{{2}}|[\xf0-\xf4][{_AFTER}]{{3}}")
_USUAL = re.compile(
    "[\xa0-\u017f\u2010-\u203a\u20ac]|[\u0370-\u05ff]|[\u3040-\u9fff]|[\U0001f300-\U0001faff]"
)


def encoding_faults(text: str) -> Iterator[str]:
    r"""Yield the kinds of fault in a text.

    `mojibake` (UTF-8 read as Latin-1 or Windows-1252), `replacement character`, `control
    character` (without tab and line ends), `lone surrogate`, `escape sequence` (such as `\u00e9`
    in letters), `not in normal form C`.
    """
    if text.isascii() and not _CONTROLS.search(text) and "\\u" not in text:
        return
    if _is_mojibake(text):
        yield "mojibake"
    if _REPLACEMENT in text:
        yield "replacement character"
    if _CONTROLS.search(text):
        yield "control character"
    if any("\ud800" <= c <= "\udfff" for c in text):
        yield "lone surrogate"
    if _ESCAPES.search(text):
        yield "escape sequence"
    if not unicodedata.is_normalized("NFC", text):
        yield "not in normal form C"


def _is_mojibake(text: str) -> bool:
    return any(_USUAL.match(_decoded(found[0])) for found in _TWICE.finditer(text))


def _decoded(text: str) -> str:
    """The characters whose UTF-8 bytes `text` shows, "" if there are none."""
    raw = bytearray()
    for character in text:
        try:
            raw += character.encode("cp1252")
        except UnicodeEncodeError:
            raw.append(ord(character))
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return ""


def without_faults(text: str) -> str:
    """Return the text in normal form C, without control characters and replacement characters."""
    text = _CONTROLS.sub("", text).replace(_REPLACEMENT, "")
    return unicodedata.normalize("NFC", text)
