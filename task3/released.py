"""One released pool of a split, with or without references."""

from __future__ import annotations

from pathlib import Path

from recallbed.corpus.layout import released_sizes, sample_root, split_folder
from recallbed.corpus.records import Task3File
from recallbed.corpus.tracks import load_task3
from recallbed.errors import DataError


def load_released(root: Path | None, split: str, size: int | None) -> Task3File:
    """Return the released pools of `size` distractors, the smallest if `size` is None.

    `root` None is the embedded sample. Raise DataError for a size that is not released, and for
    invalid files.
    """
    folder = split_folder(root or sample_root(), split)
    sizes = released_sizes(folder)
    if size is not None and size not in sizes:
        raise DataError(
            f"no released pool of {size} distractors",
            folder / "task3",
            todo=f"Pass --distractors with one of {', '.join(map(str, sizes))}",
        )
    return load_task3(folder, sizes[0] if size is None else size)
