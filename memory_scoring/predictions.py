"""Predicted memory lists of tasks 1 and 2, matched with the sessions of a split.

Models write values of any type into a memory's fields. A value that is not text is replaced by its
JSON, as in the public scorer, so that a list of values can still be compared.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from recallbed.corpus.inputs import Inputs, read_inputs
from recallbed.corpus.jsonl import Fields
from recallbed.corpus.predictions import (
    Matching,
    PredictionFile,
    Tally,
    match_predictions,
    read_prediction_file,
)
from recallbed.corpus.records import MemoryItem, Task1Row, Task2Row
from recallbed.corpus.stream import Track
from recallbed.errors import UserError
from recallbed.harness.input_text import clean_text
from recallbed.harness.run_folder import MANIFEST, read_manifest

Items = tuple[MemoryItem, ...]
KEYS = ("memory_items",)


R = TypeVar("R", Task1Row, Task2Row)


@dataclass(frozen=True, slots=True)
class MemoryList:
    """The memories of one row; `left_out` counts members of the list that are not objects."""

    items: Items
    left_out: int = 0


def read_memory_lists(source: Path, keys: Sequence[str] = KEYS) -> PredictionFile[MemoryList]:
    """Read `{benchmark_id, memory_items}` rows; the list is under the first of `keys` present.

    Raise as `read_prediction_file` does.
    """

    def parse(row: Any, fields: Fields, place: str) -> MemoryList:
        key = next((key for key in keys if key in row), keys[0])
        members = fields.take(row, key, list)
        objects = [member for member in members if isinstance(member, dict)]
        items = tuple(predicted_item(member, fields.repairs) for member in objects)
        return MemoryList(items, len(members) - len(items))

    return read_prediction_file(source, parse)


def predicted_item(value: Mapping[str, Any], repairs: Counter[str]) -> MemoryItem:
    """Return one memory whatever its fields hold; `repairs` counts values that are not text."""

    def text(key: str) -> str | None:
        raw = value.get(key)
        if raw is None:
            return None
        if not isinstance(raw, str):
            repairs[f"{key} is not text: taken as JSON"] += 1
            raw = json.dumps(raw, ensure_ascii=False, sort_keys=True)
        return clean_text(raw, repairs)

    return MemoryItem(
        text=text("value") or "",
        id=text("memory_id"),
        label=text("label"),
        type=text("type"),
        confidence=_confidence(value.get("confidence"), repairs),
        time_scope=text("time_scope"),
        attitude=text("preference_attitude"),
        emotion=text("emotion"),
    )


def _confidence(raw: Any, repairs: Counter[str]) -> float | None:
    """Return a number, also if it is given as text; anything else counts as missing."""
    if raw is None:
        return None
    try:
        number = float(raw)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        repairs["confidence is not a number: taken as missing"] += 1
        return None
    return number


@dataclass(frozen=True, slots=True)
class PredictedSessions(Generic[R]):
    """The sessions of a split, read with their references, and what a file predicts for them."""

    inputs: Inputs[R]
    matching: Matching[MemoryList]

    @property
    def rows(self) -> Mapping[str, R]:
        """All sessions, by benchmark_id."""
        return self.inputs.rows

    @property
    def sides(self) -> dict[str, tuple[Items, Items]]:
        """The gold and the predicted memories of each answered session, in data order."""
        return {name: (self.gold(name), one.items) for name, one in self.matching.values.items()}

    def gold(self, name: str) -> Items:
        """Return the gold memories of a session."""
        gold = self.rows[name].gold
        assert gold is not None  # rows were read with their references
        return gold

    @property
    def left_out(self) -> Tally:
        """Members of the lists that are not objects."""
        return self._tally(lambda one: one.left_out)

    @property
    def without_value(self) -> Tally:
        """Memories without text, which are scored all the same."""
        return self._tally(lambda one: sum(not item.text.strip() for item in one.items))

    def _tally(self, count: Callable[[MemoryList], int]) -> Tally:
        tally = Tally()
        for row in self.matching.file.predictions:
            for _ in range(0 if row.value is None else count(row.value)):
                tally.add(row.line)
        return tally


def read_predicted_sessions(
    source: Path, data: Path | None, split: str, track: Track[R], keys: Sequence[str] = KEYS
) -> PredictedSessions[R]:
    """Read a split with its references and what `source`, a file or a run folder, predicts.

    Raise DataError for faulty data or a split without references, UserError for a run of another
    task, and as `match_sessions` does.
    """
    if (source / MANIFEST).exists():
        task = read_manifest(source)["fingerprint"].get("task", track.name)
        if task != track.name:
            raise UserError(f"{source}: a run of {task}, not of {track.name}")
    return match_sessions(read_inputs(data, split, track, with_gold=True), source, keys)


def match_sessions(
    inputs: Inputs[R], source: Path, keys: Sequence[str] = KEYS
) -> PredictedSessions[R]:
    """Match predictions with sessions.

    Raise DataError for a file that cannot be read, and UserError if no session is answered.
    """
    lines = {name: row.line for name, row in inputs.rows.items()}
    return PredictedSessions(inputs, match_predictions(read_memory_lists(source, keys), lines))
