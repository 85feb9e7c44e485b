"""Where things stand: `<root>/<split>/<track>/{model_input,reference_output}.jsonl`."""

from __future__ import annotations

import re
from pathlib import Path

from recallbed.corpus.jsonl import find_jsonl
from recallbed.errors import DataError

SAMPLE_NOTE = "The embedded sample, not AlpsBench: its figures only show that everything works"


def sample_root() -> Path:
    """The folder of the embedded sample, laid out like the release. It is not AlpsBench data."""
    return Path(__file__).parent / "sample"


def split_folder(root: Path, split: str) -> Path:
    """`root/split`, or a DataError that says what is there instead.

    A clone of the release keeps its splits in `benchmark_data/`; its top folder will do as well.
    """
    if root.exists() and not root.is_dir():
        raise DataError(
            "is a file, and this needs a release", root, todo="Give the folder above the splits"
        )
    if not root.is_dir():
        raise DataError("no such folder", root, todo="Give the folder that holds the splits")
    if not (root / split).is_dir() and (root / "benchmark_data" / split).is_dir():
        root = root / "benchmark_data"
    folder = root / split
    if folder.is_dir():
        return folder
    there = sorted(p.name for p in root.iterdir() if (p / "task3").is_dir())
    raise DataError(
        f"no split `{split}` here (found: {', '.join(there) or 'none'})",
        root,
        todo="Give --data the folder above the splits, and --split one of them",
    )


def released_sizes(folder: Path) -> tuple[int, ...]:
    """The distractor counts N for which `folder/task3/d<N>` holds a model_input file, ascending."""
    task3 = folder / "task3"
    found = []
    for place in task3.iterdir() if task3.is_dir() else ():
        match = re.fullmatch(r"d([1-9]\d*)", place.name)
        if match and find_jsonl(place, "model_input"):
            found.append(int(match[1]))
    if not found:
        raise DataError(
            "holds no released pools",
            task3,
            todo="Expected task3/d<N>/model_input.jsonl (or .jsonl.gz)",
        )
    return tuple(sorted(found))
