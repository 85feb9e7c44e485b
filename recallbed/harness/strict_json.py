"""JSON as its readers agree on it: NaN and Infinity are refused, and so is a key given twice."""

from __future__ import annotations

import json
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
