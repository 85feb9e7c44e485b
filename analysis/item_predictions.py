"""Official prediction rows of a run over items: tasks 1, 2 and 4, and the answers of task 3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from recallbed.corpus.contract import filled_row
from recallbed.errors import UserError
from recallbed.harness.item_run import is_item_row
from recallbed.harness.run_folder import MANIFEST, ROWS, is_count, read_manifest, read_rows

JSON = Any
Row = Mapping[str, JSON]
OfficialRow: TypeAlias = tuple[str, Row | None]
"""A benchmark_id and its official row, None for a failed one."""


def is_item_run(path: Path) -> bool:
    """Return whether the run in `path` has a row per item. Raise UserError without a run."""
    prints = read_manifest(path)["fingerprint"]
    return "answer" in prints or isinstance(prints.get("task"), str)


def official_rows(path: Path) -> dict[str, list[OfficialRow]]:
    """Return by track the items of a finished run, each with its official row, None if it failed.

    Of a user with several questions (task 4) that is the answer to the first, which the release
    asks as `input.query`. Raise UserError for an unfinished run, and for answers of task 3 from
    pools that are not the released ones, whose memories have no stored id.
    """
    prints = read_manifest(path)["fingerprint"]
    tracks = _tracks(path, prints)
    rows, _ = read_rows(path / ROWS, is_item_row, "a row of a run of items")
    if len(rows) != sum(tracks.values()):
        raise UserError(
            f"{path}: has {len(rows)} of {sum(tracks.values())} rows. Finish the run with --resume"
        )
    left = iter(rows)
    return {
        track: [(row["item"], _official(track, row)) for row in islice(left, count)]
        for track, count in tracks.items()
    }


def _tracks(path: Path, prints: Mapping[str, JSON]) -> dict[str, int]:
    """The tracks of a run in the order of its rows, with the number of rows."""
    data = prints.get("data")
    data = data if isinstance(data, dict) else {}
    found: dict[str, JSON] = {}
    if "answer" in prints:
        pools = prints.get("pools")
        pools = pools if isinstance(pools, dict) else {}
        if pools.get("strategy") != "released":
            raise UserError(f"{path}: predictions name stored ids, so they need --pools released")
        found = {f"task3/d{size}": data.get("queries") for size in pools.get("distractors") or ()}
    elif prints["task"] in ("task1", "task2"):
        found = {prints["task"]: data.get("rows")}
    elif prints["task"] == "task4" and isinstance(data.get("tracks"), dict):
        found = {
            track: about.get("rows") if isinstance(about, dict) else None
            for track, about in data["tracks"].items()
        }
    if not found or not all(map(is_count, found.values())):
        raise UserError(f"{path / MANIFEST}: does not describe rows of tasks 1 to 4")
    return found


def _official(track: str, row: Row) -> Row | None:
    result = row["result"]
    if row["error"] is not None:
        return None
    name = {"benchmark_id": row["item"]}
    if track in ("task1", "task2"):
        return {**name, "memory_items": result["memory_items"]}
    if track.startswith("task3"):
        keys = ("answer", "reason", "selected_memory_id")
        return {**name, **{key: result[key] for key in keys}}
    first = result["responses"][0]
    if first["error"] is not None:
        return None
    used = first["used_memory_fact"] or ""
    return {**name, "answer": first["answer"] or "", "used_memory_fact": used}


def filled(track: str, rows: Sequence[OfficialRow], *, fill_failed: bool) -> Iterator[Row]:
    """Yield the official rows in order; failed ones only if `fill_failed`, as `filled_row`."""
    for name, row in rows:
        if row is not None:
            yield row
        elif fill_failed:
            yield filled_row(track.partition("/")[0].partition("_")[0], name)
