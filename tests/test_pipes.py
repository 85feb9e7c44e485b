"""A file that comes through a pipe is read once, and whole: the same figures as from the file."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from analysis.importing import Imported, import_run
from analysis.importing import app as import_app
from analysis.trec import documents, run_lines
from indexes.build import app as build_app
from indexes.indexed_store import read_memories
from judges.agreement import app as agreement_app
from judges.recorded import app as recorded_app
from memory_scoring.predictions import read_memory_lists
from recallbed.chat_models.budget import read_prices
from recallbed.corpus.convert import app as convert_app
from recallbed.corpus.layout import sample_root
from recallbed.corpus.material import gather
from recallbed.corpus.validate import app as validate_app
from recallbed.harness.configurations import read_settings
from recallbed.harness.run_options import RunOptions
from task1.score import app as task1_app
from task2.score import app as task2_app
from task3.exact_match import read_exclusions
from task3.score import app as score_app
from task4.score import app as task4_app
from tests.kit import (
    LFS,
    ROOT,
    WriteRelease,
    assert_equal_runs,
    one_line_error,
    read_json,
    read_lines,
    rows_of,
    run,
    run_json,
    swept,
    write_lines,
)

LONG = "long " * 200
"""Makes a hundred rows longer than a pipe's buffer of 64 KB."""


@contextmanager
def piped(content: bytes) -> Iterator[Path]:
    """The path of a pipe that gives `content` once."""
    out, into = os.pipe()

    def fill() -> None:
        try:
            with os.fdopen(into, "wb") as stream:
                stream.write(content)
        except BrokenPipeError:
            pass

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield Path(f"/dev/fd/{out}")
    finally:
        os.close(out)
        thread.join()


Row = dict[str, Any]


def references(track: str) -> list[Row]:
    return read_lines(sample_root() / "dev" / track / "reference_output.jsonl")


def task1_rows() -> Iterator[Row]:
    for row in references("task1"):
        items = row["gold"].get("memory_items") or row["gold"]["answer"]
        yield {"benchmark_id": row["benchmark_id"], "memory_items": items, "note": LONG}


def task2_rows() -> Iterator[Row]:
    for row in references("task2"):
        items = row["gold"]["answer"]
        yield {"benchmark_id": row["benchmark_id"], "memory_items": items, "note": LONG}


def task3_rows() -> Iterator[Row]:
    for row in references("task3/d100"):
        gold = row["gold"]
        yield {
            **{"benchmark_id": row["benchmark_id"], "answer": "an answer"},
            **{"reason": gold["selected_memory"]["value"] + LONG},
            **{"selected_memory_id": gold["selected_memory_id"]},
        }


def task4_rows() -> Iterator[Row]:
    for row in references("task4_ability1"):
        yield {"benchmark_id": row["benchmark_id"], "response": LONG * 3}


def recorded_rows() -> Iterator[Row]:
    for i in range(200):
        output = {"used_memory": i % 2 == 0, "reason": LONG}
        ids = {"session_id": f"s{i}", "canonical_id": f"s{i}"}
        yield {"task": "task3", "model": "m", **ids, "judge_output": output}


def own_rows() -> Iterator[Row]:
    for i in range(200):
        yield {"query": f"what of {i}", "memories": [f"note {i} {LONG}", f"other {i}"], "gold": 0}


def as_lines(rows: Iterable[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


READERS: dict[str, tuple[typer.Typer, Callable[[], Iterator[Row]], list[str]]] = {
    "task1.score": (task1_app, task1_rows, []),
    "task2.score": (task2_app, task2_rows, []),
    "task3.score": (score_app, task3_rows, []),
    "task3.score, by overlap": (score_app, task3_rows, ["--use", "overlap"]),
    "task4.score": (task4_app, task4_rows, []),
    "judges.recorded": (recorded_app, recorded_rows, []),
    "recallbed.corpus.validate": (validate_app, own_rows, []),
}


@pytest.mark.parametrize("name", READERS)
def test_a_report_over_a_pipe_is_that_over_the_file(tmp_path: Path, name: str) -> None:
    app, rows, words = READERS[name]
    file = write_lines(tmp_path / "rows.jsonl", rows())
    assert file.stat().st_size > 70_000
    whole = json.dumps(run_json(app, file, *words))
    with piped(file.read_bytes()) as pipe:
        through = json.dumps(run_json(app, pipe, *words)).replace(str(pipe), str(file))
    assert through.replace(f'"{pipe.name}"', f'"{file.name}"') == whole


def test_agreement_of_two_pipes(tmp_path: Path) -> None:
    rows = [{"item": str(i), "verdict": i % 3 == 0, "note": LONG} for i in range(200)]
    with piped(as_lines(rows)) as a, piped(as_lines(rows)) as b:
        assert run_json(agreement_app, a, b)["n"] == 200


def test_a_process_substitution_is_scored_whole(tmp_path: Path) -> None:
    # 8 KB were lost: 142 of 164 rows, exit code 0.
    write_lines(tmp_path / "rows.jsonl", task3_rows())
    found = subprocess.run(
        ["bash", "-c", '"$0" -m task3.score <(cat "$1") --json', sys.executable, "rows.jsonl"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    scores = json.loads(found.stdout)
    assert scores["lines"] == scores["all"]["answered"] == len(references("task3/d100"))
    assert scores["lines_of_no_query"]["malformed"]["count"] == 0


def test_a_sweep_over_a_pipe_is_that_over_the_file(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "own.jsonl", own_rows())
    with piped(file.read_bytes()) as pipe:
        runs = [
            swept(["bm25"], path, out=tmp_path / name).path
            for path, name in ((file, "a"), (pipe, "b"))
        ]
    assert_equal_runs(*runs, ["rows.jsonl"])
    assert len(rows_of(runs[0])) == 200
    one, other = (read_json(run / "manifest.json")["fingerprint"]["data"] for run in runs)
    assert one["sha256"] == other["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert other["split"] == "pipe"


def test_imported_files_are_hashed_as_they_are_read(
    tmp_path: Path, write_release: WriteRelease
) -> None:
    root = write_release([(f"what {i}", [f"fact {i} {j}" for j in range(4)], 1) for i in range(80)])
    material = gather(root, strategy="released", sizes=[3])
    first = next(task3_rows())
    given = [{**first, "benchmark_id": f"q{i}", "selected_memory_id": "m1"} for i in range(80)]
    write_lines(tmp_path / "p.jsonl", given)
    lines: list[str] = []
    for query, pool in zip(material.pools.rows, material.pools.pools[3, 0], strict=True):
        names = documents(material.pools.texts(pool))
        lines += run_lines(
            query.benchmark_id, names, np.float32([0, 3, 1, 2]), LONG.strip().replace(" ", "-")
        )
    (tmp_path / "t.run").write_text("".join(f"{line}\n" for line in lines))
    for kind, name in (("predictions", "p.jsonl"), ("trec", "t.run")):
        file = tmp_path / name
        with piped(file.read_bytes()) as pipe:
            for path, out in ((file, "a"), (pipe, "b")):
                options = RunOptions(tmp_path / kind / out, keep_going=True)
                import_run(Imported("x", kind, {3: path}), material, [1], options)
        runs = [tmp_path / kind / out for out in "ab"]
        assert_equal_runs(*runs, ["rows.jsonl", "summary.json"])
        one, other = (read_json(run / "manifest.json")["fingerprint"] for run in runs)
        assert one == other
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        assert one["retrievers"][0]["settings"] == {"d3": digest}


def test_a_compressed_pipe_and_one_that_trickles_are_read_whole(tmp_path: Path) -> None:
    content = as_lines(task1_rows())
    with piped(gzip.compress(content)) as pipe:
        named = tmp_path / "rows.jsonl.gz"
        named.symlink_to(pipe)
        packed = read_memory_lists(named)
    out, into = os.pipe()

    def trickle() -> None:  # less at a time than what is looked at for a pointer
        for start in range(0, 40, 3):
            os.write(into, content[start : start + 3])
        os.write(into, content[42:60_000])
        os.close(into)

    thread = threading.Thread(target=trickle)
    thread.start()
    slow = read_memory_lists(Path(f"/dev/fd/{out}"))
    thread.join()
    os.close(out)
    assert packed.lines == len(references("task1"))
    assert packed.sha256 == hashlib.sha256(content).hexdigest()[:16]
    assert slow.predictions[0] == packed.predictions[0]
    assert slow.sha256 == hashlib.sha256(content[:60_000]).hexdigest()[:16]


def test_a_pointer_in_a_pipe_and_a_pipe_read_before_are_refused() -> None:
    with piped(LFS.encode()) as pipe:
        one_line_error(run(task1_app, pipe), "Git LFS pointer")
        again = "the file is empty. It is a pipe, which can be read only once"
        one_line_error(run(task1_app, pipe), again)


def test_every_other_file_of_a_user_may_be_a_pipe(tmp_path: Path) -> None:
    content = as_lines({"text": f"memory {i} {LONG}"} for i in range(200))
    with piped(content) as pipe:
        assert len(read_memories(pipe)) == 200
    with piped(content) as pipe:
        result = run(build_app, pipe, "--kind", "bm25s", "--out", tmp_path / "store")
    assert "200 memories" in result.stdout, result.stderr
    ids = {f"query number {i}" for i in range(10_000)}
    with piped("\n".join(sorted(ids)).encode()) as pipe:
        assert read_exclusions(pipe, ids) == ids
    tables = {f"model {i} {LONG}": {"in": 1, "out": 2} for i in range(200)}
    toml = "".join(f'["{name}"]\nin = 1\nout = 2\n' for name in tables)
    with piped(toml.encode()) as pipe:
        assert len(read_prices(pipe).by_model) == 200
    settings = {
        "format": "recallbed settings, version 1",
        "retrievers": {"bm25": "bm25"},
        "settings": {"bm25": {"k1": "1.5"}},
        "rows": "x",
        "provenance": {"note": LONG * 200},
    }
    with piped(json.dumps(settings).encode()) as pipe:
        assert read_settings(pipe).settings == {"bm25": {"k1": "1.5"}}


def test_longmemeval_is_converted_from_a_pipe(tmp_path: Path) -> None:
    said = {"role": "user", "content": f"I like tea {LONG}", "has_answer": True}
    instance = {
        **{"question_type": "single-session-user", "question": "What do I drink?"},
        **{"answer": "tea", "question_date": "2023/05/30", "haystack_dates": ["2023/05/20"]},
        **{"haystack_session_ids": ["s1"], "answer_session_ids": ["s1"]},
        "haystack_sessions": [[said]],
    }
    instances = [{"question_id": f"q{i}", **instance} for i in range(200)]
    out = tmp_path / "own.jsonl"
    with piped(json.dumps(instances).encode()) as pipe:
        run(convert_app, "longmemeval", pipe, "--level", "session", "--out", out, code=0)
    assert len(read_lines(out)) == 200


def test_the_import_command_takes_a_pipe(tmp_path: Path, write_release: WriteRelease) -> None:
    root = write_release([(f"what {i}", [f"fact {i} {j}" for j in range(4)], 1) for i in range(80)])
    given = {"answer": LONG, "reason": "", "selected_memory_id": "m1"}
    out = tmp_path / "run"
    words = ["--data", root, "--pools", "released", "--distractors", "3", "--out", out]
    with piped(as_lines({"benchmark_id": f"q{i}", **given} for i in range(80))) as pipe:
        run(import_app, pipe, "--label", "x", "--format", "predictions", *words, code=0)
    assert [row["error"] for row in rows_of(out)] == [None] * 80
