"""scores.jsonl by the byte: exact, in the order of the rows, and never at odds with them."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import Result

from analysis.export import app as export_app
from recallbed.corpus import Memory
from recallbed.errors import UserError
from recallbed.harness.run_folder import encode_scores
from retrievers import Retriever, RetrieverError
from retrievers.overlap import Overlap
from task3.sweep import app as sweep_app
from tests.kit import assert_equal_runs, one_line_error, read_lines, run, swept, write_lines

NAMES = ("manifest.json", "rows.jsonl", "scores.jsonl", "summary.json")
ROW = {"query": "q", "retriever": "r", "distractors": 1, "pool": "p", "error": None}


class Awkward(Retriever):
    """Numbers of every size; keeps what it said, by query and text."""

    said: dict[tuple[str, str], np.float32] = {}  # noqa: RUF012

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        scores = []
        for memory in pool:
            number = int.from_bytes(f"{query} {memory.text}".encode()[-6:], "big") * 0.1
            scores.append((number % 1 - 0.5) * 10.0 ** (number % 60 - 30))
            self.said[query, memory.text] = np.float32(scores[-1])
        return scores


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Ten queries with one to three golds in pools of 3 to 6."""
    rows = []
    for i in range(10):
        memories = [f"{i * j % 7} topic {i} note {j}" for j in range(3 + i % 4)]
        gold = list(range(1 + i % 3))
        rows.append({"query": f"topic {i} colour", "memories": memories, "gold": gold})
    return write_lines(tmp_path / "my.jsonl", rows)


def sweep(data: Path, out: Path, *names: str, **options: Any) -> None:
    swept(names, data, out=out, **{"ks": (1,), "keep_scores": True, **options})


# Exact


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_any_float32_comes_back_exactly(score: float) -> None:
    line = encode_scores(ROW, np.array([score], np.float32))
    [back] = json.loads(line)["scores"]
    assert np.float32(back) == np.float32(score)
    assert type(back) is float
    assert line.count(b"\n") == 1


@pytest.mark.parametrize("start", [1000.0, 0.001, 9.007e15, 1e-7, -1000.0])
def test_neighbouring_float32s_stay_apart(start: float) -> None:
    # Between 1,000 and 1,024 eight digits would not do.
    bits = np.array([start], np.float32).view(np.uint32) + np.arange(2000, dtype=np.uint32)
    scores = bits.view(np.float32)
    back = np.array(json.loads(encode_scores(ROW, scores))["scores"], np.float32)
    assert np.array_equal(back, scores)
    assert len(set(back.tolist())) == 2000


def test_lines_are_in_row_order_and_hold_the_retrievers_scores(data: Path, tmp_path: Path) -> None:
    Awkward.said = {}
    sweep(data, tmp_path / "run", "random", f"{__name__}:Awkward")
    rows, kept = (read_lines(tmp_path / "run" / f"{name}.jsonl") for name in ("rows", "scores"))
    given_ = read_lines(data)
    assert len(kept) == len(rows) == 20
    for number, (row, line) in enumerate(zip(rows, kept, strict=True)):
        assert list(line) == ["query", "retriever", "distractors", "pool", "scores", "check"]
        assert all(line[key] == row[key] for key in list(line)[:4])
        asked = given_[number % 10]
        scores = np.array(line["scores"], np.float32)
        assert len(scores) == len(asked["memories"])
        if row["retriever"] == "Awkward":
            said = [Awkward.said[asked["query"], text] for text in asked["memories"]]
            assert scores.tolist() == np.array(said).tolist()
        golds = row["gold"] if isinstance(row["gold"], list) else [row["gold"]]
        above = [int((scores > scores[gold]).sum()) for gold in golds]
        assert row["above"] == (above if len(golds) > 1 else above[0])


# Cut anywhere


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_cut_both_files_anywhere(data: Path, tmp_path: Path, draw: st.DataObject) -> None:
    """Equal bytes where every row kept has its scores; else one line, and no row is lost."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    if not whole.exists():
        sweep(data, whole, "overlap", "random")
    shutil.rmtree(cut, ignore_errors=True)
    shutil.copytree(whole, cut)
    for name in ("rows.jsonl", "scores.jsonl"):
        size = (whole / name).stat().st_size
        os.truncate(cut / name, draw.draw(st.integers(0, size), label=name))
    kept = {name: (cut / name).read_bytes() for name in ("rows.jsonl", "scores.jsonl")}
    if kept["scores.jsonl"].count(b"\n") >= kept["rows.jsonl"].count(b"\n"):
        sweep(data, cut, "overlap", "random", on_existing="resume")
        assert_equal_runs(whole, cut, NAMES)
        return
    with pytest.raises(UserError, match=r"scores\.jsonl: has scores for \d+ of \d+ rows") as caught:
        sweep(data, cut, "overlap", "random", on_existing="resume")
    assert "\n" not in str(caught.value)
    rows = kept["rows.jsonl"]
    assert (cut / "rows.jsonl").read_bytes() == rows[: rows.rfind(b"\n") + 1]
    assert (cut / "scores.jsonl").read_bytes() == kept["scores.jsonl"]


@pytest.mark.parametrize("tail", [b'{"query": "1"', b"\x00" * 200, b"{}\n{}\n", b"\xff\n"])
def test_scores_after_the_last_row_are_truncated(data: Path, tmp_path: Path, tail: bytes) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    sweep(data, whole, "overlap")
    shutil.copytree(whole, cut)
    for name, more in (("rows.jsonl", b""), ("scores.jsonl", tail)):
        kept = (whole / name).read_bytes().splitlines(keepends=True)[:4]
        (cut / name).write_bytes(b"".join(kept) + more)
    sweep(data, cut, "overlap", on_existing="resume")
    assert_equal_runs(whole, cut, NAMES)


def test_a_crash_between_the_two_writes_of_a_retry_is_repaired(data: Path, tmp_path: Path) -> None:
    healthy, run = tmp_path / "healthy", tmp_path / "run"
    sweep(data, healthy, "overlap")
    shutil.copytree(healthy, run)
    # The scores are those of the retry, the rows still those of before.
    rows = read_lines(run / "rows.jsonl")
    for row in rows[2:5]:
        row.update(above=None, tied=None, top=[], error="service down")
    for row in rows:
        del row["check"]
    write_lines(run / "rows.jsonl", rows)
    sweep(data, run, "overlap", retry_failed=True)
    assert_equal_runs(healthy, run, NAMES)


def test_two_workers_keep_the_same(data: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        sweep(data, tmp_path / str(workers), "overlap", "random", workers=workers)
    assert_equal_runs(tmp_path / "1", tmp_path / "2", NAMES)


class Flaky(Overlap):
    """Fails on one query in three while `down` is set."""

    down = True

    def score(self, query: str, pool: Any) -> Any:
        if self.down and int(query.split()[1]) % 3 == 0:
            raise RetrieverError("down")
        return super().score(query, pool)


def test_rows_tried_again_get_their_scores(data: Path, tmp_path: Path) -> None:
    run, name = tmp_path / "run", f"{__name__}:Flaky"
    Flaky.down = True
    sweep(data, run, name)
    assert sum(line["scores"] is None for line in read_lines(run / "scores.jsonl")) == 4
    Flaky.down = False
    sweep(data, run, name, retry_failed=True)
    sweep(data, tmp_path / "healthy", name)
    assert_equal_runs(tmp_path / "healthy", run, NAMES)


# As a user types it


def command(*words: object, code: int | None = None) -> Result:
    return run(sweep_app, "--retriever", "overlap", *words, code=code)


@pytest.mark.parametrize("how", ["--resume", "--retry-failed"])
@pytest.mark.parametrize("first", [True, False])
def test_with_and_without_are_two_runs(data: Path, tmp_path: Path, how: str, first: bool) -> None:
    out, flag = tmp_path / "run", "--keep-scores"
    words = ("--data", data, "--out", out)
    command(*words, *([flag] if first else []), code=0)
    before = {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()}
    side = "that" if first else "this"
    result = command(*words, how, *([] if first else [flag]))
    one_line_error(result, f"they differ in kept (only {side} run has it)")
    assert {p.name: p.read_bytes() for p in out.iterdir() if p.is_file()} == before


def test_overwrite_without_the_flag_leaves_no_old_scores(data: Path, tmp_path: Path) -> None:
    words = ("--data", data, "--out", tmp_path / "run")
    command(*words, "--keep-scores", code=0)
    command(*words, "--overwrite", code=0)
    assert not (tmp_path / "run" / "scores.jsonl").exists()


def test_scores_gone_or_short_are_one_line(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--data", data, "--out", out, "--keep-scores")
    command(*words, code=0)
    whole = (out / "scores.jsonl").read_bytes()
    (out / "scores.jsonl").write_bytes(whole[: len(whole) // 2])
    one_line_error(command(*words, "--resume"), "scores.jsonl: has scores for", "--overwrite")
    (out / "scores.jsonl").unlink()
    one_line_error(command(*words, "--resume"), "scores.jsonl: is missing", "--overwrite")
    exported = ("--out", tmp_path / "e", "--data", data)
    one_line_error(run(export_app, out, *exported), "scores.jsonl: is missing", "--overwrite")


@pytest.mark.parametrize("folder", ["scores.jsonl", "rows.jsonl"])
def test_a_folder_in_place_of_a_file_is_one_line(data: Path, tmp_path: Path, folder: str) -> None:
    out = tmp_path / "run"
    words = ("--data", data, "--out", out, "--keep-scores")
    command(*words, code=0)
    (out / folder).unlink()
    (out / folder).mkdir()
    one_line_error(command(*words, "--resume"), folder)
    one_line_error(run(export_app, out, "--out", tmp_path / "e", "--data", data), folder)
    assert not (tmp_path / "e").exists()
