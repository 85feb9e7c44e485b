"""task3/pool_scoring.py: several processes give the bytes of one, and never hang."""

import multiprocessing
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recallbed.corpus.dataset import load_dataset
from recallbed.corpus.pools import build_pools
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers import Retriever, RetrieverError
from retrievers.overlap import Overlap
from task3.pool_scoring import PoolKey, Scorer, run_tasks
from tests import kit
from tests.kit import WriteRelease, one_line_error, swept

SUBJECTS = ["tea", "绿茶", "the sea", "chess", "la montaña", "old maps", "snow", "jazz"]


@pytest.fixture
def release(write_release: WriteRelease) -> Path:
    """40 queries, so that there are several tasks a size."""
    rows = []
    for i in range(40):
        subject = SUBJECTS[i % 8]
        texts = [f"likes {subject} on day {i}", f"has {i} cats", f"fears {SUBJECTS[i % 5]}"]
        rows.append((f"what of {subject} on day {i}?", texts, i % 3))
    return write_release(rows)


def sweep(release: Path, out: Path, retriever: str, workers: int, *settings: str) -> bytes:
    """The bytes of rows.jsonl of a finished sweep in this process and its workers."""
    swept(
        [f"x={retriever}"],
        release,
        settings=settings,
        distractors=(2, 10, 25),
        pool_seeds=(0, 1),
        workers=workers,
        out=out,
    )
    return (out / "rows.jsonl").read_bytes()


python = partial(kit.python, code=None)


def scorer_of(retriever: Retriever, release: Path) -> tuple[Scorer, list[list[PoolKey]]]:
    pools = build_pools(load_dataset(release, "dev"), "nested", (2,), (0,))
    scorer = Scorer("x", retriever, pools)
    return scorer, scorer.tasks([PoolKey(2, 0, query) for query in range(40)], 3)


# --- equal results


@pytest.mark.parametrize(
    ("retriever", "settings"),
    [("bm25", ["x.scope=pool"]), ("bm25", ["x.scope=bank"]), ("minilm", ["x.device=cpu"])],
    ids=["bm25", "bm25 over the bank", "minilm"],
)
def test_one_and_two_workers_write_the_same_bytes(
    release: Path, tmp_path: Path, retriever: str, settings: list[str]
) -> None:
    alone = sweep(release, tmp_path / "1", retriever, 1, *settings)
    assert alone.count(b"\n") == 40 * 3 * 2
    assert alone.count(b'"error": null') == 240
    assert sweep(release, tmp_path / "2", retriever, 2, *settings) == alone


def test_two_hash_seeds_write_the_same_bytes(release: Path, tmp_path: Path) -> None:
    rows = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        words = ["--retriever", "bm25", "--data", release, "--distractors", "2,25", "--out", out]
        done = python("-m", "task3.sweep", *words, PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
        rows.append((out / "rows.jsonl").read_bytes())
    assert rows[0] == rows[1]
    assert rows[0].count(b"\n") == 80


class SlowStart(Overlap):
    """Holds the first query up, so that tasks after it are finished before it."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        if query.endswith("day 0?"):
            time.sleep(0.5)
        return super().score(query, pool)


@pytest.mark.parametrize("workers", [1, 3])
def test_tasks_come_back_in_their_order(release: Path, workers: int) -> None:
    scorer, tasks = scorer_of(SlowStart(), release)
    found = [[one.key for one in finished] for finished in run_tasks(scorer, tasks, workers)]
    assert found == tasks


def test_more_workers_than_tasks(release: Path) -> None:
    scorer, tasks = scorer_of(Overlap(), release)
    few = [[one.finished.row for one in task] for task in run_tasks(scorer, tasks[:2], 1)]
    assert [[one.finished.row for one in task] for task in run_tasks(scorer, tasks[:2], 3)] == few


class WhoScores(Retriever):
    """Fails with the kind of process it runs in."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        raise RetrieverError(type(multiprocessing.current_process()).__name__)


def test_workers_are_spawned_and_never_forked(release: Path) -> None:
    scorer, tasks = scorer_of(WhoScores(), release)
    errors = {one.finished.row["error"] for task in run_tasks(scorer, tasks[:4], 2) for one in task}
    assert errors == {"SpawnProcess"}


class Faulty(Retriever):
    """Fails now and then, in every way that a query may."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        if "chess" in query:
            raise RetrieverError("refused")
        if "snow" in query:
            return [float("nan")] * len(pool)
        if "jazz" in query:
            raise OSError(5, "line cut")
        return Overlap().score(query, pool)


def test_failed_queries_are_the_same_rows_in_workers(release: Path, tmp_path: Path) -> None:
    alone = sweep(release, tmp_path / "1", "tests.test_workers:Faulty", 1)
    assert alone.count(b'"error": "refused"') == 30
    assert alone.count(b'"error": null') == 150
    assert sweep(release, tmp_path / "2", "tests.test_workers:Faulty", 2) == alone


# --- faults


class Locked(Overlap):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Local(Overlap):
    def __init__(self) -> None:
        self.key = lambda text: text.lower()


@pytest.mark.parametrize("name", ["Locked", "Local"])
def test_a_retriever_that_cannot_be_pickled(release: Path, tmp_path: Path, name: str) -> None:
    """One error that names the label and the way out, and one worker needs no pickle."""
    with pytest.raises(UserError, match=r"^x: cannot be sent to worker .* --workers 1"):
        sweep(release, tmp_path / "2", f"tests.test_workers:{name}", 2)
    assert sweep(release, tmp_path / "1", f"tests.test_workers:{name}", 1)


MINE = """\
import multiprocessing, os, sys
from retrievers import Retriever

class Dies(Retriever):
    def score(self, query, pool):
        if "day 5" in query and multiprocessing.parent_process() is not None:
            print("last words", file=sys.stderr, flush=True)
            os._exit(3)
        return [len(memory.text) for memory in pool]

class NeverArrives(Retriever):
    def __setstate__(self, state):
        raise RuntimeError("cannot be thawed here")
    def __getstate__(self):
        return {"a": 1}
    def score(self, query, pool):
        return [len(memory.text) for memory in pool]
"""


@pytest.mark.parametrize("name", ["Dies", "NeverArrives"])
def test_a_worker_that_dies_ends_the_run_with_one_error(
    release: Path, tmp_path: Path, name: str
) -> None:
    """Not a hang, exit code 2, and the rows before it are kept for --resume."""
    (tmp_path / "mine.py").write_text(MINE)
    words = ["--retriever", f"mine:{name}", "--data", release, "--distractors", "2,10"]
    words += ["--out", "run", "--workers"]
    done = python("-m", "task3.sweep", *words, 2, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    one_line_error(done, f"{name}: a worker process died", "--workers 1", after_notes=True)
    if name == "NeverArrives":
        assert "cannot be thawed here" in done.stderr
    again = python("-m", "task3.sweep", *words, 1, "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "run" / "rows.jsonl").read_bytes().count(b'"error": null') == 80


SCRIPT = """\
from pathlib import Path
from recallbed.corpus.options import DataOptions, PoolOptions
from recallbed.harness.run_options import RunOptions
from retrievers.options import RetrieverOptions
from task3.options import SweepConfig
from task3.sweep_run import run_sweep

def main():
    outcome = run_sweep(SweepConfig(
        RetrieverOptions(("overlap",)), DataOptions(Path({data!r})),
        PoolOptions(distractors=(2,)), workers=4, run=RunOptions(Path("run")),
    ))
    print("scored", outcome.summary["cells"][0]["scored"])

"""


@pytest.mark.parametrize("guard", [True, False], ids=["guard", "no guard"])
def test_a_script_without_main_guard_ends_with_an_error(
    release: Path, tmp_path: Path, guard: bool
) -> None:
    """Its workers would run the script again; with the guard the same script works."""
    end = "if __name__ == '__main__':\n    main()\n" if guard else "main()\n"
    (tmp_path / "script.py").write_text(SCRIPT.format(data=str(release)) + end)
    done = python("script.py", cwd=tmp_path)
    if guard:
        assert (done.returncode, done.stdout) == (0, "scored 40\n"), done.stderr
        return
    assert done.returncode != 0
    assert "scored" not in done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert "if __name__ == '__main__':" in last
