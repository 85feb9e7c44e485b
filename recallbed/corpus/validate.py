"""Checking a release or predictions: `python -m recallbed.corpus.validate PATH`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from recallbed.corpus.custom import is_custom, meant, read_custom
from recallbed.corpus.jsonl import Repairs, find_jsonl
from recallbed.corpus.options import DataOptions
from recallbed.corpus.records import Task3Row
from recallbed.corpus.stream import Track, stream
from recallbed.corpus.tracks import track as track_called
from recallbed.corpus.tracks import tracks_in
from recallbed.errors import DataError, UserError
from recallbed.harness.app import App
from recallbed.harness.options import AsJson

SHOWN = 200
app = App()


@dataclass
class TrackReport:
    """What one track of one split holds.

    `fields` counts what the lines of a release have, two levels deep, and `further` the further
    fields of a user's own file. `warnings` names fields that may be misspelled.
    """

    split: str
    track: str
    rows: int = 0
    with_gold: int = 0
    faults: int = 0
    fields: dict[str, int] = field(default_factory=dict)
    repaired: dict[str, int] = field(default_factory=dict)
    unusual: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    pools_with_repeated_ids: int = 0
    repeated_texts: int = 0
    further: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def keep(self, repairs: Repairs) -> None:
        """Take over what was repaired or unusual, and where."""
        self.repaired = dict(sorted(repairs.items()))
        self.unusual = dict(sorted(repairs.seen.items()))
        self.places = repairs.places


@dataclass
class Report:
    """A whole release. `faults` holds the first ones in full; `fault_count` counts all."""

    tracks: list[TrackReport] = field(default_factory=list)
    no_tracks: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    fault_count: int = 0

    def fault(self, error: Exception) -> None:
        """Count a fault and keep it if there is room."""
        self.fault_count += 1
        if len(self.faults) < SHOWN:
            self.faults.append(" ".join(str(error).split()))


def validate(root: Path) -> Report:
    """Read every track of every split under `root`, a row at a time.

    `root` may be a release, its `benchmark_data`, one split, or a user's own file. Raises
    DataError if there is nothing to validate.
    """
    report = Report()
    if is_custom(root):
        report.tracks.append(_validate_custom(root, report))
        return report
    seen = _Seen()
    for split, folder in list(_splits(root)):
        tracks, others = tracks_in(folder)
        report.no_tracks += [f"{split}/{name}" for name in others]
        for name in others:
            references = find_jsonl(folder / name, "reference_output")
            if references is not None and track_called(name) is not None:
                report.fault(DataError("no model_input.jsonl next to it", references))
        for track in tracks:
            report.tracks.append(_validate_track(split, folder, track, report, seen))
    if not report.tracks:
        raise DataError(
            "no split with a track in it",
            root,
            todo="Expected <split>/<track>/model_input.jsonl, such as dev/task1/model_input.jsonl",
        )
    return report


def _validate_custom(path: Path, report: Report) -> TrackReport:
    """A user's own file, as one track named after it."""
    found, repairs = TrackReport("own", path.name), Repairs()
    further: Counter[str] = Counter()
    try:
        for row in read_custom(path, repairs, on_fault=report.fault):
            found.rows += 1
            found.with_gold += bool(row.golds)
            further.update(list(row.fields))
            found.repeated_texts += len(row.candidates) - len({m.text for m in row.candidates})
        if found.rows and not found.with_gold:
            report.fault(DataError("no row has a gold, so nothing can be scored", path))
    except DataError as error:
        report.fault(error)
    found.faults = report.fault_count
    found.further = dict(sorted(further.items()))
    for name in found.further:
        if known := meant(name):
            found.warnings.append(f"field `{name}` is read as a further field: is `{known}` meant?")
    found.keep(repairs)
    return found


def _splits(root: Path) -> Iterator[tuple[str, Path]]:
    if not root.is_dir():
        raise DataError("no such folder", root)
    inner = root / "benchmark_data"
    root = inner if inner.is_dir() else root
    if tracks_in(root)[0]:
        yield root.resolve().name, root
        return
    for folder in sorted(p for p in root.iterdir() if p.is_dir()):
        yield folder.name, folder


def _validate_track(
    split: str, folder: Path, track: Track[Any], report: Report, seen: _Seen
) -> TrackReport:
    found, repairs = TrackReport(split, track.name), Repairs()
    before = report.fault_count
    fields: Counter[str] = Counter()
    inputs = folder / track.name / "model_input.jsonl"

    def count(value: dict[str, Any]) -> None:
        fields.update(_paths(value))

    try:
        for row in stream(folder, track, repairs, on_fault=report.fault, observe=count):
            found.rows += 1
            found.with_gold += row.gold is not None
            for what in seen.faults(row, split, track.name):
                report.fault(DataError(what, inputs, row.line))
            if isinstance(row, Task3Row):
                found.pools_with_repeated_ids += len(set(row.memory_ids)) < len(row.memory_ids)
                found.repeated_texts += len(row.candidates) - len({m.text for m in row.candidates})
    except DataError as error:
        report.fault(error)
    found.faults = report.fault_count - before
    found.fields = dict(sorted(fields.items()))
    found.keep(repairs)
    return found


class _Seen:
    """What the rows that were read tell of those that are read later."""

    def __init__(self) -> None:
        self._splits: dict[tuple[str, str], str] = {}
        # By split and id, where a query was first seen, its words, and the text of its gold.
        self._queries: dict[tuple[str, str], tuple[str, str, str | None]] = {}

    def faults(self, row: Any, split: str, track: str) -> Iterator[str]:
        """What is wrong with a row that can be read by itself."""
        name = row.benchmark_id
        # A query may be in several tracks of a split, never in two splits.
        first = self._splits.setdefault((track, name), split)
        if first != split:
            yield f"`{name}` appears in split `{first}` too"
        if not isinstance(row, Task3Row):
            return
        size = int(track.removeprefix("task3/d")) + 1
        if len(row.candidates) != size:
            yield f"the pool of `{name}` has {len(row.candidates)} memories, not {size}"
        # A query has the same words and the same gold at every size.
        gold = row.gold_memory.text if row.golds else None
        first, query, known = self._queries.setdefault((split, name), (track, row.query, gold))
        if query != row.query or (None not in (gold, known) and gold != known):
            yield f"`{name}` has another query or gold than in {first}"
        elif known is None:  # a size without references came first
            self._queries[split, name] = track, query, gold


def _paths(value: dict[str, Any]) -> Iterator[str]:
    for key, inner in value.items():
        yield key
        if key in ("input", "gold") and isinstance(inner, dict):
            yield from (f"{key}.{name}" for name in inner)


def describe(report: Report) -> Iterator[str]:
    """The report as lines of text."""
    for t in report.tracks:
        line = f"{t.split}/{t.track}: {t.rows} rows, {t.with_gold} with gold, {t.faults} faults"
        if t.track.startswith("task3/"):
            line += (
                f"; stored ids repeat in {t.pools_with_repeated_ids} pools,"
                f" {t.repeated_texts} exact repeats of texts"
            )
        yield line
        for what, counts in (("repaired", t.repaired), ("kept as it is", t.unusual)):
            for kind, count in counts.items():
                where = ", ".join(t.places.get(kind, ()))
                yield f"  {what}: {kind} x {count} (first at {where})"
        for name, count in t.further.items():
            yield f"  further field: {name} x {count}"
        yield from (f"  warning: {line}" for line in t.warnings)
    for name in report.no_tracks:
        yield f"not a track, or without model_input.jsonl: {name}"
    yield from (f"fault: {line}" for line in report.faults)
    if report.fault_count > len(report.faults):
        yield f"... and {report.fault_count - len(report.faults)} faults more"
    rows = sum(t.rows for t in report.tracks)
    yield f"{len(report.tracks)} tracks, {rows} rows, {report.fault_count} faults"


@app.command(
    examples=(
        "recallbed validate release",
        "recallbed validate task1.predictions.jsonl --predictions task1",
    )
)
def command(
    path: Annotated[
        Path,
        typer.Argument(
            help="A release, its benchmark_data, one split, or your own .jsonl; with --predictions"
            " a file of predictions or a run folder."
        ),
    ],
    *,
    predictions: Annotated[
        str | None,
        typer.Option(
            metavar="TRACK",
            help="Check official predictions of this track, such as task3/d100 or task4_ability1.",
        ),
    ] = None,
    data_options: DataOptions,
    as_json: AsJson = False,
) -> None:
    """Check every row of a release, a data file or predictions.

    Reports what was repaired and where, and the further fields of your own file. Exit code 2 if
    there is a fault. With --predictions: the faults for which the official scorer refuses a file;
    --data, --split and --limit say what was asked.
    """
    from recallbed.corpus.contract import check_format
    from recallbed.harness.terminal import say, say_json

    if predictions is not None:
        asked = data_options
        found = check_format(path, predictions, asked.data, asked.split, asked.limit)
        if as_json:
            say_json(json.dumps({**asdict(found), "file": str(found.file)}, indent=1))
        else:
            say(*found.lines())
        if found.faults:
            raise SystemExit(2)
        return
    if data_options != DataOptions():
        raise UserError("--data, --split and --limit go with --predictions")
    report = validate(path)
    if as_json:
        # Names of fields come as they are, lone surrogates too, so nothing but ASCII is safe.
        say_json(json.dumps(asdict(report), indent=1))
    else:
        say(*describe(report))
    if report.fault_count:
        raise SystemExit(2)


if __name__ == "__main__":
    app()
