"""Rows of any track, one at a time: inputs and references read side by side and matched by id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from recallbed.corpus.jsonl import Fields, OnFault, find_jsonl, read_jsonl
from recallbed.errors import DataError


class _Row(Protocol):
    @property
    def benchmark_id(self) -> str: ...


R = TypeVar("R", bound=_Row)


@dataclass(frozen=True, slots=True)
class Track(Generic[R]):
    """A folder of a split, with how to read a line of its input and attach that of its reference.

    Both functions raise DataError, and take from a line only the fields they name.
    """

    name: str
    read: Callable[[dict[str, Any], Fields], R]
    attach: Callable[[R, dict[str, Any], Fields], R]


def stream(
    folder: Path,
    track: Track[R],
    repairs: Counter[str],
    *,
    on_fault: OnFault | None = None,
    digests: tuple[Any, Any] | None = None,
    observe: Callable[[dict[str, Any]], None] | None = None,
) -> Iterator[R]:
    """Yield the rows of `folder/<track>`, with gold if there is a reference_output file.

    Memory holds one row, or as many as the two files are out of step. Raises DataError for the
    first fault; with `on_fault` every fault of a line is handed to it, and its row left out.
    `observe` is shown every raw line.
    """

    def report(error: DataError) -> None:
        if on_fault is None:
            raise error
        on_fault(error)

    place = folder / track.name
    inputs = find_jsonl(place, "model_input")
    references = find_jsonl(place, "reference_output")
    if inputs is None:
        raise DataError("no model_input.jsonl here", place)
    sides = digests or (None, None)
    left = _Side(inputs, repairs, report, sides[0], observe)
    if references is None:
        for _, fields, value in left.lines():
            row = _try(track.read, value, fields, report=report)
            if row is not None:
                yield row
        return
    right = _Side(references, repairs, report, sides[1], observe)
    rows: dict[str, R | None] = {}
    golds: dict[str, tuple[Fields, dict[str, Any]]] = {}
    for one, other in zip_longest(left.lines(), right.lines()):
        if one is not None:
            name, fields, value = one
            rows[name] = _try(track.read, value, fields, report=report)
        if other is not None:
            name, fields, value = other
            golds[name] = (fields, value)
        for name in {line[0]: None for line in (one, other) if line is not None}:
            if name in rows and name in golds:
                row, (fields, value) = rows.pop(name), golds.pop(name)
                row = row and _try(track.attach, row, value, fields, report=report)
                if row is not None:
                    yield row
    for name, (fields, _) in golds.items():
        report(fields.fault(f"benchmark_id `{name}` has no row in {inputs.name}"))
    for name in rows:
        fields = Fields(inputs, left.first_line[name], repairs)
        report(fields.fault(f"benchmark_id `{name}` has no row in {references.name}"))


class _Side:
    """One of the two files: its lines with their ids, an id that appears twice reported."""

    def __init__(
        self,
        path: Path,
        repairs: Counter[str],
        report: OnFault,
        digest: Any | None,
        observe: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self.path, self.repairs, self.report, self.digest = path, repairs, report, digest
        self.observe = observe
        self.is_input = path.name.startswith("model_input")
        self.first_line: dict[str, int] = {}

    def lines(self) -> Iterator[tuple[str, Fields, dict[str, Any]]]:
        for line, value in read_jsonl(self.path, self.repairs, self.digest, self.report):
            fields = Fields(self.path, line, self.repairs)
            if self.observe is not None:
                self.observe(value)
            # What is repaired in an id is counted where its row is read, or here if it is not.
            peek = Fields(self.path, line, Counter() if self.is_input else self.repairs)
            name = _try(peek.text, value, "benchmark_id", report=self.report)
            if name is None:
                continue
            if name in self.first_line:
                self.report(
                    fields.fault(
                        f"benchmark_id `{name}` appears twice,"
                        f" first on line {self.first_line[name]}",
                        "Keep one of the two rows",
                    )
                )
                continue
            self.first_line[name] = line
            yield name, fields, value


def _try(function: Callable[..., Any], *arguments: Any, report: OnFault) -> Any:
    """The function's value, or None if it found a fault, which is reported."""
    try:
        return function(*arguments)
    except DataError as error:
        report(error)
        return None
