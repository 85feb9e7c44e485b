"""Reading a run folder back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.summary import summarise
from harness.errors import UserError
from harness.run_folder import ROWS, TIMINGS, is_row, read_manifest


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder in memory; a last row cut short is left out."""

    path: Path
    manifest: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its retrievers, in order."""
        return tuple(entry["label"] for entry in self.manifest["fingerprint"]["retrievers"])

    def summary(self, ks: Sequence[int]) -> dict[str, Any]:
        """Its summary for any `ks`."""
        return summarise(self.manifest, self.rows, ks)


def read_run(path: Path) -> Run:
    """The run in `path`; a UserError where there is none, or nothing in it."""
    manifest = read_manifest(path)
    rows = _lines(path / ROWS)
    for number, row in enumerate(rows, 1):
        if not is_row(row):
            raise UserError(f"{path / ROWS}:{number}: not a row of task3.sweep")
    if not rows:
        raise UserError(f"{path}: the run has no rows yet")
    return Run(path, manifest, rows)


def seconds_by_label(path: Path) -> dict[str, tuple[float, float]]:
    """For each label the seconds spent on preparing, and on scoring, over all sessions of a run."""
    spent: dict[str, tuple[float, float]] = {}
    for record in _lines(path / TIMINGS):
        prepare, score = spent.get(record["retriever"], (0.0, 0.0))
        if record.get("phase") == "prepare":
            prepare += record["seconds"]
        else:
            score += record["seconds"]
        spent[record["retriever"]] = (prepare, score)
    return spent


def _lines(path: Path) -> list[Any]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    found = []
    for number, line in enumerate(raw[: raw.rfind(b"\n") + 1].split(b"\n")[:-1], 1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise UserError(f"{path}:{number}: not valid JSON") from None
    return found
