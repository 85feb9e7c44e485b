"""A run that was killed, stopped or cut short ends as an unbroken one, byte for byte."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from task3.options import SweepConfig
from task3.order_check import SAMPLE
from task3.sweep_run import run_sweep
from tests.kit import (
    HANG,
    PROMISED,
    Forked,
    Process,
    WriteRelease,
    assert_equal_runs,
    one_line_error,
    rows_of,
    sweep_config,
)

SLOW = """
import time
from pathlib import Path
from retrievers import Retriever, RetrieverError

class Slow(Retriever):
    '''Shared words. Waits at the query that the file `hold` names.'''

    def score(self, query, pool):
        hold = Path('hold')
        if hold.exists() and hold.read_text() == type(self).__name__ + ' ' + query.split()[1]:
            Path('held').touch()
            time.sleep(600)
        words = set(query.split())
        return [len(words & set(memory.text.split())) for memory in pool]

class Alone(Slow):
    '''The same, scored for the union of a query's pools.'''

    @property
    def pool_independent(self):
        return True

class Marks(Slow):
    '''The same, late, with a file for every query it was asked.'''

    def score(self, query, pool):
        time.sleep(0.1)
        Path('asked ' + query.split()[1]).touch()
        return super().score(query, pool)

class Flaky(Slow):
    '''Cannot score one query in three while a file named `down` lies in the working folder.'''

    def score(self, query, pool):
        if Path('down').exists() and int(query.split()[1]) % 3 == 0:
            raise RetrieverError('service down')
        return super().score(query, pool)
"""
QUERIES = 40


@pytest.fixture
def place(write_release: WriteRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a release and the retrievers above."""
    texts = [[f"topic {i * j % 17} note {i} {j}" for j in range(6)] for i in range(QUERIES)]
    write_release([(f"topic {i} colour", texts[i], i % 6) for i in range(QUERIES)])
    (tmp_path / "late.py").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(
    out: str, *more: str, names: tuple[str, ...] = ("late:Slow", "late:Alone")
) -> list[str]:
    words = ["--data", "release", "--distractors", "5,20"]
    for name in names:
        words += ["--retriever", name]
    return [*words, "--out", out, *more]


def finish(words: list[str]) -> Process:
    return Forked("task3.sweep", *words).done()


def row_count(out: Path) -> int:
    try:
        return (out / "rows.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def wait_until(ready: Callable[[], bool], process: Forked | subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + HANG
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"the sweep ended too early or is stuck: {process.wait()}")
        time.sleep(0.002)


def start_and_hold(place: Path, at: str, words: list[str], rows: int = 0) -> Forked:
    """Start a sweep that waits `at` class and query, with its first `rows` rows on disk."""
    held, hold = place / "held", place / "hold"
    held.unlink(missing_ok=True)
    hold.write_text(at)
    run = place / words[words.index("--out") + 1]
    process = Forked("task3.sweep", *words)
    wait_until(lambda: held.exists() and row_count(run) >= rows, process)
    hold.unlink()
    return process


def kill_at(place: Path, at: str, words: list[str], rows: int = 0) -> None:
    process = start_and_hold(place, at, words, rows)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_kill_9_and_resume_ends_as_an_unbroken_run(place: Path) -> None:
    # The folder's own name stands in curve.csv, so both are called `run`.
    finish(command("unbroken/run"))
    run = place / "broken" / "run"
    more: tuple[str, ...] = ()
    # Tasks are 16 queries. Before any row, inside the first retriever (twice at one place, so
    # without progress), across to the second, and inside that.
    for at, rows in (
        *(("Slow 3", 0), ("Slow 20", 16), ("Slow 20", 16), ("Slow 39", 32)),
        *(("Alone 0", 80), ("Alone 39", 112)),
    ):
        kill_at(place, at, command("broken/run", *more))
        assert row_count(run) == rows, at
        more = ("--resume",)
    finish(command("broken/run", "--resume"))
    assert_equal_runs(place / "unbroken" / "run", run)


def test_a_killed_run_keeps_only_whole_rows_in_order(place: Path) -> None:
    run = place / "run"
    kill_at(place, "Alone 20", command("run"))
    whole = (run / "rows.jsonl").read_bytes().split(b"\n")[:-1]
    order = [(r["retriever"], r["distractors"], r["query"]) for r in map(json.loads, whole)]
    plan = [
        (label, n, f"q{q}") for label in ("Slow", "Alone") for n in (5, 20) for q in range(QUERIES)
    ]
    assert order == plan[: 2 * QUERIES + 16]


def test_kill_9_with_workers_and_resume_with_one(place: Path) -> None:
    finish(command("unbroken/run", names=("late:Slow",)))
    run = place / "broken" / "run"
    kill_at(
        place, "Slow 20", command("broken/run", "--workers", "2", names=("late:Slow",)), rows=16
    )
    assert row_count(run) == 16
    finish(command("broken/run", "--resume", names=("late:Slow",)))
    assert_equal_runs(place / "unbroken" / "run", run)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_sweep_with_one_line_and_it_resumes(
    place: Path, sent: signal.Signals, code: int
) -> None:
    words = command("run", names=("late:Slow",))
    process = start_and_hold(place, "Slow 20", words)
    os.killpg(process.pid, sent)
    stderr = process.done(code).stderr
    assert stderr.count("\n") == 1, stderr
    assert "--resume" in stderr
    assert row_count(place / "run") == 16
    finish([*words, "--resume"])
    assert row_count(place / "run") == 2 * QUERIES


def test_ctrl_c_with_one_worker_busy_and_one_waiting_is_one_line(place: Path) -> None:
    # 20 queries are tasks of 16 and 4: the second worker is soon done and waits for more.
    words = command("run", "--limit", "20", "--distractors", "5", names=("late:Marks",))
    last = [place / f"asked {i}" for i in range(16, 20)]
    line = [sys.executable, "-m", "task3.sweep", *words, "--workers", "2"]
    process = subprocess.Popen(line, start_new_session=True, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: all(path.exists() for path in last), process)
    time.sleep(0.3)  # until the second worker waits; the line is the same before that
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the workers get it as well
    _, stderr = process.communicate(timeout=HANG)
    assert process.returncode == 130
    assert stderr.count("\n") == 1, stderr


def test_a_full_disk_loses_no_row_that_was_whole(place: Path) -> None:
    # A limit on the size of files stands in for the full disk: the kernel cuts the write short.
    limit = 9_000

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    words = command("broken/run", names=("late:Slow",))
    line = [sys.executable, "-m", "task3.sweep", *words]
    done = subprocess.run(line, capture_output=True, text=True, preexec_fn=small_files)
    one_line_error(done)
    assert (place / "broken" / "run" / "rows.jsonl").stat().st_size == limit
    finish([*words, "--resume"])
    finish(command("unbroken/run", names=("late:Slow",)))
    assert_equal_runs(place / "unbroken" / "run", place / "broken" / "run")


@pytest.fixture
def whole(place: Path) -> Path:
    """A finished run in `place/whole`."""
    run_sweep(config(place, place / "whole"))
    return place / "whole"


def config(place: Path, out: Path, **options: Any) -> SweepConfig:
    labels = (Configuration("overlap", "overlap", {}), Configuration("random", "random", {}))
    given: dict[str, Any] = {"distractors": (5, 12), "limit": 5, "ks": (1,), **options}
    return sweep_config(labels, place / "release", out=out, **given)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_resume_from_any_byte_ends_in_equal_bytes(
    place: Path, whole: Path, data: st.DataObject
) -> None:
    cut = place / "cut"
    shutil.rmtree(cut, ignore_errors=True)
    shutil.copytree(whole, cut)
    size = (whole / "rows.jsonl").stat().st_size
    os.truncate(cut / "rows.jsonl", data.draw(st.integers(0, size), label="bytes kept"))
    run_sweep(config(place, cut, on_existing="resume"))
    assert_equal_runs(whole, cut, PROMISED[:3])


@pytest.mark.parametrize("tail", [b'{"query": "q', b"\x00" * 200, b"{}", "é".encode()[:1]])
def test_a_half_written_last_line_is_redone(place: Path, whole: Path, tail: bytes) -> None:
    cut = place / "cut"
    shutil.copytree(whole, cut)
    lines = (whole / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (cut / "rows.jsonl").write_bytes(b"".join(lines[:7]) + tail)
    run_sweep(config(place, cut, on_existing="resume"))
    assert (cut / "rows.jsonl").read_bytes() == (whole / "rows.jsonl").read_bytes()


def test_a_run_without_any_row_yet_is_taken_up(place: Path, whole: Path) -> None:
    cut = place / "cut"
    cut.mkdir()
    shutil.copy(whole / "manifest.json", cut)
    run_sweep(config(place, cut, on_existing="resume"))
    assert (cut / "rows.jsonl").read_bytes() == (whole / "rows.jsonl").read_bytes()


def test_resume_of_a_new_folder_starts_the_run(place: Path) -> None:
    run_sweep(config(place, place / "new", on_existing="resume"))
    assert row_count(place / "new") == 20


def test_a_row_kept_is_not_scored_again(place: Path) -> None:
    (place / "counts.py").write_text(
        "from retrievers import Retriever\n"
        "class Counts(Retriever):\n"
        "    asked = 0\n"
        "    def score(self, query, pool):\n"
        "        type(self).asked += 1\n"
        "        return [0] * len(pool)\n"
    )
    sys.path.insert(0, str(place))
    try:
        only = (Configuration("c", "counts:Counts", {}),)
        asked = sweep_config(only, place / "release", distractors=(5,), out=place / "run")
        run_sweep(asked)
        counts = sys.modules["counts"].Counts
        assert counts.asked == QUERIES + 2 * SAMPLE  # the rest by the order check
        lines = (place / "run" / "rows.jsonl").read_bytes().splitlines(keepends=True)
        (place / "run" / "rows.jsonl").write_bytes(b"".join(lines[:30]))
        run_sweep(replace(asked, run=replace(asked.run, resume=True)))
        assert counts.asked == QUERIES + 10 + 4 * SAMPLE
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("counts", None)


def test_failed_rows_stay_until_they_are_retried(place: Path) -> None:
    names = ("late:Flaky", "late:Alone")
    words = command("run", "--limit", "12", names=names)
    finish(command("healthy/run", "--limit", "12", names=names))
    (place / "down").touch()
    finish(words)

    def failures() -> int:
        return sum(row["error"] is not None for row in rows_of(place / "run"))

    assert failures() == 2 * 4  # 4 of 12 queries, two sizes
    (place / "down").unlink()
    before = (place / "run" / "rows.jsonl").read_bytes()
    finish([*words, "--resume"])
    assert (place / "run" / "rows.jsonl").read_bytes() == before
    finish([*words, "--retry-failed"])
    assert failures() == 0
    assert_equal_runs(place / "healthy" / "run", place / "run")


def test_a_retry_that_fails_again_keeps_the_failures(place: Path) -> None:
    words = command("run", "--limit", "12", names=("late:Flaky",))
    (place / "down").touch()
    finish(words)
    before = (place / "run" / "rows.jsonl").read_bytes()
    finish([*words, "--retry-failed"])
    assert (place / "run" / "rows.jsonl").read_bytes() == before


def test_retry_failed_of_another_run_is_refused(place: Path) -> None:
    run_sweep(config(place, place / "run"))
    with pytest.raises(UserError, match=r"they differ in pools\.distractors"):
        run_sweep(config(place, place / "run", retry_failed=True, distractors=(5,)))
