"""The rows of a run or of a score: one track an ability, put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.jsonl import find_jsonl
from recallbed.corpus.layout import sample_root, split_folder
from recallbed.corpus.records import Task4Row
from recallbed.corpus.task4 import ABILITIES, task4_track
from recallbed.errors import DataError, UserError


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows by benchmark_id, ability by ability, each in file order; `data` tells which they are."""

    rows: Mapping[str, Task4Row]
    data: Mapping[str, Any]


def read_rows(
    root: Path | None,
    split: str,
    abilities: Iterable[int] = (),
    limit: int | None = None,
    *,
    with_gold: bool = False,
) -> Rows:
    """The rows of `abilities` (1 to 5), the first `limit` of each; none named: all that are there.

    References aren't opened unless they are asked for. Raises DataError for faulty files and for a
    benchmark_id that two abilities have, UserError for a number that is no ability.
    """
    folder = split_folder(root or sample_root(), split)
    there = [
        ability
        for ability in ABILITIES
        if find_jsonl(folder / task4_track(ability).name, "model_input")
    ]
    asked = sorted(set(abilities)) or there
    for ability in asked:
        if ability not in ABILITIES:
            raise UserError(f"--ability {ability}: task 4 has 1 to {ABILITIES[-1]}")
    if not asked:
        raise DataError(
            "no task4_ability<N> here",
            path=folder,
            todo="Give --data the folder above the splits of a release",
        )
    rows: dict[str, Task4Row] = {}
    tracks: dict[str, Any] = {}
    sample = False
    for ability in asked:
        inputs = read_inputs(root, split, task4_track(ability), limit, with_gold=with_gold)
        for name, row in inputs.rows.items():
            if name in rows:
                raise DataError(
                    f"benchmark_id `{name}` stands in ability {rows[name].ability} too",
                    path=folder / inputs.track,
                    line=row.line,
                    todo="Ask for one of them with --ability",
                )
            rows[name] = row
        tracks[inputs.track] = {"sha256": inputs.sha256, "rows": len(inputs.rows)}
        sample = inputs.sample
    return Rows(rows, {"sample": sample, "split": split, "tracks": tracks})
