"""Strict JSON (no NaN, Infinity or repeated key), and texts without unusable characters."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, NoReturn


class RepeatedKey(ValueError):
    """An object gives one key twice, and readers differ in which of the two counts."""

    def __init__(self, key: str) -> None:
        super().__init__(f"key `{key[:60]}` appears twice in one object")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RepeatedKey(key)
            seen.add(key)
    return found


STRICT_JSON = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)
"""`decode(text)` raises ValueError: JSONDecodeError, RepeatedKey, or for NaN and Infinity."""


# U+0000 breaks C tokenizers, a lone surrogate cannot be encoded at all.
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")


def is_clean(text: str) -> bool:
    """Whether `clean_text` would return `text` itself."""
    return not _UNUSABLE.search(text)


def clean_text(text: str, repairs: Counter[str]) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD, each counted in `repairs`."""
    if is_clean(text):
        return text

    def repair(match: re.Match[str]) -> str:
        repairs["NUL" if match[0] == "\x00" else "lone surrogate"] += 1
        return "\ufffd"

    return _UNUSABLE.sub(repair, text)
