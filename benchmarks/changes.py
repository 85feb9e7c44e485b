"""A store of a million that changes: 1,000 added, 1,000 removed, answers checked, no rebuild.

    python benchmarks/index.py --data DIR --sizes 1000000 --kinds flat,hnsw,ivfpq --place FOLDER
    python benchmarks/changes.py FOLDER [--size 1000000] [--kinds flat,hnsw,ivfpq]

Works on the indexes that benchmarks/index.py left in FOLDER, and saves nothing.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from index import vectors_of  # the script beside this one

from indexes.base import open_index

COUNT = 1000


def share_first(index: Any, vectors: Any, ids: Any) -> float:
    hits = index.search(vectors, 1)
    return float(np.mean([hit.ids[0] == wanted for hit, wanted in zip(hits, ids, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("place", type=Path)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--kinds", default="flat,hnsw,ivfpq")
    asked = parser.parse_args()
    base = np.load(asked.place / "bank.npy")
    new = vectors_of(base, COUNT, 7)
    ids = np.arange(COUNT) + asked.size
    for kind in asked.kinds.split(","):
        index: Any = open_index(asked.place / f"{kind}-{asked.size}")
        start = time.perf_counter()
        index.add(ids, new)
        added = time.perf_counter() - start
        found = share_first(index, new, ids)
        gone = np.arange(0, asked.size, asked.size // COUNT)[:COUNT]
        start = time.perf_counter()
        index.remove(gone)
        removed = time.perf_counter() - start
        index.remove(ids)
        barred = {*gone.tolist(), *ids.tolist()}
        hits = [set(hit.ids.tolist()) for hit in index.search(new, 10)]
        assert len(index) == asked.size - COUNT
        assert all(len(hit) == 10 and not hit & barred for hit in hits)
        print(
            f"{kind}: add {COUNT} in {added:.2f} s, {found:.3f} of them found first by themselves;"
            f" remove {COUNT} in {removed:.2f} s, none of them found again"
        )


if __name__ == "__main__":
    main()
