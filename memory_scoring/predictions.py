"""Reading anyone's prediction rows of tasks 1 and 2: `{benchmark_id, memory_items}`.

Models write all sorts of things into a memory's fields. What is no text is taken as its JSON, as
the public scorer does, so that a list of values can still be compared.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recallbed.corpus.fields import Fields
from recallbed.corpus.jsonl import new_digest, read_jsonl
from recallbed.corpus.predictions import Tally
from recallbed.corpus.records import MemoryItem
from recallbed.errors import DataError
from recallbed.harness.clean_text import clean_text

KEYS = ("memory_items",)


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One row: the memories that it predicts, None where `fault` says what is wrong."""

    line: int
    benchmark_id: str
    items: tuple[MemoryItem, ...] | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """All rows that say which session they are for, in file order, and a tally of all others.

    `left_out` counts members of a list that are no objects; `without_value` memories without a
    text, which are scored all the same. `mended` counts what else was put right. `digest` was fed
    the bytes read.
    """

    path: Path
    rows: list[MemoryRow] = field(default_factory=list)
    malformed: Tally = field(default_factory=Tally)
    nameless: Tally = field(default_factory=Tally)
    left_out: Tally = field(default_factory=Tally)
    without_value: Tally = field(default_factory=Tally)
    mended: Counter[str] = field(default_factory=Counter)
    digest: Any = field(default_factory=new_digest)

    @property
    def sha256(self) -> str:
        """Sixteen hex digits over the file, unpacked."""
        return str(self.digest.hexdigest())[:16]

    @property
    def lines(self) -> int:
        """How many lines were read, blank ones aside."""
        return len(self.rows) + self.malformed.count + self.nameless.count


def read_memory_rows(path: Path, keys: Sequence[str] = KEYS) -> MemoryFile:
    """Read every line that can be read; the memories stand under the first of `keys` that is there.

    Raises DataError for a file that can't be read at all, is empty or a Git LFS pointer.
    """
    found = MemoryFile(path)

    def malformed(error: DataError) -> None:
        found.malformed.add(error.line or 0, fault=str(error))

    for line, value in read_jsonl(path, found.mended, found.digest, malformed):
        fields = Fields(path, line, found.mended)
        try:
            name = fields.text(value, "benchmark_id")
        except DataError as error:
            found.nameless.add(line, fault=str(error))
            continue
        key = next((key for key in keys if key in value), keys[0])
        try:
            members = fields.take(value, key, list)
        except DataError as error:
            found.rows.append(MemoryRow(line, name, None, str(error)))
            continue
        found.rows.append(MemoryRow(line, name, _items(members, line, found)))
    return found


def _items(members: Sequence[Any], line: int, found: MemoryFile) -> tuple[MemoryItem, ...]:
    items = []
    for member in members:
        if not isinstance(member, dict):
            found.left_out.add(line)
            continue
        item = predicted_item(member, found.mended)
        if not item.text.strip():
            found.without_value.add(line)
        items.append(item)
    return tuple(items)


def predicted_item(value: Mapping[str, Any], mended: Counter[str]) -> MemoryItem:
    """One memory as a model wrote it, whatever its fields are; `mended` counts what is no text."""

    def text(key: str) -> str | None:
        raw = value.get(key)
        if raw is None:
            return None
        if not isinstance(raw, str):
            mended[f"{key} is no text: taken as JSON"] += 1
            raw = json.dumps(raw, ensure_ascii=False, sort_keys=True)
        return clean_text(raw, mended)

    return MemoryItem(
        text=text("value") or "",
        id=text("memory_id"),
        label=text("label"),
        type=text("type"),
        confidence=_confidence(value.get("confidence"), mended),
        time_scope=text("time_scope"),
        attitude=text("preference_attitude"),
        emotion=text("emotion"),
    )


def _confidence(raw: Any, mended: Counter[str]) -> float | None:
    """A number, also one that is written as text; anything else counts as missing."""
    if raw is None:
        return None
    try:
        number = float(raw)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        mended["confidence is no number: taken as missing"] += 1
        return None
    return number
