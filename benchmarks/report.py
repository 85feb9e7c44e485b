"""The report of a large run: how long it takes to build and to open, its memory and its size.

    python benchmarks/report.py [--queries 2400] [--retrievers 6] [--runs FOLDER]

The run is made of texts without meaning, at five sizes, with retrievers that each see the topic of
a text through other noise. The sweep is not measured; with --runs it is kept and used again. Needs
the extras `report` and `browser`, and Chromium.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

sys.path.insert(0, str(Path(__file__).parents[1]))

from recallbed.corpus.records import Memory
from retrievers import Retriever
from task3 import evaluate
from tests.browser import Opened, started_browser

SIZES = (100, 300, 500, 700, 1000)
OPENED = 5
NEWLINE = b"\n"
SYLLABLES = "ba be bi bo da de di do ka ke ki ko la le li lo ma me mi mo na ne ni no ra re ri ro"
LABELS = ("Preferences/Food", "Habits/Sleep", "Work/Tools", "Travel/Places")


def words(generator: random.Random, count: int) -> str:
    syllables = SYLLABLES.split()
    return " ".join("".join(generator.choices(syllables, k=3)) for _ in range(count))


def write_data(path: Path, queries: int) -> Path:
    """Write a file of one's own: each query with its gold and four other memories."""
    generator = random.Random(0)
    with path.open("w", encoding="utf-8") as stream:
        for number in range(queries):
            memories = [
                {
                    "text": f"t{number if i == 0 else generator.randrange(10**6)} "
                    + words(generator, generator.randint(8, 30)),
                    "label": generator.choice(LABELS),
                }
                for i in range(5)
            ]
            query = f"t{number} {words(generator, 12)}"
            stream.write(json.dumps({"query": query, "memories": memories, "gold": 0}) + "\n")
    return path


@dataclass
class Noisy(Retriever):
    """Scores the topic that a text begins with, as directions in a space, with noise."""

    noise: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._known: dict[str, NDArray[np.float64]] = {}

    def _direction(self, text: str) -> NDArray[np.float64]:
        if text not in self._known:
            topic, own = (
                np.random.default_rng(
                    int.from_bytes(hashlib.blake2b(one.encode(), digest_size=8).digest(), "big")
                ).standard_normal(16)
                for one in (text.partition(" ")[0], f"{self.seed} {text}")
            )
            self._known[text] = topic + self.noise * own
        return self._known[text]

    @override
    def score(self, query: str, pool: Sequence[Memory]) -> NDArray[np.float64]:
        return np.stack([self._direction(one.text) for one in pool]) @ self._direction(query)


def build(run: Path, data: Path, out: Path) -> tuple[float, float, float]:
    """Build the report in a process of its own: seconds, those of a processor, and peak MB."""
    command = [sys.executable, "-m", "analysis.report", run, "--data", data, "--out", out]
    started = time.perf_counter()
    process = subprocess.Popen([*map(str, command), "--overwrite"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit("the report was not built")
    processor = used.ru_utime + used.ru_stime
    return time.perf_counter() - started, processor, used.ru_maxrss / 1024


def open_page(browser: Any, file: Path) -> tuple[float, float]:
    """Seconds until the page answers, and until its first chart is drawn."""
    started = time.perf_counter()
    opened = Opened(browser, file)
    try:
        opened.page.wait_for_selector("html[data-ready=true]", state="attached")
        usable = time.perf_counter() - started
        opened.page.wait_for_selector("#curve-chart[data-state=ready]")
        drawn = time.perf_counter() - started
        assert not opened.faults, opened.faults
        return usable, drawn
    finally:
        opened.close()


def open_query(browser: Any, file: Path) -> float:
    """Seconds from the choice of a query until its ranking is shown."""
    opened = Opened(browser, file, "#tab=queries")
    try:
        link = opened.page.locator("#q-list a").first
        link.wait_for()
        started = time.perf_counter()
        link.click()
        opened.page.wait_for_selector("#q-detail[data-state=ready]")
        return time.perf_counter() - started
    finally:
        opened.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, default=2400)
    parser.add_argument("--retrievers", type=int, default=6)
    parser.add_argument("--runs", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="recallbed-report-") as made:
        place = asked.runs or Path(made)
        place.mkdir(parents=True, exist_ok=True)
        data = place / "made.jsonl"
        if not data.exists():
            write_data(data, asked.queries)
        run = place / "run"
        if not (run / "summary.json").exists():
            kinds = {f"noisy-{n}": Noisy(0.4 + 0.2 * n, n) for n in range(asked.retrievers)}
            evaluate(kinds, data=data, distractors=SIZES, out=run)
        lines = (run / "rows.jsonl").read_bytes()
        rows = len(lines)
        print(f"run: {lines.count(NEWLINE):,} rows, {rows / 1e6:.1f} MB of rows.jsonl")
        out = place / "report.html"
        seconds, processor, memory = build(run, data, out)
        size = out.stat().st_size
        print(f"build: {seconds:.1f} s ({processor:.1f} s of processor), peak {memory:.0f} MB")
        print(
            f"file: {size / 1e6:.1f} MB, {size / (rows + data.stat().st_size):.2f} of run and data"
        )
        with started_browser() as browser:
            opened = [open_page(browser, out) for _ in range(OPENED)]
            usable, drawn = (statistics.median(each) for each in zip(*opened, strict=True))
            query = statistics.median(open_query(browser, out) for _ in range(OPENED))
        print(f"open: usable after {usable:.2f} s, chart after {drawn:.2f} s (median of {OPENED})")
        print(f"single query: {query:.2f} s")


if __name__ == "__main__":
    main()
