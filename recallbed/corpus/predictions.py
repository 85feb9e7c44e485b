"""Reading anyone's file of prediction rows: what can be used, and where the rest stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from recallbed.corpus.fields import Fields
from recallbed.corpus.jsonl import new_digest, read_jsonl
from recallbed.errors import DataError
from recallbed.harness.clean_text import clean_text


@dataclass(slots=True)
class Tally:
    """How often something was found, on which lines and, for faults, with which message."""

    FIRST: ClassVar[int] = 5
    count: int = 0
    lines: list[int] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)

    def add(self, *lines: int, fault: str = "") -> None:
        """Count one, which stands on `lines`."""
        self.count += 1
        self.lines += lines
        if fault:
            self.faults.append((lines[0], fault))

    def as_json(self) -> dict[str, Any]:
        """The count, the first lines and, where there are any, the first messages."""
        found: dict[str, Any] = {"count": self.count, "lines": sorted(self.lines)[: self.FIRST]}
        if self.faults:
            found["faults"] = [fault for _, fault in sorted(self.faults)[: self.FIRST]]
        return found


@dataclass(frozen=True, slots=True)
class Prediction:
    """One row: the id it selects, "" for null or empty, None if `fault` says what is wrong.

    `answer` and `reason` are its texts, "" if missing.
    """

    line: int
    benchmark_id: str
    selected: str | None
    fault: str = ""
    answer: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PredictionFile:
    """All rows that say which query they are for, in file order, and a tally of all others.

    `incomplete` counts rows whose `answer` or `reason` is missing or not a text. Nothing is scored
    by these, so such a row is used all the same. `mended` counts blank lines and the like.
    `digest` was fed the bytes read.
    """

    path: Path
    rows: list[Prediction] = field(default_factory=list)
    malformed: Tally = field(default_factory=Tally)
    nameless: Tally = field(default_factory=Tally)
    incomplete: Tally = field(default_factory=Tally)
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


def meant_ids(selected: str, memory_ids: Collection[str]) -> frozenset[str]:
    """The stored ids that a selected id means, in the pool of `memory_ids`; empty for none.

    Case and surrounding white space do not count, as in the public scorer. If that makes different
    ids of the pool equal, only the id as it is written counts.
    """
    found = frozenset(name for name in memory_ids if _plain_id(name) == _plain_id(selected))
    return found if len(found) < 2 else found & {selected}


def _plain_id(name: str) -> str:
    return name.strip().lower()


def read_predictions(path: Path) -> PredictionFile:
    """Read every line that can be read.

    Raises DataError for a file that can't be read at all, is empty or a Git LFS pointer.
    """
    found = PredictionFile(path)

    def malformed(error: DataError) -> None:
        found.malformed.add(error.line or 0, fault=str(error))

    for line, value in read_jsonl(path, found.mended, found.digest, malformed):
        fields = Fields(path, line, found.mended)
        try:
            name = fields.text(value, "benchmark_id")
        except DataError as error:
            found.nameless.add(line, fault=str(error))
            continue
        words = {key: _words(value, key) for key in ("answer", "reason")}
        try:
            found.rows.append(Prediction(line, name, _selected(value, fields), **words))
        except DataError as error:
            found.rows.append(Prediction(line, name, None, str(error), **words))
        if not all(isinstance(value.get(key), str) for key in ("answer", "reason")):
            found.incomplete.add(line)
    return found


def _words(value: Mapping[str, Any], key: str) -> str:
    found = value.get(key)
    return clean_text(found, Counter()) if isinstance(found, str) else ""


def _selected(value: Mapping[str, Any], fields: Fields) -> str:
    if "selected_memory_id" in value and value["selected_memory_id"] is None:
        return ""
    selected = fields.text(value, "selected_memory_id")
    return selected if selected.strip() else ""
