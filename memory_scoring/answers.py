"""Predictions of tasks 1 and 2 beside the references: every session falls under one cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from memory_scoring.predictions import KEYS, MemoryFile, read_memory_rows
from recallbed.corpus.inputs import Inputs, read_inputs
from recallbed.corpus.predictions import Tally
from recallbed.corpus.records import MemoryItem
from recallbed.corpus.stream import Track
from recallbed.errors import UserError

JSON = Any
Items = tuple[MemoryItem, ...]
ANSWERED = "answered"
CAUSES = (ANSWERED, "faulty", "repeated", "missing")


class Session(Protocol):
    """What of a row of task 1 or 2 is needed here."""

    @property
    def benchmark_id(self) -> str:
        """Its name."""

    @property
    def session_id(self) -> str:
        """The cluster that it belongs to."""

    @property
    def line(self) -> int:
        """Where it stands in model_input."""

    @property
    def gold(self) -> Items | None:
        """What should have been predicted."""


R = TypeVar("R", bound=Session)


@dataclass(frozen=True, slots=True)
class Answers(Generic[R]):
    """The sessions of a split, and what a file predicts for them.

    `items` holds the memories of each session that has exactly one sound row, in data order;
    `causes` tallies all sessions by what became of them, `others` the lines that belong to none.
    """

    inputs: Inputs[R]
    found: MemoryFile
    items: Mapping[str, Items]
    causes: Mapping[str, Tally]
    others: Mapping[str, Tally]

    @property
    def rows(self) -> Mapping[str, R]:
        """All sessions, by benchmark_id."""
        return self.inputs.rows

    def gold(self, name: str) -> Items:
        """The gold memories of a session."""
        gold = self.rows[name].gold
        assert gold is not None  # rows were read with their references
        return gold

    def described(self) -> dict[str, JSON]:
        """All but the memories, for a report."""
        answered, asked = len(self.items), len(self.rows)
        return {
            "task": self.inputs.track,
            "predictions": str(self.found.path),
            "split": self.inputs.split,
            "sample": self.inputs.sample,
            "lines": self.found.lines,
            "asked": asked,
            "answered": answered,
            "coverage": round(answered / asked, 6),
            "causes": {cause: tally.as_json() for cause, tally in self.causes.items()},
            "lines_of_no_session": {name: tally.as_json() for name, tally in self.others.items()},
            "members_left_out": self.found.left_out.as_json(),
            "memories_without_value": self.found.without_value.as_json(),
            "mended": dict(self.found.mended),
        }


def read_answers(
    path: Path, data: Path | None, split: str, track: Track[R], keys: Sequence[str] = KEYS
) -> Answers[R]:
    """The sessions of a split with their references, and what the file predicts for them.

    Raises DataError for faulty data or a split without references, and as `sort_out` does.
    """
    return sort_out(read_inputs(data, split, track, with_gold=True), path, keys)


def sort_out(inputs: Inputs[R], path: Path, keys: Sequence[str] = KEYS) -> Answers[R]:
    """Who answered, and what became of all other sessions and lines.

    Raises DataError for a file that can't be read, and UserError where no line of it answers a
    session.
    """
    found = read_memory_rows(path, keys)
    given: dict[str, list[Any]] = {name: [] for name in inputs.rows}
    unknown = Tally()
    for row in found.rows:
        if row.benchmark_id in given:
            given[row.benchmark_id].append(row)
        else:
            unknown.add(row.line)
    causes = {cause: Tally() for cause in CAUSES}
    items: dict[str, Items] = {}
    for name, rows in given.items():
        if not rows:
            causes["missing"].add(inputs.rows[name].line)
        elif len(rows) > 1:
            causes["repeated"].add(*(row.line for row in rows))
        elif rows[0].items is None:
            causes["faulty"].add(rows[0].line, fault=rows[0].fault)
        else:
            causes[ANSWERED].add(rows[0].line)
            items[name] = rows[0].items
    others = {
        "unknown": unknown,
        "without_benchmark_id": found.nameless,
        "malformed": found.malformed,
    }
    answers = Answers(inputs, found, items, causes, others)
    if not items:
        raise UserError(_nothing_used(answers))
    return answers


NAMES = {
    ANSWERED: "answered",
    "faulty": "memory_items missing or not a list",
    "repeated": "benchmark_id repeated, none counted",
    "missing": "missing, no row",
    "unknown": "unknown, no such session",
    "without_benchmark_id": "benchmark_id missing or not a text",
    "malformed": "malformed line",
}


def _nothing_used(answers: Answers[Any]) -> str:
    tallies = {**answers.causes, **answers.others}
    counted = {k: v for k, v in tallies.items() if v.count and k != "missing"}
    first = next((v.faults[0][1] for v in counted.values() if v.faults), "")
    listed = "; ".join(f"{NAMES[cause]}: {tally.count}" for cause, tally in counted.items())
    path, lines = answers.found.path, answers.found.lines
    return f"{path}: not one of {lines} lines answers a session ({listed})" + (
        first and f"; {first}"
    )
