"""The embedding store: nothing is encoded twice, and nothing invalid or damaged is used."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from indexes.embedding_store import EmbeddingStore, choose_store
from indexes.sentence_encoder import SentenceEncoder
from indexes.store import app
from recallbed.corpus.records import Memory
from retrievers import RunContext
from retrievers.dense import MiniLM
from task3.sweep import app as sweep_app
from tests.kit import HANG, WriteRelease, one_line_error, python, run

SPACE = {"weights": "w", "max_tokens": 8, "device": "cpu", "libraries": {"torch": "0"}}
TEXTS = [f"Keeps {animal} in the {place}" for animal in ("hens", "bees") for place in "abcdefg"]


@pytest.fixture
def store(tmp_path: Path) -> EmbeddingStore:
    return EmbeddingStore(tmp_path / "deep" / "store.sqlite")


def vectors_for(texts: Sequence[str], seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal((len(texts), 4), np.float32)


def all_of(store: EmbeddingStore, texts: Sequence[str], space: dict[str, Any] = SPACE) -> Any:
    found = {}
    for made in store.read(space, texts):
        for place, vector, was_cut in zip(made.places, made.vectors, made.cut, strict=True):
            found[texts[place]] = (vector.tolist(), bool(was_cut))
    return found


def test_what_is_written_is_read_back_exactly(store: EmbeddingStore) -> None:
    vectors, cut = vectors_for(TEXTS), np.arange(len(TEXTS)) % 2 == 0
    store.write(SPACE, TEXTS, vectors, cut)
    asked = ["unknown", *TEXTS[::-1], "茶"]
    again = EmbeddingStore(store.path)
    expected = {t: (v.tolist(), bool(c)) for t, v, c in zip(TEXTS, vectors, cut, strict=True)}
    assert all_of(again, asked) == expected


def test_more_texts_than_sqlite_takes_in_one_question(store: EmbeddingStore) -> None:
    texts = [f"text {i}" for i in range(40_000)]
    store.write(SPACE, texts, vectors_for(texts), np.zeros(len(texts), bool))
    assert len(all_of(store, texts)) == len(texts)


@pytest.mark.parametrize("key", ["weights", "max_tokens", "device"])
def test_another_space_has_nothing_in_it(store: EmbeddingStore, key: str) -> None:
    store.write(SPACE, TEXTS, vectors_for(TEXTS), np.zeros(len(TEXTS), bool))
    assert all_of(store, TEXTS, {**SPACE, key: "other"}) == {}


def test_the_first_writers_vectors_stay_and_are_given_to_the_second(store: EmbeddingStore) -> None:
    """Otherwise a resumed run would continue with other bits than it began with."""
    none = np.zeros(len(TEXTS), bool)
    first, second = vectors_for(TEXTS), vectors_for(TEXTS, seed=1)
    store.write(SPACE, TEXTS[3:6], first[3:6], none[3:6])
    before = all_of(store, TEXTS[3:6])
    kept = store.write(SPACE, TEXTS, second, ~none)
    assert all_of(store, TEXTS[3:6]) == before
    assert (kept[3:6] == first[3:6]).all()
    assert (kept[:3] == second[:3]).all()
    assert (kept[6:] == second[6:]).all()


def test_stopped_while_writing_nothing_is_half_written(
    store: EmbeddingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between two vectors of a batch."""
    count = iter([0, 0, 0])

    def stop(*parts: Any) -> int:
        if next(count, None) is None:
            raise KeyboardInterrupt
        return 0

    with monkeypatch.context() as patched:
        patched.setattr("indexes.embedding_store._check", stop)
        with pytest.raises(KeyboardInterrupt):
            store.write(SPACE, TEXTS, vectors_for(TEXTS), np.zeros(len(TEXTS), bool))
    assert all_of(store, TEXTS) == {}
    store.write(SPACE, TEXTS, vectors_for(TEXTS), np.zeros(len(TEXTS), bool))
    assert len(all_of(store, TEXTS)) == len(TEXTS)


def test_the_file_contains_no_text(store: EmbeddingStore) -> None:
    store.write(SPACE, TEXTS, vectors_for(TEXTS), np.zeros(len(TEXTS), bool))
    store.close()
    raw = b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    assert b"hens" not in raw


WRITER = """
import sys, numpy as np
from pathlib import Path
from indexes.embedding_store import EmbeddingStore
store, first = EmbeddingStore(Path(sys.argv[1])), int(sys.argv[2])
for i in range(60):
    texts = [f"text {first + i * 5 + j}" for j in range(10)]
    store.write({"weights": "w"}, texts, np.full((10, 4), 7, np.float32), np.zeros(10, bool))
"""


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    words = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*words, first]) for first in ("0", "150")]
    assert [writer.wait(timeout=300) for writer in writers] == [0, 0]
    texts = [f"text {i}" for i in range(455)]
    assert len(all_of(EmbeddingStore(path), texts, {"weights": "w"})) == 455


@pytest.mark.parametrize(
    "damaged", ["substr(data, 1, 8)", "data || x'00000000'", "x'0000803f' || substr(data, 5)", "''"]
)
def test_a_damaged_vector_is_computed_again_replaced_and_counted(
    store: EmbeddingStore, damaged: str, capsys: pytest.CaptureFixture[str]
) -> None:
    vectors, cut = vectors_for(TEXTS), np.zeros(len(TEXTS), bool)
    store.write(SPACE, TEXTS, vectors, cut)
    whole = all_of(store, TEXTS)
    store.close()
    with sqlite3.connect(store.path) as connection:
        connection.execute(f"UPDATE vector SET data = {damaged} WHERE rowid = 3")
    assert all_of(store, TEXTS) == {t: v for t, v in whole.items() if t != TEXTS[2]}
    store.write(SPACE, [TEXTS[2]], vectors[2:3], cut[2:3])
    assert all_of(store, TEXTS) == whole
    store.close()
    expected = f"note: {store.path}: damaged vectors, computed again: 1\n"
    assert capsys.readouterr().err == expected


# --- with the real model


def test_stored_texts_need_no_model(tmp_path: Path) -> None:
    store = EmbeddingStore(tmp_path / "s.sqlite")
    made, cut = SentenceEncoder("all-MiniLM-L6-v2", "cpu", store=store).encode(TEXTS)
    second = SentenceEncoder("all-MiniLM-L6-v2", "cpu", store=EmbeddingStore(store.path))
    settings = second.settings()
    read, cut_again = second.encode(TEXTS)
    assert (read == made).all()
    assert (cut_again == cut).all()
    assert "_model" not in second.__dict__, "the model was loaded for nothing"
    plain = SentenceEncoder("all-MiniLM-L6-v2", "cpu")
    assert settings == plain.settings()
    assert (plain.encode(TEXTS)[0] == made).all()


def test_only_batches_with_a_missing_text_are_made_again(tmp_path: Path) -> None:
    texts = sorted(f"{word} " * (1 + i % 7) + str(i) for i, word in enumerate(["tea", "oak"] * 40))
    whole = SentenceEncoder("all-MiniLM-L6-v2", "cpu", 8).encode(texts)[0]
    store = EmbeddingStore(tmp_path / "s.sqlite")
    encoder = SentenceEncoder("all-MiniLM-L6-v2", "cpu", 8, store=store)
    stopped = encoder.batches(texts)
    for _ in range(4):
        next(stopped)
    stopped.close()
    given: list[str] = []
    again = SentenceEncoder("all-MiniLM-L6-v2", "cpu", 8, store=EmbeddingStore(store.path))
    real = again._model.encode
    again._model.encode = lambda batch, **more: (given.extend(batch), real(batch, **more))[1]
    # Equal to the last bit, since the batches are those of the unbroken run.
    assert (again.encode(texts)[0] == whole).all()
    assert len(given) == len(texts) - 4 * 8


def test_two_token_limits_share_no_vector(tmp_path: Path) -> None:
    store = EmbeddingStore(tmp_path / "s.sqlite")
    long = "Walks the dog before breakfast along the river and over the old bridge"
    short = SentenceEncoder("all-MiniLM-L6-v2", "cpu", max_tokens=6, store=store).encode([long])
    whole = SentenceEncoder("all-MiniLM-L6-v2", "cpu", store=store).encode([long])
    assert (short[1].tolist(), whole[1].tolist()) == ([True], [False])
    assert abs(short[0] - whole[0]).max() > 1e-3


def test_truncation_counts_come_from_the_store_too(tmp_path: Path) -> None:
    context = RunContext(store=tmp_path / "s.sqlite")
    memories = [Memory("river " * 400), Memory("short")]
    notes = []
    for _ in range(2):
        retriever = MiniLM.from_run({"device": "cpu"}, context)
        retriever.prepare(["oak " * 300], memories)
        notes.append(dict(retriever.notes()))
    assert notes[0] == notes[1]
    assert notes[0]["truncated_memories"] == notes[0]["truncated_queries"] == 1


# --- the commands


def release(write_release: WriteRelease, queries: int = 30) -> None:
    write_release(
        [
            (f"where do I keep {i}", [f"Keeps {i * j} in the shed {j}" for j in range(1, 8)], i % 7)
            for i in range(queries)
        ]
    )


def test_a_second_sweep_imports_neither_torch_nor_sentence_transformers(
    write_release: WriteRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(write_release)
    monkeypatch.chdir(tmp_path)
    words = ["--data", "release", "--distractors", "5,20", "--retriever", "minilm"]
    words += ["--store", "s.sqlite", "--out"]
    run(sweep_app, *words, "a", code=0)
    assert "torch" in sys.modules
    warm = python("-X", "importtime", "-m", "task3.sweep", *words, "b")
    modules = {line.rpartition("|")[2].strip() for line in warm.stderr.splitlines()}
    assert "task3.sweep_run" in modules
    assert not modules & {"torch", "sentence_transformers", "transformers", "huggingface_hub"}
    for name in ("rows.jsonl", "manifest.json"):
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes()


def test_killed_while_encoding_and_resumed_ends_as_an_unbroken_run(
    write_release: WriteRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(write_release, 8)
    monkeypatch.chdir(tmp_path)
    settings = ("--set", "minilm.batch_size=4")
    words = ["--data", "release", "--distractors", "5,20", "--retriever", "minilm", *settings]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *words, "--out", "cut", "--store", "two.sqlite"],
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + HANG
    while not Path("third batch").exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = sum(space.vectors for space in EmbeddingStore(Path("two.sqlite")).spaces())
    assert kept == 3 * 4
    again = ["--out", "cut", "--store", "two.sqlite", "--resume", "--workers", "2"]
    for more in (["--out", "whole", "--store", "one.sqlite"], again):
        run(sweep_app, *words, *more, code=0)
    assert Path("cut/rows.jsonl").read_bytes() == Path("whole/rows.jsonl").read_bytes()


# Stands still once three batches are stored.
SLOW = """
import sys, time
from pathlib import Path
from indexes.embedding_store import EmbeddingStore
write, count = EmbeddingStore.write, []
def slow(self, *rest):
    kept = write(self, *rest)
    count.append(1)
    if len(count) == 3:
        Path("third batch").touch()
        time.sleep(600)
    return kept
EmbeddingStore.write = slow
from task3.sweep import app
app()
"""


def test_a_named_store_that_cannot_be_had_is_one_line(
    write_release: WriteRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(write_release, 4)
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    words = ["--data", "release", "--distractors", "5", "--retriever", "minilm", "--out", "run"]
    one_line_error(run(sweep_app, *words, "--store", "file/below.sqlite"))
    assert not Path("run").exists()


def test_a_run_that_needs_no_vectors_makes_no_store(
    write_release: WriteRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(write_release, 4)
    monkeypatch.chdir(tmp_path)
    words = ["--data", "release", "--distractors", "5", "--retriever", "bm25", "--out", "run"]
    run(sweep_app, *words, "--store", "s.sqlite", code=0)
    assert not Path("s.sqlite").exists()


def test_a_cache_folder_that_cannot_be_had_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    monkeypatch.delenv("RECALLBED_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert choose_store(None) is None
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert choose_store(None) == tmp_path / "other" / "recallbed" / "embeddings.sqlite"
    assert choose_store("none") is None


def test_show_and_prune(store: EmbeddingStore) -> None:
    none = np.zeros(len(TEXTS), bool)
    store.write(SPACE, TEXTS, vectors_for(TEXTS), none)
    store.write({**SPACE, "weights": "v"}, TEXTS[:3], vectors_for(TEXTS[:3]), none[:3])
    store.keep_settings({"a": 1}, {"weights": "w", "model": "my model"})

    def command(*words: str) -> Result:
        return run(app, *words, "--store", store.path)

    shown = json.loads(command("show", "--json").stdout)
    assert {(s["weights"], s["vectors"], tuple(s["models"])) for s in shown["spaces"]} == {
        ("w", len(TEXTS), ("my model",)),
        ("v", 3, ()),
    }
    assert "my model" in command("show").stdout
    one_line_error(command("prune"), "give what to remove")
    assert "removed 0 spaces" in command("prune", "--older-than", "1").stdout
    assert "removed 1 space, 14 vectors" in command("prune", "--model", "my model").stdout
    assert [space.vectors for space in store.spaces()] == [3]
    assert "removed 1 space" in command("prune", "--all").stdout
    assert store.spaces() == []


def test_show_makes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "typo.sqlite"
    one_line_error(run(app, "show", "--store", path), "no embedding store exists here")
    assert not path.exists()


READER = """
import sys
from pathlib import Path
from indexes.embedding_store import EmbeddingStore
store = EmbeddingStore(Path(sys.argv[1]))
print(sum(space.vectors for space in store.spaces()))
"""


def test_two_connections_here_outlive_a_process_that_comes_and_goes(store: EmbeddingStore) -> None:
    # Opening the file without SQLite would release its locks; a process that seems to close it last
    # would then remove the journal that the others use ("disk I/O error").
    none = np.zeros(1, bool)
    store.write(SPACE, TEXTS[:1], vectors_for(TEXTS[:1]), none)
    second = EmbeddingStore(store.path)
    second.check()
    second.write(SPACE, TEXTS[1:2], vectors_for(TEXTS[1:2]), none)
    for i in (2, 3, 4):
        assert python("-c", READER, store.path).stdout.strip() == str(i)
        EmbeddingStore(store.path).check()
        (store, second)[i % 2].write(SPACE, TEXTS[i : i + 1], vectors_for(TEXTS[i : i + 1]), none)
    assert len(all_of(store, TEXTS)) == len(all_of(second, TEXTS)) == 5
