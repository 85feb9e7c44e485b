"""A bound on embeddings in memory changes where they are kept, and no row."""

import gc
import pickle
from pathlib import Path

import numpy as np
import pytest

from indexes.vector_table import VectorTable
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.options import parse_size
from retrievers import RunContext
from retrievers.dense import MiniLM
from task3.sweep import app
from tests.kit import WriteRelease, run


def filled(limit: int | None, tmp_path: Path) -> VectorTable:
    table = VectorTable(limit)
    rng = np.random.default_rng(0)
    for start in range(0, 60, 20):
        texts = [f"text {start + i}" for i in range(20)]
        table.write(table.reserve(texts, 8), rng.standard_normal((20, 8), np.float32))
    return table


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_table_past_its_bound_lives_in_a_file_and_reads_the_same(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in (3, 59, 3, 20)]
    free, bound = filled(None, tmp_path), filled(1000, tmp_path)
    assert (free.on_disk, bound.on_disk) == (False, True)
    assert (free.read(texts) == bound.read(texts)).all()
    [file] = tmp_path.glob("recallbed-*.vectors")
    assert file.stat().st_size >= 60 * 8 * 4
    del bound
    assert list(tmp_path.glob("recallbed-*")) == []


def test_a_copy_maps_the_file_and_changes_nothing_in_it(tmp_path: Path) -> None:
    table = filled(1000, tmp_path)
    frozen = pickle.dumps(table)
    assert len(frozen) < 60 * 8 * 4 + 1000
    copy = pickle.loads(frozen)
    assert (copy.read(["text 7"]) == table.read(["text 7"])).all()
    before = table.read(["text 7"])
    copy.write(np.array([7]), np.zeros((1, 8), np.float32))
    assert (table.read(["text 7"]) == before).all()


def test_copies_that_grow_change_neither_the_file_nor_each_other(tmp_path: Path) -> None:
    """Two workers that each meet a text that wasn't prepared."""
    table = filled(1000, tmp_path)
    before = table.read(["text 7", "text 59"])
    size = [path.stat().st_size for path in tmp_path.glob("recallbed-*")]
    copies = [pickle.loads(pickle.dumps(table)) for _ in range(2)]
    for number, copy in enumerate(copies):
        row = copy.reserve([f"new {number}"], 8)
        copy.write(row, np.full((1, 8), number, np.float32))
    assert len(list(tmp_path.glob("recallbed-*"))) == 3
    for number, copy in enumerate(copies):
        assert (copy.read([f"new {number}"]) == number).all()
        assert (copy.read(["text 7", "text 59"]) == before).all()
    assert (table.read(["text 7", "text 59"]) == before).all()
    del copies, copy
    [file] = tmp_path.glob("recallbed-*")
    assert [file.stat().st_size] == size


def test_a_bound_below_one_batch_is_one_line(tmp_path: Path) -> None:
    retriever = MiniLM.from_run({"device": "cpu"}, RunContext(max_memory=10_000))
    with pytest.raises(UserError, match=r"--max-memory 10000: .* 98304 bytes"):
        retriever.prepare(["where"], [])


def test_scores_in_blocks_have_the_same_bits() -> None:
    pool = [Memory(f"Keeps {i} hens") for i in range(60)]
    whole = MiniLM("cpu", 8).score("hens", pool)
    bound = MiniLM.from_run({"device": "cpu", "batch_size": 8}, RunContext(max_memory=13_000))
    assert (bound.score("hens", pool) == whole).all()
    assert bound.vectors(["hens"]).shape == (1, 384)
    assert bound._table.on_disk


def test_a_reservation_that_failed_is_taken_back() -> None:
    table = VectorTable()
    table.reserve(["a", "b"], 4)
    table.reserve(["c"], 4)
    table.drop(["c"])
    assert ("c" in table, len(table)) == (False, 2)
    assert table.reserve(["d"], 4).tolist() == [2]


def test_no_room_on_the_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    with pytest.raises(UserError, match=r"no space for .* \(No space left"):
        VectorTable(10).reserve(["a"], 400)


@pytest.mark.large
def test_rows_are_equal_with_and_without(
    write_release: WriteRelease, tmp_path: Path, temporary: Path
) -> None:
    data = write_release(
        [
            (f"where do I keep {i}", [f"Keeps {i * j} in shed {j}" for j in range(1, 8)], i % 7)
            for i in range(24)
        ]
    )
    words = ["--data", data, "--distractors", "5,20", "--retriever", "minilm", "--store", "none"]
    bound = ("--max-memory", "100kB")
    for out, more in (("a", ()), ("b", bound), ("c", (*bound, "--workers", 2))):
        run(app, *words, "--out", tmp_path / out, *more, code=0)
        gc.collect()
    rows = [(tmp_path / out / "rows.jsonl").read_bytes() for out in "abc"]
    assert rows[0] == rows[1] == rows[2]
    assert list(temporary.glob("recallbed-*")) == []


@pytest.mark.parametrize(
    ("text", "size"), [("512MB", 512 * 10**6), ("2GiB", 2**31), ("1000", 1000), ("1.5kB", 1500)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size("--max-memory", text) == size


@pytest.mark.parametrize("text", ["", "0", "much", "-3MB", "5 apples"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UserError, match="--max-memory"):
        parse_size("--max-memory", text)
