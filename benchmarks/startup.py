"""CPU seconds of every command's --help, and of a sweep until it scores with what it imported.

    python benchmarks/startup.py [--runs 5] [RETRIEVER ...]

Each run is a process of its own over the embedded sample; the least of the runs is printed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping

from recallbed.cli import COMMANDS, Entry

LARGE = ("nltk", "sklearn", "pandas", "pyarrow", "torch", "scipy", "matplotlib", "faiss", "openai")
# Ends the process where scoring would begin.
PROGRAM = """
import json, os, sys, time
from task3 import sweep_run
from task3.sweep import app

def stop(*words):
    found = [name for name in {large!r} if name in sys.modules]
    print(json.dumps([time.process_time(), found]), flush=True)
    os._exit(0)

sweep_run.run_tasks = stop
app({words!r})
"""


def start(retriever: str) -> tuple[float, list[str]]:
    """CPU seconds, and which of LARGE are in `sys.modules`, when scoring begins."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["--retriever", retriever, "--out", f"{folder}/run"]
        program = PROGRAM.format(large=LARGE, words=words)
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
    seconds, found = json.loads(done.stdout)
    return seconds, found


def calls(entries: Mapping[str, Entry] = COMMANDS) -> Iterator[list[str]]:
    """The words that call each sub-command of `recallbed`."""
    for name, entry in entries.items():
        inner = [[]] if isinstance(entry.module, str) else calls(entry.module)
        yield from ([name, *words] for words in inner)


def help_of(words: list[str]) -> float:
    """CPU seconds of a command's --help."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "recallbed.cli", *words, "--help"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("retriever", nargs="*", default=["bm25"])
    given = parser.parse_args()
    seconds = {" ".join(words): min(map(help_of, [words] * given.runs)) for words in calls()}
    slowest = max(seconds, key=seconds.__getitem__)
    print(f"--help: {min(seconds.values()):.2f} to {seconds[slowest]:.2f} s of CPU ({slowest})")
    for name in given.retriever:
        runs = [start(name) for _ in range(given.runs)]
        seconds, found = min(runs)
        print(f"{name}: {seconds:.2f} s of CPU; imported: {', '.join(found) or 'none of these'}")


if __name__ == "__main__":
    main()
