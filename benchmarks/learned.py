r"""What learning costs: minutes and memory of a training, milliseconds of a query at 1,000.

    python benchmarks/learned.py train -- -m training.adapter --data DIR --out adapter
    python benchmarks/learned.py query --data DIR --retriever minilm --retriever cv=folds \
        --set cv.folder=adapter-folds --out runs/latency
    recallbed frontier runs/latency/* --x ms --out frontier.png

`train` runs Python with the words after `--` and prints the time, processor time and peak memory
of that process. `query` sweeps each retriever by itself, one query at a time on one thread: its
memories are prepared beforehand (printed apart), the query is not, so that encoding it counts. The
run folders hold recall and time for `recallbed frontier`. A retriever is not measured on sessions
that it was trained on: name its cross-validation, `folds`.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from analysis.runs import seconds_by_label, seconds_per_row
from analysis.summary import SweepSummary
from indexes.embedding_store import choose_store
from recallbed.chat_models.session import ChatOptions, open_chats
from recallbed.corpus import sample_root
from recallbed.corpus.material import gather
from recallbed.corpus.records import Memory
from recallbed.harness.experiment import Outcome, execute
from recallbed.harness.run_options import RunOptions
from retrievers import Retriever
from retrievers.options import RetrieverOptions
from retrievers.registry import build_retrievers
from retrievers.unseen import only_unseen
from task3.options import SweepConfig
from task3.pool_scoring import PoolKey, Scorer
from task3.sweep_run import Sweep


def train(words: Sequence[str]) -> None:
    started = time.perf_counter()
    code = subprocess.run([sys.executable, *words], check=False).returncode
    minutes = (time.perf_counter() - started) / 60
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{minutes:.2f} minutes, {(used.ru_utime + used.ru_stime) / 60:.2f} processor minutes,"
        f" peak memory {used.ru_maxrss / 1024:.0f} MiB, exit code {code}"
    )


class OneByOne(Sweep):
    """A sweep that prepares memories alone, and scores one query after the other."""

    def _prepared(self, label: str) -> Scorer:
        self.retrievers[label].prepare_for(label, (), self.pools.memories)
        return Scorer(label, self.retrievers[label], self.pools)

    def _tasks(self, scorer: Scorer, pools: Sequence[PoolKey]) -> list[list[PoolKey]]:
        return scorer.tasks(pools, 1)

    def _check_order(self, label: str) -> None:
        """Not here: it would score some queries beforehand."""


def query(asked: argparse.Namespace) -> None:
    options = RetrieverOptions(tuple(asked.retriever), tuple(asked.set), store=asked.store)
    shared = choose_store(asked.store)
    material = gather(asked.data, "dev", "nested", (asked.distractors,), (0,), asked.limit)
    print(f"{'label':24} {'prepare s':>10} {'median ms':>10} {'p95 ms':>8} {'recall@1':>9}")
    for one in options.configurations:
        if asked.only and one.label not in asked.only:
            continue
        # A copy of the store for each, so that no query is read from what another has encoded.
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder) / "store.sqlite"
            if shared is not None and shared.is_file():
                shutil.copy(shared, own)
            chosen = RetrieverOptions(options.retriever, options.setting, store=str(own))
            with open_chats(ChatOptions(replies="none")) as chats:
                run = chosen.context(0, material.data.bank, chats)
                built = build_retrievers(chosen.configurations, run)
                mine = {one.label: built[one.label]}
                warm_up(mine[one.label])
                config = SweepConfig(chosen, run=RunOptions(out=asked.out / one.label))
                sweep = OneByOne(config, only_unseen(material, mine.items(), False), mine, chats)
                report(one.label, execute(sweep, config.run))


def warm_up(retriever: Retriever) -> None:
    """Load what is loaded on first use."""
    retriever.results(["warm up"], [[Memory("cold"), Memory("warm")]])


def report(label: str, done: Outcome[SweepSummary]) -> None:
    [cell] = done.report.cells
    prepared, _ = seconds_by_label(done.path)[label]
    spent = sorted(1000 * s for s in seconds_per_row(done.path, label, cell.distractors))
    recall = cell.recalls()[1]
    print(
        f"{label:24} {prepared:10.1f} {statistics.median(spent):10.2f}"
        f" {spent[int(0.95 * len(spent))]:8.2f} {recall.mean:9.4f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="time and memory of a training")
    training.add_argument("words", nargs="+")
    queries = commands.add_parser("query", help="milliseconds of a query")
    queries.add_argument("--data", type=Path, default=sample_root())
    queries.add_argument("--retriever", action="append", required=True)
    queries.add_argument("--set", action="append", default=[])
    queries.add_argument("--only", action="append", help="label; the other retrievers are legs")
    queries.add_argument("--distractors", type=int, default=1000)
    queries.add_argument("--limit", type=int, default=100)
    queries.add_argument("--store")
    queries.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    if asked.command == "train":
        train(asked.words)
    else:
        query(asked)


if __name__ == "__main__":
    main()
