"""Official prediction rows of the four tasks: their keys, rows of failures, a check.

The rules are those of AlpsBench's docs/prediction_contract.md and of the reader of its scorer
(src/benchmark/runner.py): exactly these keys, one row for each row of model_input, the
`benchmark_id` as it is there, plain UTF-8. Stricter than that reader: it drops members of
`memory_items` that are no objects, and takes NaN and repeated keys.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.jsonl import BYTE_ORDER_MARK, read_jsonl
from recallbed.corpus.records import Task3Row
from recallbed.corpus.tracks import NAMES
from recallbed.corpus.tracks import track as track_called
from recallbed.errors import DataError, UserError
from recallbed.harness.run_folder import PREDICTIONS

JSON = Any
FILLED = "recallbed:failed"
"""Marks a row that was written for a failed one. It is a value, since more keys are refused."""
_TEXTS: Mapping[str, tuple[str, ...]] = {
    "task1": (),
    "task2": (),
    "task3": ("answer", "reason", "selected_memory_id"),
    "task4": ("answer", "used_memory_fact"),
}
"""Fields with text by task; tasks 1 and 2 have a list, `memory_items`, instead."""
SHOWN = 20


def filled_row(task: str, benchmark_id: str) -> dict[str, JSON]:
    """Return the official row of a failed row of `task` (task1 to task4); it matches no gold."""
    if not _TEXTS[task]:
        # A memory: an empty list may be a system's answer, and is right if the gold is empty.
        item = {"memory_id": FILLED, "type": "", "label": "", "value": ""}
        return {"benchmark_id": benchmark_id, "memory_items": [item]}
    marked = {"task3": "reason", "task4": "used_memory_fact"}[task]
    texts = {key: FILLED if key == marked else "" for key in _TEXTS[task]}
    return {"benchmark_id": benchmark_id, **texts}


def is_filled(row: Mapping[str, JSON]) -> bool:
    """Return whether a prediction row of any task was written by `filled_row`."""
    name = row.get("benchmark_id")
    return isinstance(name, str) and any(row == filled_row(task, name) for task in _TEXTS)


@dataclass(slots=True)
class FormatReport:
    """What a file of predictions has: `faults` are those that the official scorer refuses.

    `foreign` counts selected ids (task 3) that are not in the pool, which are only wrong.
    """

    file: Path
    track: str
    rows: int = 0
    filled: int = 0
    foreign: int = 0
    faults: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Return the report as lines of text."""
        yield from (f"fault: {fault}" for fault in self.faults[:SHOWN])
        if len(self.faults) > SHOWN:
            yield f"... and {len(self.faults) - SHOWN} more faults"
        if self.foreign:
            yield f"selected_memory_id is not in the pool: {self.foreign}"
        yield (
            f"{self.file}: {self.track}, rows {self.rows}, filled for failures {self.filled},"
            f" faults {len(self.faults)}"
        )


def check_format(
    source: Path, track: str, data: Path | None, split: str, limit: int | None = None
) -> FormatReport:
    """Check a file, or a run folder's predictions.jsonl, against the rows of `track` in a split.

    `limit` asks for the first rows only. Raise UserError for an unknown track and a folder without
    official rows of it, and DataError for faulty data and a file that cannot be read at all.
    """
    known = track_called(track)
    if known is None:
        raise UserError(f"--predictions {track}: choose one of {', '.join(NAMES)}")
    inputs = read_inputs(data, split, known, limit)
    task = track.partition("/")[0].partition("_")[0]
    path = source / PREDICTIONS if source.is_dir() else source
    if source.is_dir() and (task == "task4" or not path.exists()):
        raise UserError(
            f"{source}: has no official rows of {track}."
            " Pass a file that recallbed export --what predictions writes"
        )
    report = FormatReport(path, track)
    first: dict[str, int] = {}

    def fault(error: DataError) -> None:
        report.rows += 1
        report.faults.append(str(error))

    repairs = Counter[str]()
    for line, row in read_jsonl(path, repairs, on_fault=fault):
        report.rows += 1
        report.filled += is_filled(row)
        report.faults += (f"{path}:{line}: {text}" for text in _faults(row, task))
        name = row.get("benchmark_id")
        if not isinstance(name, str):
            continue
        if name not in inputs.rows:
            report.faults.append(f"{path}:{line}: `{name}` is not a benchmark_id of {track}")
        elif first.setdefault(name, line) != line:
            report.faults.append(f"{path}:{line}: `{name}` has a row on line {first[name]} too")
        report.foreign += name in inputs.rows and _is_foreign(row, inputs.rows[name])
    if repairs[BYTE_ORDER_MARK]:
        report.faults.append(f"{path}:1: begins with a byte order mark. Save it without one")
    if path.suffix == ".gz":
        report.faults.append(f"{path}: is compressed. Unpack it")
    missing = [name for name in inputs.rows if name not in first]
    if missing:
        report.faults.append(
            f"{path}: no row for {len(missing)} of {len(inputs.rows)}, the first is `{missing[0]}`"
        )
    return report


def _faults(row: Mapping[str, JSON], task: str) -> Iterator[str]:
    texts = ("benchmark_id", *_TEXTS[task])
    keys = set(texts) | (set() if _TEXTS[task] else {"memory_items"})
    if missing := sorted(keys - row.keys()):
        yield f"without {_listed(missing)}"
    if more := sorted(row.keys() - keys):
        yield f"has {_listed(more)}, and {task} has {_listed(sorted(keys))} only"
    for key in texts:
        if key in row and not isinstance(row[key], str):
            yield f"`{key}` must be a string"
    items = row.get("memory_items", [])
    if not _TEXTS[task] and not isinstance(items, list):
        yield "`memory_items` must be a list"
    elif not _TEXTS[task] and not all(isinstance(item, dict) for item in items):
        yield "`memory_items` must hold objects"
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        yield "has half of a surrogate pair, which cannot be written as UTF-8"


def _listed(keys: Collection[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)


def _is_foreign(row: Mapping[str, JSON], asked: Any) -> bool:
    selected = row.get("selected_memory_id")
    if not isinstance(asked, Task3Row) or not isinstance(selected, str) or not selected.strip():
        return False
    ids = {name.strip().lower() for name in asked.memory_ids}
    return selected.strip().lower() not in ids
