"""`indexes.build`, `indexes.search` and `indexes.copy`: a user's own memories, kept and found."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from indexes.build import app as build_app
from indexes.copy import app as copy_app
from indexes.indexed_store import IndexedStore
from indexes.milvus import Milvus
from indexes.search import app as search_app
from tests.kit import one_line_error, python, run, write_lines

TEXTS = [f"Keeps {a} in the {p}" for a in ("hens", "bees", "goats") for p in ("shed", "attic")]
LINES = [{"text": text, "id": 100 + i * 3} for i, text in enumerate([*TEXTS, "喜欢喝绿茶"])]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_milvus: None) -> Path:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "mine.jsonl", LINES)
    return tmp_path


def build(*words: str, code: int = 0) -> Any:
    return run(build_app, "mine.jsonl", *words, code=code)


def search(*words: str, code: int = 0) -> Any:
    return run(search_app, *words, code=code)


@pytest.mark.parametrize("kind", ["auto", "bm25s", "milvus"])
def test_what_is_built_is_found_by_another_process(place: Path, kind: str) -> None:
    build("--out", "store", "--kind", kind)
    words = ("store", "bees in the attic", "-k", "2", "--json")
    found = json.loads(python("-m", "indexes.search", *words).stdout)
    assert found["query"] == "bees in the attic"
    assert len(found["hits"]) == 2
    assert found["hits"][0] == {"id": 109, "text": "Keeps bees in the attic"} | {
        "score": found["hits"][0]["score"]
    }


def test_text_and_many_queries(place: Path) -> None:
    build("--out", "store", "--kind", "bm25s")
    write_lines(place / "q.jsonl", [{"query": "绿茶"}, {"query": "goats"}, {"query": "zebra"}])
    shown = search("store", "--queries", "q.jsonl", "-k", "1").stdout
    assert "# 绿茶\n  1  " in shown
    assert "118  喜欢喝绿茶" in shown
    assert "# zebra\n  nothing matches" in shown


def test_milvus_by_text_and_by_both(place: Path) -> None:
    build("--out", "store", "--kind", "milvus")
    for by in ("text", "both"):
        found = json.loads(search("store", "hens attic", "--by", by, "--json").stdout)
        assert found["hits"][0]["id"] == 103
    IndexedStore(Path("store")).index.close()


def test_ids_are_line_numbers_unless_given(place: Path) -> None:
    write_lines(place / "mine.jsonl", [{"text": text, "label": "Animals"} for text in TEXTS])
    build("--out", "store", "--kind", "bm25s")
    [memory] = IndexedStore(Path("store")).texts([4]).values()
    assert memory == (4, TEXTS[4], "Animals")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"txt": "a"}, "unknown field `txt`"),
        ({"id": 7}, "field `text` is missing"),
        ({"text": 3, "id": 1}, "must be a string"),
        ({"text": "a", "id": "7"}, "must be an integer"),
        ({"text": "a", "id": -1}, "must be an integer"),
        ({"text": "a", "id": True}, "must be an integer"),
        ({"text": "a", "id": 103}, "id 103 is already on line 2"),
        ({"text": "a"}, "some lines have an `id`"),
    ],
)
def test_a_faulty_line_is_named_and_nothing_is_built(
    place: Path, line: dict[str, Any], words: str
) -> None:
    write_lines(place / "mine.jsonl", [*LINES, line])
    found = build("--out", "store", "--kind", "bm25s", code=2)
    one_line_error(found, words)
    assert "mine.jsonl:8" in found.stderr
    assert not Path("store").exists()


def test_what_is_there_is_replaced_on_request_and_only_if_it_is_a_store(place: Path) -> None:
    build("--out", "store", "--kind", "bm25s")
    one_line_error(build("--out", "store", code=2), "--overwrite")
    write_lines(place / "mine.jsonl", LINES[:2])
    build("--out", "store", "--kind", "bm25s", "--overwrite")
    assert len(IndexedStore(Path("store")).index) == 2
    Path("papers").mkdir()
    Path("papers/thesis.txt").write_text("years of work")
    one_line_error(
        build("--out", "papers", "--kind", "bm25s", "--overwrite", code=2), "is not a store"
    )
    assert Path("papers/thesis.txt").read_text() == "years of work"
    assert sorted(p.name for p in place.iterdir()) == ["mine.jsonl", "papers", "store"]


SLOW = """
import sys, time
from pathlib import Path
import indexes.indexed_store as module
def slow(*words):
    Path("half way").touch()
    time.sleep(60)
module.write_header = slow
from indexes.build import app
app()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_stopped_half_way_the_older_store_is_still_whole(place: Path, how: signal.Signals) -> None:
    build("--out", "store", "--kind", "bm25s")
    write_lines(place / "mine.jsonl", LINES[:2])
    words = ["mine.jsonl", "--out", "store", "--kind", "bm25s", "--overwrite"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *words], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 300
    while not Path("half way").exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, how)
    stderr = process.communicate(timeout=300)[1]
    assert process.returncode not in (0, 1)
    assert len(IndexedStore(Path("store")).index) == len(LINES)
    if how != signal.SIGKILL:
        assert stderr.count("\n") == 1, stderr
        assert not list(place.glob(".store*"))


def test_a_store_of_another_model_is_refused_naming_both(place: Path) -> None:
    build("--out", "store", "--kind", "flat")
    header = json.loads(Path("store/store.json").read_text())
    mine = header["weights"]
    del header["check"]
    Path("store/store.json").write_text(json.dumps({**header, "weights": "0123456789abcdef"}))
    found = search("store", "bees", code=2)
    one_line_error(found, "0123456789abcdef")
    assert mine in found.stderr


@pytest.mark.parametrize("what", ["nothing", "file", "folder", "no index", "other count", "header"])
def test_what_is_no_store_is_named(place: Path, what: str) -> None:
    build("--out", "store", "--kind", "bm25s")
    if what == "no index":
        Path("store/index").unlink()
    elif what == "other count":
        header = json.loads(Path("store/store.json").read_text())
        Path("store/store.json").write_text(json.dumps({**header, "count": 9}))
    elif what == "header":
        Path("store/store.json").write_text('{"kind": ')
    elif what == "folder":
        Path("empty").mkdir()
    path = {"nothing": "nowhere", "file": "mine.jsonl", "folder": "empty"}.get(what, "store")
    one_line_error(search(path, "bees", code=2), path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("store",), "--queries"),
        (("store", "bees", "-k", "0"), "k 0"),
        (("store", "bees", "--by", "smell"), "--by smell"),
        (("store", "bees", "--by", "both"), "needs a store of kind milvus"),
    ],
)
def test_invalid_searches_are_refused(place: Path, words: tuple[str, ...], message: str) -> None:
    build("--out", "store", "--kind", "flat")
    one_line_error(search(*words, code=2), message)


@pytest.mark.parametrize("kind", ["flat", "bm25s"])
def test_a_copy_is_resumed_and_agrees(place: Path, kind: str) -> None:
    write_lines(place / "few.jsonl", LINES[:3])
    build("--out", "all", "--kind", kind)
    run(build_app, "few.jsonl", "--out", "few", "--kind", kind)
    address = f"copy-{kind}.db"
    for store, new, held in (("few", 3, 3), ("all", 4, 7), ("all", 0, 7)):
        found = run(copy_app, store, "--to", address, code=0)
        assert f"holds {held} memories, {new} new" in found.stdout
        if kind == "flat" and store == "all":
            assert "1.000 of the ten best" in found.stdout


def test_a_copy_of_a_store_with_repeats_holds_them_all(place: Path) -> None:
    """Each distinct memory is one row there, with all its ids behind it."""
    lines = [{"text": TEXTS[i % 3] if i % 5 else f"{TEXTS[0]} since {i}"} for i in range(60)]
    write_lines(place / "mine.jsonl", lines)
    build("--out", "store", "--kind", "flat")
    for new in (60, 0):
        found = run(copy_app, "store", "--to", "many.db", code=0)
        assert f"holds 60 memories, {new} new" in found.stdout
        assert "1.000 of the ten best" in found.stdout
    there = Milvus(384, address="many.db")
    assert there.held(range(70)) == set(range(60))
    assert there._count("memories", "id >= 0") == 12 + 3
    there.close()


def test_an_unavailable_server_is_one_line(place: Path) -> None:
    build("--out", "store", "--kind", "flat")
    found = run(copy_app, "store", "--to", "http://127.0.0.1:9")
    one_line_error(found, "http://127.0.0.1:9: Milvus cannot be reached")
    found = build("--out", "other", "--kind", "milvus", "--address", "http://127.0.0.1:9", code=2)
    one_line_error(found, "cannot be reached")
    assert not Path("other").exists()


def test_a_copy_over_something_else_is_one_line_error(place: Path) -> None:
    build("--out", "store", "--kind", "flat")
    write_lines(place / "mine.jsonl", [{**line, "text": line["text"][::-1]} for line in LINES])
    build("--out", "other", "--kind", "flat")
    assert run(copy_app, "store", "--to", "both.db").exit_code == 0
    found = run(copy_app, "other", "--to", "both.db")
    one_line_error(found, "id 100 of the collection `memories` has another text or vector")


def test_a_store_that_cannot_replace_the_older_one_leaves_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("--out", "store", "--kind", "bm25s")
    write_lines(place / "mine.jsonl", LINES[:2])
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.name.endswith(".tmp"):
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    build("--out", "store", "--kind", "bm25s", "--overwrite", code=130)
    assert len(IndexedStore(Path("store")).index) == len(LINES)
    assert sorted(p.name for p in place.iterdir()) == ["mine.jsonl", "store"]
    # Killed between the two renames, the error names its place.
    rename(Path("store"), Path(".store.old"))
    one_line_error(search("store", "bees", code=2), ".store.old: rename it")


def test_a_store_is_replaced_from_inside_and_through_a_link(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("--out", "store", "--kind", "bm25s")
    Path("link").symlink_to("store")
    write_lines(place / "mine.jsonl", LINES[:2])
    build("--out", "link", "--kind", "bm25s", "--overwrite")
    assert Path("link").is_symlink()
    monkeypatch.chdir("store")
    write_lines(place / "mine.jsonl", LINES[:3])
    words = [str(place / "mine.jsonl"), "--out", ".", "--kind", "bm25s", "--overwrite"]
    assert run(build_app, *words).exit_code == 0
    assert len(IndexedStore(place / "link").index) == 3


def test_unusual_names_queries_texts_and_terminals(place: Path) -> None:
    write_lines(place / "mine.jsonl", [{"text": "Likes tea\nwith 奶 and 🍯"}, {"text": "Runs"}])
    build("--out", "50% #1?", "--kind", "bm25s")
    words = [sys.executable, "-m", "indexes.search", "50% #1?", b"\xff tea"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(words, capture_output=True, env=ascii_only)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.decode().count("\n") == 1
    assert "Likes tea with \\u5976" in shown.stdout.decode()
    shown = subprocess.run([*words, "--json"], capture_output=True, env=ascii_only)
    assert json.loads(shown.stdout)["hits"][0]["text"] == "Likes tea\nwith 奶 and 🍯"


def test_more_hits_than_a_statement_takes_values(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build("--out", "store", "--kind", "bm25s")
    monkeypatch.setattr("indexes.indexed_store.IN_LIST", 2)
    hits = json.loads(search("store", "keeps", "-k", "100000", "--json").stdout)["hits"]
    assert sorted(hit["id"] for hit in hits) == [100 + i * 3 for i in range(6)]


@pytest.mark.parametrize("damage", ["gone", "foreign", "a row less"])
def test_texts_that_are_damaged_are_named(place: Path, damage: str) -> None:
    build("--out", "store", "--kind", "bm25s")
    texts = Path("store/texts.sqlite")
    if damage == "a row less":
        with sqlite3.connect(texts) as opened:
            opened.execute("DELETE FROM memory WHERE id = 106")
    else:
        texts.unlink()
    if damage == "foreign":
        texts.write_text("no database" * 100)
    words = "id 106 is in the index" if damage == "a row less" else "store/texts.sqlite: cannot"
    one_line_error(search("store", "bees", code=2), words)
    if damage != "a row less":
        one_line_error(run(copy_app, "store", "--to", "m.db"), words)
