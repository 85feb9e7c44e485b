"""Nested pools over a file of one's own: time and memory as queries and bank grow together.

    python benchmarks/pools.py [--queries 1000,10000,100000] [--distractors 10,100]

Every query has ten memories that no other has, so the bank holds ten times as many texts as there
are queries. Each size runs in a process of its own, one after the other. Prints, for reading the
file, building the pools and what a manifest holds of them, seconds and seconds per query, the
latter as a ratio to the first size; and the peak of resident memory per query.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recallbed.corpus.custom import load_custom
from recallbed.corpus.material import gather
from recallbed.corpus.pools import pool_hash


def write(path: Path, queries: int) -> None:
    """A file of `queries` rows with ten memories each, one of them the gold."""
    with path.open("w", encoding="utf-8") as stream:
        for i in range(queries):
            memories = [f"memory {j} of person {i} likes the number {i * 7 + j}" for j in range(10)]
            row = {"query": f"which number does person {i} like?", "memories": memories}
            stream.write(json.dumps({**row, "gold": i % 10}) + "\n")


def measure(queries: int, sizes: tuple[int, ...]) -> dict[str, float]:
    """Seconds by phase, and bytes of resident memory at the peak."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own.jsonl"
        write(path, queries)
        started = time.process_time()
        load_custom(path)
        read = time.process_time()
        material = gather(path, strategy="nested", sizes=sizes)
        built = time.process_time()
        material.fingerprint()
        material.facts()
        for pool in material.pools.pools[sizes[0], 0]:
            pool_hash(material.pools.texts(pool))
        told = time.process_time()
    return {
        "read": read - started,
        "build": built - read - (read - started),  # `gather` reads the file too
        "hash": told - built,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--queries", default="1000,10000,100000")
    parser.add_argument("--distractors", default="10,100")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = tuple(sorted(map(int, given.distractors.split(","))))
    if given.one:
        print(json.dumps(measure(given.one, sizes)))
        return
    first: dict[str, float] = {}
    print("| queries | bank | read s | build s | hash s | per query, ratio | peak MB | kB/query |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for queries in map(int, given.queries.split(",")):
        words = [sys.executable, __file__, "--one", str(queries), "--distractors"]
        done = subprocess.run(
            [*words, given.distractors], capture_output=True, text=True, check=True
        )
        found = json.loads(done.stdout)
        each = {name: found[name] / queries for name in ("read", "build", "hash")}
        first = first or each
        ratios = " / ".join(f"{each[name] / first[name]:.2f}" for name in each)
        print(
            f"| {queries:,} | {10 * queries:,} | {found['read']:.2f} | {found['build']:.2f} |"
            f" {found['hash']:.2f} | {ratios} | {found['peak'] / 1e6:,.0f} |"
            f" {found['peak'] / queries / 1e3:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
