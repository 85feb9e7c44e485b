"""Checksums of what is kept, so that damage is found when it is read back."""

from __future__ import annotations

import json
import zlib
from typing import Any

KEY = "check"
_OPEN, _CLOSE = f', "{KEY}": "'.encode(), b'"}'
_LENGTH = len(_OPEN) + 8 + len(_CLOSE)

Value = str | bytes | int | float | None


def check_of(*values: Value) -> int:
    """The CRC-32 of values in their order; a text and its UTF-8 bytes are equal.

    Never raises, whatever the types: a damaged database gives any.
    """
    encoded = [v.encode("utf-8", "surrogatepass") if isinstance(v, str) else v for v in values]
    return zlib.crc32(repr(encoded).encode())


def seal(line: bytes) -> bytes:
    """A JSON object on one line, with the CRC-32 of its bytes as last key, `check`."""
    body = line.rstrip(b"\n")
    return body[:-1] + _OPEN + f"{zlib.crc32(body):08x}".encode() + _CLOSE + b"\n"


def unseal(line: bytes) -> tuple[Any, bool]:
    """The value of a line without its check, and whether that agrees with the bytes.

    A line that has none, as older versions wrote it, agrees. Raises ValueError or RecursionError
    if the line is not JSON.
    """
    value = json.loads(line)
    if not isinstance(value, dict) or KEY not in value:
        return value, True
    body = line.rstrip(b"\n")
    check = value.pop(KEY)
    return value, check == f"{zlib.crc32(body[:-_LENGTH] + b'}'):08x}"
