"""A first MiniLM sweep, which encodes, beside a second one, which reads the embedding store.

    HF_HUB_OFFLINE=1 python benchmarks/store.py [--data DIR] [--rounds N] [options of the sweep]

Whole processes by the clock, start-up included: `python -m task3.sweep --retriever minilm`, the
first with an empty store, the second with the store that it left. They take turns; the ratio is of
the medians. Says whether torch was imported by the second.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from recallbed.corpus import sample_root


def sweep(data: Path, place: Path, out: str, more: Sequence[str]) -> tuple[float, bool, bytes]:
    """Seconds of one sweep, whether it imported torch, and its rows."""
    words = ["--data", str(data), "--split", "dev", "--retriever", "minilm", *more]
    words += ["--store", str(place / "store.sqlite"), "--out", str(place / out)]
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('torch' in sys.modules))\n"
        "from task3.sweep import app; app()"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    taken = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr)
    rows = (place / out / "rows.jsonl").read_bytes()
    return taken, done.stdout.split()[-1] == "True", rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=sample_root())
    parser.add_argument("--rounds", type=int, default=3)
    asked, more = parser.parse_known_args()
    times: list[tuple[float, float]] = []
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            cold, _, first = sweep(asked.data, place, "cold", more)
            warm, torch, second = sweep(asked.data, place, "warm", more)
            size = (place / "store.sqlite").stat().st_size
        same = "equal" if first == second else "DIFFERENT"
        times.append((cold, warm))
        print(
            f"cold {cold:.2f} s, warm {warm:.2f} s; rows {same};"
            f" torch in the warm one: {'yes' if torch else 'no'}; store {size / 2**20:.1f} MiB"
        )
    medians = [statistics.median(side) for side in zip(*times, strict=True)]
    print(f"cold / warm = {medians[0] / medians[1]:.1f}")


if __name__ == "__main__":
    main()
