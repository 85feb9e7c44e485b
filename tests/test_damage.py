"""Damage to what is kept on disk: refused or made again, never silently another result."""

import hashlib
import json
import random
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.export import export_trec
from analysis.runs import read_run, seconds_by_label, seconds_per_row
from indexes.embedding_store import EmbeddingStore
from memory_systems.base import Action, Operation
from memory_systems.store import MemoryStore, memories_after
from recallbed.chat_models.base import Rung, Usage
from recallbed.chat_models.cache import ReplyCache, Stored
from recallbed.corpus.records import MemoryItem
from recallbed.errors import UserError
from recallbed.harness.checksums import check_of, seal, unseal
from recallbed.harness.experiment import execute, make_rows
from recallbed.harness.fingerprint import canonical
from recallbed.harness.item_run import Done, is_item_row
from recallbed.harness.run_folder import open_run, read_rows
from recallbed.harness.run_options import RunOptions
from tests.kit import PROMISED, Items, assert_equal_runs, swept


def flips(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Every way of changing one bit."""
    for place in range(len(raw)):
        for bit in range(8):
            yield place, raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :]


def refused(read: Callable[[], Any]) -> str | None:
    """The line of the refusal; None if what is read is returned. Anything else raised is raised."""
    said = None
    try:
        read()
    except UserError as error:
        said = str(error)
    assert said is None or "\n" not in said
    return said


def small_sweep(out: Path, **options: Any) -> Path:
    """A run over the sample: one retriever, one size, three queries."""
    given = {"distractors": (5,), "ks": (1,), "limit": 3, **options}
    return swept(["overlap"], out=out, **given).path


def test_every_flipped_bit_of_rows_is_refused(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run")
    path = run / "rows.jsonl"
    raw = path.read_bytes()
    for place, damaged in flips(raw):
        path.write_bytes(damaged)
        said = refused(lambda: read_run(run))
        assert said is not None, (place, damaged[place])
        assert f"{path}:" in said
    path.write_bytes(raw)
    assert len(read_run(run).rows) == 3


def test_a_damaged_row_is_refused_by_a_resumed_run_with_its_line(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run")
    path = run / "rows.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    changed = lines[1].replace(b'"calls": 0', b'"calls": 8')
    assert changed != lines[1]
    path.write_bytes(lines[0] + changed + lines[2])
    with pytest.raises(UserError, match=r"rows\.jsonl:2: the row is damaged.*--resume"):
        small_sweep(run, on_existing="resume")
    assert path.read_bytes() == lines[0] + changed + lines[2]
    path.write_bytes(lines[0])  # what the message says to do
    small_sweep(run, on_existing="resume")
    assert path.read_bytes() == b"".join(lines)


def test_every_flipped_bit_of_the_rows_of_items_is_refused(tmp_path: Path) -> None:
    done = Done({"text": "grün", "score": 0.5}, calls=1, tokens_in=20, tokens_out=3)
    works = {"a": lambda: done, "b": lambda: Done(error="timeout")}
    execute(Items(works), RunOptions(tmp_path / "run"))
    path = tmp_path / "run" / "rows.jsonl"
    for place, damaged in flips(path.read_bytes()):
        path.write_bytes(damaged)
        assert refused(lambda: read_rows(path, is_item_row)), (place, damaged[place])


def test_every_flipped_bit_of_a_line_of_scores_is_refused(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run", keep_scores=True, limit=2)
    path = run / "scores.jsonl"
    raw = path.read_bytes()
    lines = raw.splitlines(keepends=True)
    kept = unseal(lines[0])[0]
    for place, damaged in flips(lines[0].rstrip(b"\n")):
        try:
            value, agrees = unseal(damaged)
        except ValueError:
            continue
        # Only the name of the check itself may have been changed unseen.
        assert not agrees or {key: value[key] for key in kept} == kept, place
    path.write_bytes(lines[0].replace(b'"scores": [', b'"scores": [ ') + lines[1])
    with pytest.raises(UserError, match=r"scores\.jsonl:1"):
        export_trec(run, None, tmp_path / "exported")


def test_a_row_cut_short_is_no_damage(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run")
    path = run / "rows.jsonl"
    raw = path.read_bytes()
    whole = raw[:-1].rindex(b"\n") + 1
    for end in range(whole, len(raw)):
        path.write_bytes(raw[:end])
        assert len(read_run(run).rows) == 2
    small_sweep(run, on_existing="resume")
    assert path.read_bytes() == raw


def test_rows_of_the_version_before_have_no_check_and_are_read(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run")
    path = run / "rows.jsonl"
    now = read_run(run).rows
    lines = (json.dumps(row.to_json(), ensure_ascii=False) + "\n" for row in now)
    path.write_text("".join(lines), "utf-8")
    assert b"check" not in path.read_bytes()
    assert read_run(run).rows == now
    resumed = small_sweep(run, on_existing="resume")
    assert read_run(resumed).rows == now


def test_the_check_is_the_last_key_and_the_crc_of_the_rest() -> None:
    line = seal(b'{"a": 1}\n')
    assert line == b'{"a": 1, "check": "fba18e97"}\n'
    assert unseal(line) == ({"a": 1}, True)
    assert unseal(line.replace(b"1,", b"2,")) == ({"a": 2}, False)
    assert unseal(b'{"a": 1}') == ({"a": 1}, True)


def test_a_check_depends_on_values_their_types_and_their_order() -> None:
    assert check_of("é", 1) == check_of("é".encode(), 1)
    kinds: list[tuple[Any, ...]] = [("1",), (1,), (1.0,), (None,), ("None",), ("", "1"), ("1", "")]
    assert len({check_of(*values) for values in kinds}) == len(kinds)
    assert check_of("\ud800") == check_of("\ud800".encode("utf-8", "surrogatepass"))


# --- databases


def damaged_copies(path: Path, count: int) -> Iterator[str]:
    """Change `path` in `count` ways: a flipped bit, or for one of five a cut. Says which."""
    raw, draw = path.read_bytes(), random.Random(0)
    for number in range(count):
        for beside in path.parent.glob(f"{path.name}-*"):
            beside.unlink()
        if number % 5:
            # Half of the flips in the first page: the header, the schema and the first table.
            end = min(4096, len(raw)) if number % 2 else len(raw)
            place, bit = draw.randrange(end), draw.randrange(8)
            path.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << bit]) + raw[place + 1 :])
            yield f"byte {place} of {len(raw)}, bit {bit}"
        else:
            path.write_bytes(raw[: draw.randrange(1, len(raw))])
            yield f"cut at {path.stat().st_size}"


KEYS = [f"key {i}".encode() * 4 for i in range(60)]


def reply_to(key: bytes) -> Stored:
    return Stored(f"the reply to {key.decode()}: ja, grün", Usage(1, len(key), 7))


def test_damage_to_a_reply_cache_gives_no_other_reply(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    cache = ReplyCache(path)
    for key in KEYS:
        cache.put(key, reply_to(key))
        cache.keep_rung(key, Rung.JSON_MODE)
    cache.close()
    outcomes = set()
    for where in damaged_copies(path, 300):
        cache = ReplyCache(path)
        found: dict[bytes, Any] = {}

        def read(cache: ReplyCache = cache, found: dict[bytes, Any] = found) -> None:
            found.update((key, (cache.get(key), cache.rung(key))) for key in KEYS)

        said = refused(read)
        assert said is None or str(path) in said, where
        for key, (reply, rung) in found.items():
            assert reply in (None, reply_to(key)), (where, key, reply)
            assert rung in (None, Rung.JSON_MODE), (where, key, rung)
        outcomes.add("refused" if said else "all" if len(set(found.values())) == 60 else "less")
        refused(lambda cache=cache: cache.put(KEYS[0], reply_to(KEYS[0])))  # type: ignore[misc]
        cache.close()
    assert outcomes == {"refused", "all", "less"}


SPACE = {"weights": "w", "libraries": {"torch": "0"}}
TEXTS = [f"Keeps {i} bees" for i in range(60)]


def test_damage_to_an_embedding_store_gives_no_other_vector(tmp_path: Path) -> None:
    path = tmp_path / "embeddings.sqlite"
    vectors = np.random.default_rng(0).standard_normal((len(TEXTS), 24), np.float32)
    cut = np.arange(len(TEXTS)) % 2 == 0
    settings, others = {"weights": "w", "model": "m"}, np.ones_like(vectors)
    store = EmbeddingStore(path)
    store.keep_settings({"model": "m"}, settings)
    store.write({**SPACE, "weights": "other"}, TEXTS, others, ~cut)
    store.write(SPACE, TEXTS, vectors, cut)
    store.close()
    outcomes = set()
    for where in damaged_copies(path, 300):
        store = EmbeddingStore(path)
        found: list[Any] = []

        def read(store: EmbeddingStore = store, found: list[Any] = found) -> None:
            assert store.recall_settings({"model": "m"}) in (None, settings)
            assert store.width(SPACE) in (None, 24)
            found += store.read(SPACE, TEXTS)
            assert store.models() in ({}, {"w": ["m"]})

        said = refused(read)
        assert said is None or str(path) in said, where
        for places, rows, was_cut, _ in found:
            assert (rows == vectors[places]).all(), where
            assert (was_cut == cut[places]).all(), where
        refused(store.spaces)
        # What is missing is computed again, and is not stored beside a damaged one.
        said = said or refused(lambda store=store: store.write(SPACE, TEXTS, vectors, cut))  # type: ignore[misc]
        if said is None:
            again: list[Any] = []
            said = refused(lambda store=store, again=again: again.extend(store.read(SPACE, TEXTS)))  # type: ignore[misc]
            assert all((rows == vectors[places]).all() for places, rows, *_ in again), where
        outcomes.add("refused" if said else "made again")
        store.close()
    assert outcomes == {"refused", "made again"}


def small_history(path: Path) -> dict[str, Any]:
    """A store of three users; what is to be read from it."""
    store = MemoryStore(path)
    for user in ("ana", "ben", "cleo"):
        items = [MemoryItem(f"{user} has note {i}", confidence=0.5) for i in range(20)]
        store.apply(user, [Operation(Action.ADD, None, item) for item in items])
        first, second = store.memories(user)[:2]
        changed = MemoryItem("changed", id=first.id, confidence=0.25)
        store.apply(user, [Operation(Action.UPDATE, first, changed)])
        store.apply(user, [Operation(Action.DELETE, second, None)])
    found = whole_store(store)
    store.close()
    return found


def whole_store(store: MemoryStore) -> dict[str, Any]:
    return {
        user: (store.counts()[user], store.memories(user), store.history(user))
        for user in store.users()
    }


def test_damage_to_a_memory_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    expected = small_history(path)
    assert set(expected) == {"ana", "ben", "cleo"}
    outcomes = set()
    for where in damaged_copies(path, 400):
        store = MemoryStore(path)
        found: dict[str, Any] = {}

        def read(store: MemoryStore = store, found: dict[str, Any] = found) -> None:
            found.update(whole_store(store))

        said = refused(read)
        assert said is None or str(path) in said, where
        if said is None:
            assert found == expected, where
            for user, (_, memories, history) in found.items():
                assert memories_after(entry.operation for entry in history) == memories, (
                    where,
                    user,
                )
        outcomes.add("refused" if said else "whole")
        for user in expected:  # without the list of users, as a system reads
            alone: list[Any] = []
            if not refused(lambda u=user, a=alone, s=store: a.extend(s.memories(u))):  # type: ignore[misc]
                assert alone == expected[user][1], (where, user)
        store.close()
    assert outcomes == {"refused", "whole"}


# --- databases of the version before


def make_old(
    path: Path, application_id: int, tables: str, rows: dict[str, list[tuple[Any, ...]]]
) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(tables)
        for table, values in rows.items():
            marks = ",".join("?" * len(values[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
        connection.execute(f"PRAGMA application_id = {application_id}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


OLD_REPLIES = """
CREATE TABLE reply (key BLOB PRIMARY KEY, text TEXT NOT NULL, usage TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE rung (key BLOB PRIMARY KEY, rung TEXT NOT NULL) WITHOUT ROWID;
"""


def test_replies_of_the_version_before_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "replies.sqlite"
    rows = [
        (b"a", '"gr\\u00fcn"', "[1, 2, 3, 0, 0, 0]"),
        (b"b", '"\\ud800"', "[1, 0, 0, 1, 5, 6]"),
        (b"c", '"cut', "[1, 0, 0, 1, 5, 6]"),
    ]
    make_old(path, 0x52425250, OLD_REPLIES, {"reply": rows, "rung": [(b"r", "plain")]})
    cache = ReplyCache(path)
    assert cache.get(b"a") == Stored("grün", Usage(1, 2, 3))
    assert cache.get(b"b") == Stored("\ud800", Usage(1, 0, 0, 1, 5, 6))
    assert cache.get(b"c") is None  # damaged already
    assert cache.rung(b"r") is Rung.PLAIN
    cache.put(b"d", Stored("new", Usage(1)))
    cache.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert connection.execute("SELECT count(*) FROM reply WHERE crc IS NULL").fetchone() == (0,)
    assert len(ReplyCache(path)) == 4


OLD_MEMORIES = """
CREATE TABLE user (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    operations INTEGER NOT NULL DEFAULT 0, ids INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE memory (
    user INTEGER NOT NULL REFERENCES user (number), added INTEGER NOT NULL, id TEXT NOT NULL,
    item TEXT, PRIMARY KEY (user, added)
) WITHOUT ROWID;
CREATE UNIQUE INDEX memory_id ON memory (user, id);
CREATE TABLE operation (
    user INTEGER NOT NULL REFERENCES user (number), number INTEGER NOT NULL, time REAL NOT NULL,
    action TEXT NOT NULL, before TEXT, after TEXT, PRIMARY KEY (user, number)
) WITHOUT ROWID;
"""


def old_memories(path: Path) -> None:
    one, two = '{"id": "m1", "text": "tea"}', '{"id": "m2", "text": "oak"}'
    make_old(
        path,
        0x52424D53,
        OLD_MEMORIES,
        {
            "user": [(1, '"ana"', 3, 2), (2, '"ben"', 1, 0)],
            "memory": [(1, 1, '"m1"', one), (1, 2, '"m2"', None)],
            "operation": [
                (1, 1, 1e9, "ADD", None, one),
                (1, 2, 1e9, "ADD", None, two),
                (1, 3, 1e9 + 0.5, "DELETE", two, None),
                (2, 1, 1e9, "NOOP", None, None),
            ],
        },
    )


def test_memories_of_the_version_before_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    old_memories(path)
    store = MemoryStore(path)
    assert store.counts() == {"ana": (1, 3), "ben": (0, 1)}
    [tea] = store.memories("ana")
    assert tea.text == "tea"
    assert [entry.time for entry in store.history("ana")] == [1e9, 1e9, 1e9 + 0.5]
    store.apply("ana", [Operation(Action.ADD, None, MemoryItem("new"))])
    store.close()
    assert [item.id for item in MemoryStore(path).memories("ana")] == ["m1", "m3"]


OLD_VECTORS = """
CREATE TABLE space (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, width INTEGER NOT NULL, used REAL NOT NULL
);
CREATE TABLE request (key TEXT PRIMARY KEY, settings TEXT NOT NULL);
CREATE TABLE vector (
    space INTEGER NOT NULL REFERENCES space (id), text BLOB NOT NULL,
    cut INTEGER NOT NULL, crc INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX vector_text ON vector (space, text);
"""


def test_vectors_of_the_version_before_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "embeddings.sqlite"
    data = np.array([1, 2, 3], np.float32).tobytes()
    keys = [hashlib.sha256(text).digest() for text in (b"tea", b"oak")]
    make_old(
        path,
        0x52424544,
        OLD_VECTORS,
        {
            "space": [(1, canonical({"weights": "w"}), 3, 1e9)],
            "request": [(canonical({"model": "m"}), canonical({"weights": "w", "model": "m"}))],
            "vector": [
                (1, keys[0], 1, zlib.crc32(data), data),
                (1, keys[1], 0, zlib.crc32(data) ^ 1, data),
            ],
        },
    )
    store = EmbeddingStore(path)
    assert store.recall_settings({"model": "m"}) == {"weights": "w", "model": "m"}
    [(places, rows, cut, _)] = store.read({"weights": "w"}, ["oak", "tea"])
    assert (places.tolist(), rows.tolist(), cut.tolist()) == ([1], [[1, 2, 3]], [True])
    assert [space.vectors for space in store.spaces()] == [2]


# --- under a run: a full disk, and what others delete


def test_a_torn_line_of_timings_is_dropped_by_a_resumed_run(tmp_path: Path) -> None:
    run = small_sweep(tmp_path / "run")
    rows, timings = run / "rows.jsonl", run / "timings.jsonl"
    whole, times = rows.read_bytes(), timings.read_bytes().splitlines(keepends=True)
    rows.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    for end in (1, 30, len(times[-1]) - 1):
        timings.write_bytes(b"".join(times[:-1]) + times[-1][:end])
        rows.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
        small_sweep(run, on_existing="resume")
        assert rows.read_bytes() == whole
        lines = timings.read_bytes().splitlines()
        assert all(isinstance(json.loads(line), dict) for line in lines)
    # As an older version went on after one.
    timings.write_bytes(times[0] + times[1][:9] + times[1] + times[2])
    assert len(seconds_per_row(run, "overlap", 5)) == 1  # the third line alone
    assert set(seconds_by_label(run)) == {"overlap"}


def test_a_disk_that_is_full_for_timings_is_one_error_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    class Short:
        """A stream whose writes are cut after ten bytes, as those of a full disk are."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> "Short":
            return self

        def __exit__(self, *ignored: object) -> None:
            self.stream.close()

        def write(self, data: bytes) -> int:
            return int(self.stream.write(data[:10]))

        def fileno(self) -> int:
            return int(self.stream.fileno())

    def opened(path: Path, mode: str = "r", *more: Any, **options: Any) -> Any:
        stream = real(path, mode, *more, **options)
        return Short(stream) if path.name == "timings.jsonl" and "a" in mode else stream

    with monkeypatch.context() as full:
        full.setattr(Path, "open", opened)
        with pytest.raises(OSError, match="no room"):
            small_sweep(tmp_path / "run")
    small_sweep(tmp_path / "run", on_existing="resume")
    small_sweep(tmp_path / "unbroken")
    assert_equal_runs(tmp_path / "run", tmp_path / "unbroken", PROMISED[:3])


@pytest.mark.parametrize("how", ["deleted", "replaced", "longer"])
@pytest.mark.parametrize("name", [".lock", "rows.jsonl"])
def test_a_run_whose_lock_or_rows_are_taken_away_stops_in_one_line(
    tmp_path: Path, name: str, how: str
) -> None:
    run, said = tmp_path / "run", None
    with open_run(run, {}, "refuse", sound=is_item_row) as folder:
        make_rows(Items({"a": Done}), folder, RunOptions())
        path = run / name
        if how == "deleted":
            path.unlink()
        elif how == "replaced":
            (run / "other").write_bytes(path.read_bytes())
            (run / "other").replace(path)
        else:
            with path.open("ab") as stream:
                stream.write(b"{}\n")
        left = path.read_bytes() if path.exists() else None
        rows = (run / "rows.jsonl").read_bytes() if name == ".lock" else left
        works = {"a": Done, "b": Done}
        said = refused(lambda: make_rows(Items(works), folder, RunOptions()))
        assert said is not None
        assert f"{path}: was deleted, replaced or changed" in said
        for write in (
            folder.write_manifest,
            lambda: folder.rewrite([]),
            lambda: folder.time(seconds=1),
        ):
            assert refused(write) == said
    assert (path.read_bytes() if path.exists() else None) == left
    assert ((run / "rows.jsonl").read_bytes() if rows is not None else None) == rows


def test_a_second_run_in_a_folder_whose_lock_was_deleted_stops_the_first(tmp_path: Path) -> None:
    run = tmp_path / "run"
    works = dict.fromkeys("abc", Done)
    with open_run(run, {}, "refuse", sound=is_item_row) as first:
        make_rows(Items({"a": Done}), first, RunOptions())
        (run / ".lock").unlink()
        with open_run(run, {}, "resume", sound=is_item_row) as second:
            make_rows(Items(works), second, RunOptions())
            assert "was deleted, replaced" in (
                refused(lambda: make_rows(Items(works), first, RunOptions())) or ""
            )
            assert len(second.rows) == 3
    assert len(read_rows(run / "rows.jsonl", is_item_row)[0]) == 3
