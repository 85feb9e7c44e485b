"""What all stores that are SQLite files share: what they refuse, and what a failed write leaves."""

import os
import pickle
import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from indexes.embedding_store import EmbeddingStore
from memory_systems.base import Action, Operation
from memory_systems.store import MemoryStore
from recallbed.chat_models import ReplyCache, Usage
from recallbed.chat_models.cache import Stored
from recallbed.corpus.records import MemoryItem
from tests.kit import LFS

Store = MemoryStore | EmbeddingStore | ReplyCache
NAMES = {
    MemoryStore: "a memory store",
    EmbeddingStore: "an embedding store",
    ReplyCache: "a reply cache",
}
KINDS = pytest.mark.parametrize("kind", NAMES, ids=lambda kind: kind.__name__)
FIRST, MORE = range(60), range(60, 120)
SPACE = {"weights": "w"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def put(store: Store, numbers: Sequence[int]) -> None:
    """Store what is numbered so: in a reply cache one by one, elsewhere in one batch."""
    texts = [f"number {number} " * 300 for number in numbers]
    if isinstance(store, MemoryStore):
        store.apply("ana", [Operation(Action.ADD, None, MemoryItem(text)) for text in texts])
    elif isinstance(store, EmbeddingStore):
        vectors = np.ones((len(texts), 384), np.float32)
        store.write(SPACE, texts, vectors, np.zeros(len(texts), np.bool_))
    else:
        for text in texts:
            store.put(text.encode(), Stored(text, Usage(1)))


def held(store: Store) -> int:
    """How many of all numbers are in it."""
    texts = [f"number {number} " * 300 for number in (*FIRST, *MORE)]
    if isinstance(store, MemoryStore):
        return len(store.memories("ana"))
    if isinstance(store, EmbeddingStore):
        return sum(len(batch.places) for batch in store.read(SPACE, texts))
    return sum(store.get(text.encode()) is not None for text in texts)


def spoil(path: Path, kind: type[Store], how: str) -> None:
    """Put at `path` what is no whole store of this kind and version."""
    if how == "text":
        path.write_text("not a database, but long enough to look like something " * 40)
    elif how == "pointer":
        path.write_text(LFS)
    elif how == "folder":
        path.mkdir()
    elif how == "foreign":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE recipes (name TEXT)")
    else:
        other = ReplyCache if kind is not ReplyCache else EmbeddingStore
        store = (other if how == "another of ours" else kind)(path)  # type: ignore[arg-type]
        put(store, FIRST)
        store.close()
        if how in ("newer", "older"):
            with sqlite3.connect(path) as connection:
                connection.execute(f"PRAGMA user_version = {99 if how == 'newer' else 0}")
        elif how == "cut":
            os.truncate(path, path.stat().st_size // 2)
        elif how == "noise":
            raw = path.read_bytes()
            path.write_bytes(raw[:4096] + random.Random(0).randbytes(len(raw) - 4096))


@KINDS
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("text", "no database, not {}"),
        ("pointer", "a Git LFS pointer, not {}"),
        ("folder", "unable to open|[Dd]irectory"),
        ("foreign", "another program's database, not {}"),
        ("another of ours", "another program's database, not {}"),
        ("newer", "{} of schema 99, from a newer recallbed"),
        ("older", "{} of schema 0, from an older recallbed"),
        ("cut", "malformed"),
        ("noise", "malformed"),
    ],
)
def test_anything_else_is_named_in_one_line_and_left_as_it_is(
    path: Path, kind: type[Store], how: str, said: str
) -> None:
    spoil(path, kind, how)
    before = None if path.is_dir() else path.read_bytes()
    for _ in range(2):  # and it isn't let in the second time
        with pytest.raises(kind.kind.error, match=said.format(NAMES[kind])) as caught:
            held(kind(path))
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert before is None or path.read_bytes() == before


@KINDS
def test_a_full_disk_is_one_line_and_keeps_what_was_stored(path: Path, kind: type[Store]) -> None:
    store = kind(path)
    put(store, FIRST)
    pages = store._open().execute("PRAGMA page_count").fetchone()[0]
    store._open().execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(kind.kind.error, match="full") as caught:
        put(store, MORE)
    assert "\n" not in str(caught.value)
    assert held(store) == 60
    put(kind(path), MORE)  # once there is room
    assert held(store) == held(kind(path)) == 120


@KINDS
def test_a_store_that_is_read_only_is_one_line(path: Path, kind: type[Store]) -> None:
    store = kind(path)
    store._open().execute("PRAGMA query_only = ON")
    with pytest.raises(kind.kind.error, match="readonly") as caught:
        put(store, FIRST)
    assert "\n" not in str(caught.value)


@KINDS
def test_another_writer_that_never_ends_is_waited_for_and_named(
    path: Path, kind: type[Store]
) -> None:
    store = kind(path)
    store._open().execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(kind.kind.error, match="locked"):
        put(store, FIRST)
    other.execute("ROLLBACK")
    put(store, FIRST)
    assert held(store) == 60


@KINDS
def test_a_file_that_is_busy_while_it_is_opened_is_tried_again(
    path: Path, kind: type[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where many open a new file at once: SQLite doesn't wait for the switch to WAL."""
    admit, tries = kind._admit, []

    def busy_twice(self: Store, connection: sqlite3.Connection) -> None:
        tries.append(1)
        if len(tries) < 3:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        admit(self, connection)

    monkeypatch.setattr(kind, "_admit", busy_twice)
    assert held(kind(path)) == 0
    assert len(tries) == 3


@KINDS
def test_pickled_by_its_path_and_used_again_after_closing(path: Path, kind: type[Store]) -> None:
    store = kind(path)
    put(store, FIRST)
    assert held(pickle.loads(pickle.dumps(store))) == 60
    store.close()
    assert held(store) == 60


def test_a_store_in_memory_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="in memory"):
        pickle.dumps(MemoryStore(None))
