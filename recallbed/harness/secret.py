"""A key or token: sent to one server, and struck out of every text that is shown or stored."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from urllib.parse import quote, quote_plus, unquote

_SHORTEST = 6
"""Characters. A shorter one is a placeholder such as "none", which is also a word."""
_SHORTEST_PART = 8
"""Characters of base64 below which a part of a longer text would be found by chance."""
# How keys of the larger services begin.
_LOOKS_LIKE_A_KEY = re.compile(
    r"(?:sk|rk|pk|ak)[-_][\w-]{16,}|(?:gsk|hf|r8|fw|tgp)_\w{16,}|AIza[\w-]{20,}"
    r"|(?:xai|nvapi|pplx|csk|key|api)-[\w-]{16,}"
)


class Secret:
    """A secret that no repr shows. `masked` strikes it out of what a server or library says."""

    def __init__(self, value: str) -> None:
        self._value = value

    @property
    def value(self) -> str:
        """The secret itself."""
        return self._value

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"

    def masked(self, text: str) -> str:
        """`text` with the secret as `***`, however it is written there.

        Plain, as in a repr, escaped for JSON, HTML or a URL, one such form inside another, and in
        base64, alone or as a part of something longer.
        """
        return self._pattern.sub("***", text) if self._pattern else text

    def shows_in(self, text: str) -> bool:
        """Whether `text` holds the secret in one of these forms."""
        return self._pattern is not None and self._pattern.search(text) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        if len(self._value) < _SHORTEST:
            return None
        found = {self._value}
        for _ in range(2):
            found |= {write(form) for form in found for write in _FORMS}
        found |= set(_base64(self._value))
        # The longest first, or a form inside another would leave the rest of that.
        return re.compile("|".join(map(re.escape, sorted(found, key=lambda f: (-len(f), f)))))


def _small_hex(text: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quote(text, safe=""))


_FORMS: tuple[Callable[[str], str], ...] = (
    lambda text: repr(text)[1:-1],
    lambda text: repr(text + "\"'")[1:-4],  # which marks repr escapes depends on what is around
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    html.escape,
    quote,
    quote_plus,
    lambda text: quote(text, safe=""),
    _small_hex,
)


def _base64(value: str) -> Iterator[str]:
    """The characters of base64 that the value alone decides, at each of the three alignments."""
    raw = value.encode("utf-8", "surrogatepass")
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        start = -(-before * 8 // 6)
        whole = (before + len(raw)) * 8 // 6
        for form in (encoded[start:whole], encoded[start:whole].translate({43: "-", 47: "_"})):
            if len(form) >= _SHORTEST_PART:
                yield form


def looks_like_a_key(url: str) -> bool:
    """Whether a segment of a URL's path begins as keys of the larger services do."""
    path = unquote(url).partition("://")[2].partition("/")[2]
    return any(_LOOKS_LIKE_A_KEY.fullmatch(segment) for segment in path.split("/"))
