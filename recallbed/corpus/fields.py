"""Taking a field out of a row, or saying which one is missing and where."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recallbed.corpus.jsonl import Repairs
from recallbed.errors import DataError
from recallbed.harness.clean_text import clean_text


@dataclass(frozen=True, slots=True)
class Fields:
    """The whitelisting reader of one line: only what is asked for by name is ever taken."""

    path: Path
    line: int
    repairs: Counter[str]

    def fault(self, what: str, todo: str = "") -> DataError:
        """A DataError at this line."""
        return DataError(what, path=self.path, line=self.line, todo=todo)

    def take(self, value: Any, field: str, kind: type, where: str = "") -> Any:
        """`value[field]` if it is a `kind`."""
        name = f"{where}.{field}" if where else field
        if not isinstance(value, dict):
            raise self.fault(f"`{where or 'row'}` must be an object, not {type(value).__name__}")
        if field not in value:
            raise self.fault(f"field `{name}` is missing")
        found = value[field]
        if not isinstance(found, kind):
            raise self.fault(f"field `{name}` must be {_NAMES[kind]}, not {type(found).__name__}")
        return found

    def text(self, value: Any, field: str, where: str = "") -> str:
        """`value[field]` as clean text."""
        raw = self.take(value, field, str, where)
        before = dict(self.repairs)
        text = clean_text(raw, self.repairs)
        if text is not raw and isinstance(self.repairs, Repairs):
            for kind, count in self.repairs.items():
                if count > before.get(kind, 0):
                    self.repairs.at(kind, self.path, self.line)
        return text

    def optional_text(self, value: Any, field: str, where: str = "") -> str | None:
        """`value[field]` as clean text, None if it is missing or null."""
        if isinstance(value, dict) and value.get(field) is None:
            return None
        return self.text(value, field, where)

    def number(self, value: Any, field: str, where: str = "") -> float | None:
        """`value[field]` as a finite number, None if it is missing or null."""
        found = value.get(field) if isinstance(value, dict) else None
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.fault(
                f"field `{where}.{field}` must be a number, not {type(found).__name__}"
            )
        try:
            number = float(found)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.fault(f"field `{where}.{field}` is too large a number")
        return number

    def objects(self, value: Any, field: str, where: str = "") -> Iterator[tuple[str, Any]]:
        """The members of the list `value[field]`, each with its name for messages."""
        name = f"{where}.{field}" if where else field
        for i, member in enumerate(self.take(value, field, list, where)):
            yield f"{name}[{i}]", member


_NAMES: dict[type, str] = {str: "a string", dict: "an object", list: "a list"}
