"""Data inside one HTML file: compressed blocks that the page reads on demand, and plain JSON."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

_ENDS_AN_ELEMENT = re.compile("[<>&]")
_KIND = "application/octet-stream;base64"
_NAME = re.compile("[a-z][a-z0-9-]*")


def inline_json(value: Any) -> str:
    """Return JSON that may be the text of a <script> element: no character of it ends one.

    It is ASCII; `<`, `>` and `&` are escapes. ValueError for NaN.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return _ENDS_AN_ELEMENT.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Blocks:
    """Named blocks; each is compressed when it is added, so that one at a time is held whole."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def add(self, name: str, value: Any) -> None:
        """Add a JSON value. ValueError for NaN, a second block of a name, and one that is no id."""
        text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        # An unpaired surrogate becomes the JSON escape of it.
        self.add_bytes(name, text.encode("utf-8", "backslashreplace"))

    def add_bytes(self, name: str, data: bytes) -> None:
        """Add bytes, such as the source of a script."""
        if name in self._texts or not _NAME.fullmatch(name):
            raise ValueError(f"{name}: not the name of a new block")
        # zlib's format has neither a time nor a name: equal data, equal bytes.
        self._texts[name] = base64.b64encode(zlib.compress(data)).decode("ascii")

    def elements(self) -> Iterator[str]:
        """Yield one <script> element per block, which a browser keeps and does not run."""
        for name, text in self._texts.items():
            yield f'<script type="{_KIND}" id="block-{name}">{text}</script>\n'


def in_chunks(values: Sequence[Any], length: int) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield (number of the chunk, its values), each of `length` values but the last."""
    for number, start in enumerate(range(0, len(values), length)):
        yield number, values[start : start + length]
