"""Prediction rows of any task: reading a file, and matching it with the questions of a split.

All four tasks count the same causes and print them in the same words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from recallbed.corpus.contract import is_filled
from recallbed.corpus.jsonl import Fields, new_digest, read_jsonl
from recallbed.errors import DataError, UserError
from recallbed.harness.input_text import clean_text
from recallbed.harness.run_folder import PREDICTIONS

T = TypeVar("T")
JSON = Any
ANSWERED, NULL_OR_EMPTY, FAULTY = "answered", "null_or_empty", "faulty"
REPEATED, MISSING = "repeated", "missing"
Line = int | str
"""Number of a line, or `FILE:NUMBER` if several files were read."""
FILLED_ROW = "row written for a failure: taken as missing"
CAUSE_TEXTS = {
    ANSWERED: "answered",
    "correct": "correct",
    "wrong": "wrong",
    "not_in_pool": "selected id not in the pool",
    NULL_OR_EMPTY: "null or empty",
    FAULTY: "field missing or invalid",
    REPEATED: "repeated, none counted",
    MISSING: "missing, no row",
    "unknown": "unknown id",
    "without_benchmark_id": "benchmark_id missing or not a string",
    "malformed": "malformed line",
}


@dataclass(slots=True)
class Tally:
    """A count, with the line numbers and, for faults, the messages."""

    FIRST: ClassVar[int] = 5
    count: int = 0
    lines: list[Line] = field(default_factory=list)
    faults: list[tuple[Line, str]] = field(default_factory=list)

    def add(self, *lines: Line, fault: str = "") -> None:
        """Count one occurrence on `lines`."""
        self.count += 1
        self.lines += lines
        if fault:
            self.faults.append((lines[0], fault))

    @property
    def first_lines(self) -> list[Line]:
        """The first FIRST line numbers, ascending."""
        return sorted(self.lines, key=_by_file)[: self.FIRST]

    @property
    def first_faults(self) -> list[str]:
        """The messages of the first FIRST faults."""
        faults = sorted(self.faults, key=lambda one: (_by_file(one[0]), one[1]))
        return [fault for _, fault in faults[: self.FIRST]]

    def to_json(self) -> dict[str, JSON]:
        """Return the count, the first lines and, if any, the first messages."""
        found: dict[str, JSON] = {"count": self.count, "lines": self.first_lines}
        return {**found, "faults": self.first_faults} if self.faults else found

    def text(self, place: str = "lines") -> str:
        """Return the count and the first lines, such as `3 (lines 1, 4, 9)`."""
        more = ", ..." if self.count > len(self.first_lines) else ""
        return f"{self.count} ({place} {', '.join(map(str, self.first_lines))}{more})"

    def within(self, file: Path) -> Tally:
        """Return the tally with lines that name `file`."""
        faults: list[tuple[Line, str]] = [(f"{file}:{line}", text) for line, text in self.faults]
        return Tally(self.count, [f"{file}:{line}" for line in self.lines], faults)

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, self.lines + other.lines, self.faults + other.faults)


def _by_file(line: Line) -> tuple[str, int]:
    file, _, number = str(line).rpartition(":")
    return file, int(number)


@dataclass(frozen=True, slots=True)
class Prediction(Generic[T]):
    """One predicted value; None if the row is faulty.

    `name` is what it answers: the benchmark_id, in task 4 followed by the query_id. `file` is set
    if several were read.
    """

    line: int
    benchmark_id: str
    name: str
    value: T | None
    fault: str = ""
    file: Path | None = None

    @property
    def place(self) -> Line:
        """Its line, with the file if several were read."""
        return self.line if self.file is None else f"{self.file}:{self.line}"


@dataclass(slots=True)
class PredictionFile(Generic[T]):
    """All predictions of a file in its order, and a tally of all other lines.

    `source` is the path given, a run folder or a file, or what several `files` were named by.
    `lines` counts the lines that are not blank. `digest` was fed the bytes read.
    """

    source: Path | str
    files: tuple[Path, ...] = ()
    predictions: list[Prediction[T]] = field(default_factory=list)
    nameless: Tally = field(default_factory=Tally)
    malformed: Tally = field(default_factory=Tally)
    repairs: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    digest: Any = field(default_factory=new_digest)

    @property
    def sha256(self) -> str:
        """Sixteen hex digits over the file, unpacked."""
        return str(self.digest.hexdigest())[:16]


Members = Callable[[str, Any, Fields], Iterable[tuple[str, str, Any]]]
"""(benchmark_id, row, fields) -> (name, place in the row, value) of each prediction of a row."""


def _whole_row(benchmark_id: str, row: Any, fields: Fields) -> Iterable[tuple[str, str, Any]]:
    return [(benchmark_id, "", row)]


def read_prediction_file(
    source: Path, parse: Callable[[Any, Fields, str], T], members: Members = _whole_row
) -> PredictionFile[T]:
    """Read every line that can be read, of a file or of a run folder's predictions.jsonl.

    `parse` makes the value of a member, given its fields and its place in the row. A DataError that
    it raises makes the prediction faulty; one that `members` raises makes the line malformed. A row
    that was written for a failure (`contract.filled_row`) is counted, and gives no prediction.
    Raise DataError for a file that cannot be read at all, is empty or a Git LFS pointer, and
    UserError for a folder without predictions.jsonl.
    """
    path = source / PREDICTIONS if source.is_dir() else source
    if path != source and not path.exists():
        raise UserError(f"{source}: no {PREDICTIONS} here. Give a finished run or a file")
    file = PredictionFile[T](source)

    def malformed(error: DataError) -> None:
        file.lines += 1
        file.malformed.add(error.line or 0, fault=str(error))

    for line, row in read_jsonl(path, file.repairs, file.digest, malformed):
        file.lines += 1
        if is_filled(row):
            file.repairs[FILLED_ROW] += 1
            continue
        fields = Fields(path, line, file.repairs)
        try:
            benchmark_id = fields.text(row, "benchmark_id")
        except DataError as error:
            file.nameless.add(line, fault=str(error))
            continue
        try:
            found = list(members(benchmark_id, row, fields))
        except DataError as error:
            file.malformed.add(line, fault=str(error))
            continue
        for name, place, member in found:
            value, fault = None, ""
            try:
                value = parse(member, fields, place)
            except DataError as error:
                fault = str(error)
            file.predictions.append(Prediction(line, benchmark_id, name, value, fault))
    return file


def official_files(source: Path, names: re.Pattern[str]) -> list[Path]:
    """Return the files of the folder `source` that are called as `names` says, by name and size.

    A file, a run folder and a folder without such files are returned as they are.
    """
    if not source.is_dir() or (source / PREDICTIONS).exists():
        return [source]
    found = [path for path in source.iterdir() if names.fullmatch(path.name)]
    return sorted(found, key=lambda path: (len(path.name), path.name)) or [source]


def joined(
    source: Path | str, files: Sequence[tuple[Path, PredictionFile[T]]]
) -> PredictionFile[T]:
    """Return several files with their paths as one, whose lines are `FILE:NUMBER`; one as it is."""
    if len(files) == 1:
        return files[0][1]
    found = PredictionFile[T](source, tuple(path for path, _ in files))
    for path, one in files:
        found.predictions += [replace(prediction, file=path) for prediction in one.predictions]
        found.nameless += one.nameless.within(path)
        found.malformed += one.malformed.within(path)
        found.repairs += one.repairs
        found.lines += one.lines
        found.digest.update(one.digest.digest())
    return found


class NameLookup:
    """Finds which of `names` an id means.

    Case and surrounding white space do not count, as in the public scorer. If that makes different
    names equal, these are found as they are written only.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._by_plain: dict[str, list[str]] = {}
        for name in self._names:
            self._by_plain.setdefault(_plain_id(name), []).append(name)

    def find(self, given: str) -> str | None:
        """Return the name that `given` means, None for none."""
        if given in self._names:
            return given
        found = self._by_plain.get(_plain_id(given), [])
        return found[0] if len(found) == 1 else None


def _plain_id(name: str) -> str:
    return name.strip().lower()


@dataclass(frozen=True, slots=True)
class Match(Generic[T]):
    """What a file holds for one question: a cause, and the value if there is exactly one row.

    `lines` are those of the rows; for a missing question, its line in model_input.
    """

    cause: str
    lines: tuple[Line, ...]
    value: T | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class MatchCounts:
    """Questions by cause, and how many of them are answered."""

    asked: int
    answered: int
    causes: Mapping[str, Tally]

    @property
    def coverage(self) -> float | None:
        """The share of questions that are answered; None without questions."""
        return self.answered / self.asked if self.asked else None

    def to_json(self) -> dict[str, JSON]:
        """Return asked, answered, coverage and the tally of each cause."""
        return {
            "asked": self.asked,
            "answered": self.answered,
            "coverage": None if self.coverage is None else round(self.coverage, 6),
            "causes": {cause: tally.to_json() for cause, tally in self.causes.items()},
        }


@dataclass(frozen=True, slots=True)
class Matching(Generic[T]):
    """A file matched with questions: `of` holds the match of each question, in their order.

    `answers` are the causes that count as answered.
    """

    file: PredictionFile[T]
    of: Mapping[str, Match[T]]
    unknown: Tally
    answers: tuple[str, ...]

    @property
    def values(self) -> dict[str, T]:
        """The value of each answered question."""
        return {
            name: match.value
            for name, match in self.of.items()
            if match.cause in self.answers and match.value is not None
        }

    def counts(self, names: Collection[str] | None = None) -> MatchCounts:
        """Count the questions `names`, by default all."""
        matches = [self.of[name] for name in (self.of if names is None else names)]
        causes = {
            cause: Tally() for cause in (*self.answers, NULL_OR_EMPTY, FAULTY, REPEATED, MISSING)
        }
        for match in matches:
            causes[match.cause].add(*match.lines, fault=match.fault)
        answered = sum(match.cause in self.answers for match in matches)
        return MatchCounts(len(matches), answered, causes)

    @property
    def unmatched(self) -> dict[str, Tally]:
        """The predictions and lines that answer no question."""
        return {
            "unknown": self.unknown,
            "without_benchmark_id": self.file.nameless,
            "malformed": self.file.malformed,
        }

    def header(self) -> dict[str, JSON]:
        """Return the part of a report that says which file was read and what it did not answer."""
        return {
            "predictions": str(self.file.source),
            **({"files": [str(one) for one in self.file.files]} if self.file.files else {}),
            "lines": self.file.lines,
            "lines_of_no_query": {name: tally.to_json() for name, tally in self.unmatched.items()},
            "repaired": dict(self.file.repairs),
        }

    def unmatched_lines(self) -> Iterator[str]:
        """Return lines on what answers no question, and on what was repaired while reading."""
        if any(tally.count for tally in self.unmatched.values()):
            yield "lines that belong to no query"
            yield from describe_tallies(self.unmatched)
        for kind, count in sorted(self.file.repairs.items()):
            yield f"repaired: {kind} x {count}"


def match_predictions(
    file: PredictionFile[T],
    questions: Mapping[str, int],
    judge: Callable[[str, T], tuple[str, str]] = lambda name, value: (ANSWERED, ""),
    answers: tuple[str, ...] = (ANSWERED,),
) -> Matching[T]:
    """Match predictions with questions (name -> line in model_input) by `NameLookup`.

    `judge` gives the cause of a question's only value, and its fault if there is one. Raise
    UserError if no question is answered.
    """
    given: dict[str, list[Prediction[T]]] = {name: [] for name in questions}
    unknown, lookup = Tally(), NameLookup(questions)
    for prediction in file.predictions:
        name = lookup.find(prediction.name)
        if name is None:
            unknown.add(prediction.place)
        else:
            given[name].append(prediction)
    matches: dict[str, Match[T]] = {}
    for name, rows in given.items():
        lines = tuple(row.place for row in rows)
        if len(rows) != 1:
            cause = REPEATED if rows else MISSING
            matches[name] = Match(cause, lines or (questions[name],))
            continue
        value = rows[0].value
        cause, fault = (FAULTY, rows[0].fault) if value is None else judge(name, value)
        matches[name] = Match(cause, lines, value, fault)
    matching = Matching(file, matches, unknown, answers)
    if not matching.values:
        counted = {**matching.counts().causes, **matching.unmatched}
        del counted[MISSING]
        listed = "; ".join(
            [f"{CAUSE_TEXTS[c]}: {t.count}" for c, t in counted.items() if t.count]
            + [f"{what}: {count}" for what, count in file.repairs.items() if what == FILLED_ROW]
        )
        first = next(
            (f"; {tally.first_faults[0]}" for tally in counted.values() if tally.faults), ""
        )
        raise UserError(f"{file.source}: no line can be scored ({listed}){first}")
    return matching


def describe_tallies(tallies: Mapping[str, Tally], indent: str = "  ") -> Iterator[str]:
    """Return a line for every cause that occurs, with its first lines, and one for each fault."""
    for cause, tally in tallies.items():
        if tally.count and cause != ANSWERED:
            place = "model_input lines" if cause == MISSING else "lines"
            yield f"{indent}{CAUSE_TEXTS[cause]}: {tally.text(place)}"
            yield from (f"{indent}  {fault}" for fault in tally.first_faults)


# Task 3


@dataclass(frozen=True, slots=True)
class Selection:
    """A row of task 3: the id that it selects, "" for null or empty, None if `fault` is set.

    `answer` and `reason` are None if missing or not a string; exact match needs neither.
    """

    selected: str | None
    answer: str | None = None
    reason: str | None = None
    fault: str = ""


def read_selections(source: Path) -> PredictionFile[Selection]:
    """Read predictions of task 3. Raise as `read_prediction_file` does."""
    return read_prediction_file(source, _selection)


def _selection(row: Any, fields: Fields, place: str) -> Selection:
    answer, reason = (
        clean_text(row[key], Counter()) if isinstance(row.get(key), str) else None
        for key in ("answer", "reason")
    )
    if "selected_memory_id" in row and row["selected_memory_id"] is None:
        return Selection("", answer, reason)
    try:
        selected = fields.text(row, "selected_memory_id")
    except DataError as error:
        return Selection(None, answer, reason, str(error))
    return Selection(selected if selected.strip() else "", answer, reason)


def meant_ids(selected: str, memory_ids: Collection[str]) -> frozenset[str]:
    """Return the stored ids that a selected id means, in the pool of `memory_ids`; empty for none.

    Case and surrounding white space do not count, as in the public scorer. If that makes different
    ids of the pool equal, only the id as it is written counts.
    """
    found = NameLookup(memory_ids).find(selected)
    return frozenset(() if found is None else (found,))
