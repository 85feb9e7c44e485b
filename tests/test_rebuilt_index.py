"""An index folder that is built again while it is read, or damaged: one build, or a clear line."""

import json
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from indexes import indexed_store
from indexes.base import NotAnIndex, open_index
from indexes.build import app as build_app
from indexes.indexed_store import IndexedStore
from tests.kit import run, write_lines

NUMBER = 40


def write_memories(path: Path, word: str) -> Path:
    """The memories of one build: the words at an id differ from build to build."""
    shift = ord(word[0]) % NUMBER
    rows = [
        {"id": i, "text": f"{word} subject{(i + shift) % NUMBER}", "label": word}
        for i in range(NUMBER)
    ]
    return write_lines(path, rows)


def build(store: Path, word: str) -> None:
    file = write_memories(store.with_name(f"{word}.jsonl"), word)
    words = [str(file), "--out", str(store), "--kind", "bm25s", "--overwrite"]
    run(build_app, *words, code=0)


def word_of(store: IndexedStore) -> str:
    """Search for every subject; the hit's text must be about it. The word of the build."""
    words = set()
    for i, hits in enumerate(store.index.search([f"subject{i}" for i in range(NUMBER)], 1)):
        memory = store.texts([int(hits.ids[0])])[int(hits.ids[0])]
        word, subject = memory.text.split()
        assert subject == f"subject{i}", "the text of another build"
        assert memory.label == word
        words.add(word)
    [word] = words
    return word


@pytest.mark.parametrize("when", ["before the index", "after the index", "after opening"])
def test_a_store_replaced_while_it_is_read_is_of_one_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    store = tmp_path / "store"
    build(store, "alpha")
    real, once = open_index, [True]

    def interrupted(path: Path, address: str | None) -> Any:
        if once and when == "before the index":
            once.clear()
            build(store, "beta")
        index = real(path, address)
        if once and when == "after the index":
            once.clear()
            build(store, "beta")
        return index

    monkeypatch.setattr(indexed_store, "open_index", interrupted)
    opened = IndexedStore(store)
    if when == "after opening":
        build(store, "beta")
    assert word_of(opened) == ("alpha" if when == "after opening" else "beta")
    assert [m.id for block in opened.all_memories(7) for m in block] == list(range(NUMBER))
    assert word_of(IndexedStore(store)) == "beta"


def test_a_store_that_is_always_being_replaced_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    build(store, "alpha")

    def interrupted(path: Path, address: str | None) -> Any:
        build(store, "beta")
        return open_index(path, address)

    monkeypatch.setattr(indexed_store, "open_index", interrupted)
    monkeypatch.setattr(indexed_store, "_PAUSE", 0)
    with pytest.raises(NotAnIndex, match="is being rebuilt"):
        IndexedStore(store)


REBUILD = """
import sys
from pathlib import Path
from tests.test_rebuilt_index import build

print("ready", flush=True)
number = 0
while not Path(sys.argv[2]).exists():
    build(Path(sys.argv[1]), ["alpha", "beta"][number % 2])
    number += 1
"""


def test_a_process_that_builds_again_and_again_is_never_confused(tmp_path: Path) -> None:
    store, stop = tmp_path / "store", tmp_path / "stop"
    build(store, "alpha")
    words = [sys.executable, "-c", REBUILD, str(store), str(stop)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "ready\n"
            seen: list[str] = []
            opened = 0
            while opened < 40 or len(set(seen)) < 2:
                try:
                    seen.append(word_of(IndexedStore(store)))
                except NotAnIndex as error:
                    assert "built again" in str(error)  # noqa: PT017 - the one refusal allowed
                opened += 1
                assert opened < 4000
        finally:
            stop.touch()
    assert other.returncode == 0


def test_texts_of_another_build_than_the_index_are_refused(tmp_path: Path) -> None:
    for word in ("alpha", "beta"):
        (tmp_path / word).mkdir()
        build(tmp_path / word / "store", word)
    one, other = tmp_path / "alpha" / "store", tmp_path / "beta" / "store"
    (one / "texts.sqlite").write_bytes((other / "texts.sqlite").read_bytes())
    opened = IndexedStore(one)
    with pytest.raises(NotAnIndex, match="the text of id 3 is damaged, or of another build"):
        opened.texts([3])
    (other / "index").write_bytes((one / "index").read_bytes())
    with pytest.raises(NotAnIndex, match="the index is of another build"):
        IndexedStore(other)


def whole(store: Path) -> list[Any]:
    opened = IndexedStore(store)
    return [opened.texts([3, 8]), *opened.all_memories(), word_of(opened)]


@pytest.mark.parametrize("name", ["texts.sqlite", "store.json"])
def test_damage_to_a_folder_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    store = tmp_path / "store"
    build(store, "alpha")
    expected, path, draw = whole(store), store / name, random.Random(0)
    raw = path.read_bytes()
    refusals = 0
    for number in range(400):
        place, bit = draw.randrange(len(raw)), draw.randrange(8)
        flipped = raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]
        path.write_bytes(flipped if number % 5 else raw[:place])
        try:
            assert whole(store) == expected, (place, bit)
        except NotAnIndex as error:
            assert "\n" not in str(error)  # noqa: PT017 - either is right
            assert str(store) in str(error)  # noqa: PT017
            refusals += 1
    assert refusals > 100


def test_a_store_of_the_version_before_is_read(tmp_path: Path) -> None:
    store = tmp_path / "store"
    build(store, "alpha")
    expected = whole(store)
    header = json.loads((store / "store.json").read_text())
    for key in ("build", "index", "check"):
        del header[key]
    (store / "store.json").write_text(json.dumps(header))
    with sqlite3.connect(store / "texts.sqlite") as connection:
        connection.execute("ALTER TABLE memory DROP COLUMN crc")
    connection.close()
    assert whole(store) == expected
