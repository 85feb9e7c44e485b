"""The twelve tracks of a release by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from recallbed.corpus.jsonl import find_jsonl
from recallbed.corpus.stream import Track
from recallbed.corpus.task1 import TASK1
from recallbed.corpus.task2 import TASK2
from recallbed.corpus.task3 import task3_track
from recallbed.corpus.task4 import ABILITIES, task4_track

RELEASED_SIZES = (100, 300, 500, 700, 1000)
NAMES = (
    "task1",
    "task2",
    *(f"task3/d{size}" for size in RELEASED_SIZES),
    *(f"task4_ability{ability}" for ability in ABILITIES),
)


def track(name: str) -> Track[Any] | None:
    """The track called `name`; None for an unknown name. Task 3 may have any size."""
    if match := re.fullmatch(r"task3/d([1-9]\d*)", name):
        return task3_track(int(match[1]))
    known: dict[str, Track[Any]] = {"task1": TASK1, "task2": TASK2}
    known.update({f"task4_ability{ability}": task4_track(ability) for ability in ABILITIES})
    return known.get(name)


def tracks_in(folder: Path) -> tuple[list[Track[Any]], list[str]]:
    """The tracks that a split's folder holds, and the names of the folders that are no track."""
    names = []
    for place in sorted(p for p in folder.iterdir() if p.is_dir()):
        inner = [p for p in sorted(place.iterdir()) if p.is_dir()] if place.name == "task3" else []
        names += [f"task3/{p.name}" for p in inner] or [place.name]
    found = [(name, track(name)) for name in names]
    held = [t for name, t in found if t and find_jsonl(folder / name, "model_input")]
    order = {name: i for i, name in enumerate(NAMES)}
    held.sort(key=lambda t: (order.get(t.name, len(order)), t.name))
    return held, [name for name in names if name not in {t.name for t in held}]
