"""The memory store: complete history, atomic batches, no update lost between writers."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_systems.base import Action, Operation
from memory_systems.history import app
from memory_systems.store import MemoryStore, RepeatedMemory, StaleMemory, memories_after
from recallbed.corpus.records import Evidence, MemoryItem
from recallbed.errors import UserError
from tests import kit
from tests.docs_commands import blocks
from tests.kit import ROOT, one_line_error, run_json


def add(text: str, id: str | None = None) -> Operation:  # noqa: A002
    return Operation(Action.ADD, None, MemoryItem(text, id))


def update(item: MemoryItem, text: str) -> Operation:
    return Operation(Action.UPDATE, item, replace(item, text=text))


def delete(item: MemoryItem) -> Operation:
    return Operation(Action.DELETE, item, None)


def texts(store: MemoryStore, user: str = "ana") -> list[str]:
    return [item.text for item in store.memories(user)]


def consistent(store: MemoryStore, user: str) -> bool:
    history = store.history(user)
    numbers = [entry.number for entry in history]
    return (
        numbers == list(range(1, len(history) + 1))
        and memories_after(entry.operation for entry in history) == store.memories(user)
    )  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "memories.sqlite"


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, path: Path) -> MemoryStore:
    return MemoryStore(path if request.param == "file" else None)


# --- what is kept

FULL = MemoryItem(
    "Grows tomatoes on the balcony", "a-7", "Hobbies/Gardening", "direct", 0.9, "present",
    "positive", "proud", Evidence("s-1", (2, 5), "My tomatoes are red at last"),
)  # fmt: skip


def test_every_field_comes_back_from_another_instance(path: Path) -> None:
    first = MemoryStore(path)
    done = first.apply("ana", [Operation(Action.ADD, None, FULL), add("Has a cat")])
    assert done == [Operation(Action.ADD, None, FULL), add("Has a cat", "m1")]
    second = MemoryStore(path)
    assert second.memories("ana") == [FULL, MemoryItem("Has a cat", "m1")]
    assert [entry.operation for entry in second.history("ana")] == done


def test_the_history_has_number_time_before_and_after(store: MemoryStore) -> None:
    [first] = store.apply("ana", [add("Has a cat")])
    assert first.after is not None
    same = Operation(Action.NOOP, first.after, first.after)
    store.apply("ana", [Operation(Action.NOOP), same, update(first.after, "Has two cats")])
    store.apply("ana", [delete(MemoryItem("Has two cats", "m1"))])
    entries = store.history("ana")
    assert [(e.number, e.operation.action.value) for e in entries] == [
        (1, "ADD"), (2, "NOOP"), (3, "NOOP"), (4, "UPDATE"), (5, "DELETE"),
    ]  # fmt: skip
    assert entries[2].operation == same
    assert entries[3].operation.before == MemoryItem("Has a cat", "m1")
    assert entries[3].operation.after == entries[4].operation.before
    assert entries[1].time == entries[2].time == entries[3].time > 1e9
    assert store.memories("ana") == []


def test_a_changed_memory_keeps_its_place(store: MemoryStore) -> None:
    store.apply("ana", [add("one"), add("two"), add("three")])
    store.apply("ana", [update(MemoryItem("one", "m1"), "uno"), delete(MemoryItem("two", "m2"))])
    store.apply("ana", [add("four")])
    assert texts(store) == ["uno", "three", "four"]
    # The item after an update needs no id.
    eins = Operation(Action.UPDATE, MemoryItem("uno", "m1"), MemoryItem("eins"))
    [done] = store.apply("ana", [eins])
    assert done.after == MemoryItem("eins", "m1")


def test_ids_are_a_users_own_and_never_given_again(store: MemoryStore) -> None:
    store.apply("ana", [add("one"), add("given", "m2"), add("two"), add("last")])
    assert [item.id for item in store.memories("ana")] == ["m1", "m2", "m3", "m4"]
    store.apply("ana", [delete(MemoryItem("last", "m4")), delete(MemoryItem("given", "m2"))])
    [done] = store.apply("ana", [add("next")])
    assert done.after is not None
    assert done.after.id == "m5"
    for taken in ("m1", "m2", "m4"):
        with pytest.raises(RepeatedMemory, match=f"`{taken}`"):
            store.apply("ana", [add("kept out"), add("again", taken)])
    assert texts(store) == ["one", "two", "next"]
    [done] = store.apply("bo", [add("of another")])
    assert done.after == MemoryItem("of another", "m1")
    assert store.users() == ["ana", "bo"]


def test_a_cleared_user_starts_afresh_and_others_stay(store: MemoryStore) -> None:
    for user in ("bo", "ana", "cy"):
        store.apply(user, [add("one"), add("two")])
    store.clear("ana")
    store.clear("nobody")
    assert (store.users(), store.memories("ana"), store.history("ana")) == (["bo", "cy"], [], [])
    [done] = store.apply("ana", [add("new")])
    assert done.after == MemoryItem("new", "m1")
    assert len(store.history("ana")) == 1
    assert len(store.history("bo")) == len(store.memories("cy")) == 2


def test_nothing_to_do_makes_no_user(store: MemoryStore) -> None:
    assert store.apply("ana", []) == []
    with pytest.raises(StaleMemory):
        store.apply("bo", [delete(MemoryItem("x", "m1"))])
    assert (store.users(), store.memories("ana"), store.history("bo")) == ([], [], [])


@pytest.mark.parametrize(
    "operation",
    [
        Operation(Action.ADD),
        Operation(Action.ADD, FULL, FULL),
        Operation(Action.UPDATE, None, FULL),
        Operation(Action.UPDATE, FULL, None),
        Operation(Action.UPDATE, FULL, replace(FULL, id="b")),
        Operation(Action.UPDATE, replace(FULL, id=None), replace(FULL, id=None)),
        Operation(Action.DELETE, FULL, FULL),
        Operation(Action.DELETE, replace(FULL, id=None)),
        Operation(Action.NOOP, FULL),
    ],
)
def test_operations_without_sense_are_refused_whole(
    store: MemoryStore, operation: Operation
) -> None:
    store.apply("ana", [Operation(Action.ADD, None, FULL)])
    with pytest.raises(ValueError, match="invalid operation"):
        store.apply("ana", [add("before it"), operation])
    assert store.memories("ana") == [FULL]
    assert len(store.history("ana")) == 1


# --- laws

ANY_TEXT = st.text(st.characters(codec=None), max_size=8)  # half surrogate pairs and NUL as well
MAYBE = st.none() | ANY_TEXT
ITEMS = st.builds(
    MemoryItem,
    ANY_TEXT,
    st.none() | st.sampled_from(["m1", "m2", "m7", "\udcff", ""]),
    MAYBE,
    MAYBE,
    st.none() | st.floats(allow_nan=False) | st.integers(0, 1),
    MAYBE,
    MAYBE,
    MAYBE,
    st.none()
    | st.builds(Evidence, ANY_TEXT, st.lists(st.integers(0, 9), max_size=3).map(tuple), ANY_TEXT),
)
# An action, what it puts, and which of the memories there are then it is done to.
STEP = st.tuples(st.sampled_from(Action), ITEMS, st.integers(0, 9))
STEPS = st.lists(st.lists(STEP, max_size=4), max_size=6)


def planned(steps: Sequence[tuple[Action, MemoryItem, int]], now: list[MemoryItem]) -> Any:
    """Operations on the memories as they were before the first of them."""
    for action, item, which in steps:
        there = now[which % len(now)] if now else replace(item, id="m1")
        if action is Action.ADD:
            yield Operation(action, None, item)
        elif action is Action.UPDATE:
            yield Operation(action, there, replace(item, id=there.id))
        elif action is Action.DELETE:
            yield Operation(action, there)
        else:
            yield Operation(action, there, there)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from(["ana", "\ud83d", "x\x00y", ""]))
def test_the_history_replayed_gives_the_memories(steps: Any, user: str) -> None:
    """Batches that are refused, for a stale or repeated memory, leave no trace."""
    store = MemoryStore(None)
    expected: list[Operation] = []
    for batch in steps:
        before = store.memories(user)
        try:
            expected += store.apply(user, list(planned(batch, before)))
        except (StaleMemory, RepeatedMemory):
            assert store.memories(user) == before
        assert [entry.operation for entry in store.history(user)] == expected
        assert consistent(store, user)
        ids = [item.id for item in store.memories(user)]
        assert len(set(ids)) == len(ids)
    assert store.users() == ([user] if expected else [])
    store.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(["ana", "bo"]), st.none() | st.lists(STEP)),
        max_size=8,
    )
)
def test_what_an_instance_holds_in_memory_is_what_is_stored(steps: Any) -> None:
    """Two instances work on two users by turns, and clear them; each always sees it all."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "memories.sqlite")
        both = MemoryStore(path), MemoryStore(path)
        for which, user, batch in steps:
            if batch is None:
                both[which].clear(user)
            else:
                with suppress(StaleMemory, RepeatedMemory):
                    both[which].apply(user, list(planned(batch, both[which].memories(user))))
            fresh = MemoryStore(path)
            for one in both:
                assert one.memories(user) == fresh.memories(user)
            fresh.close()
            assert consistent(both[0], "ana")
        for one in both:
            one.close()


def test_a_user_who_was_cleared_elsewhere_is_read_afresh(path: Path) -> None:
    """As many operations as before, and others."""
    one, other = MemoryStore(path), MemoryStore(path)
    one.apply("ana", [add("old")])
    assert texts(one) == ["old"]
    other.clear("ana")
    other.apply("ana", [add("new")])
    assert texts(one) == ["new"]
    one.memories("ana").clear()  # a caller's list is the caller's
    assert texts(one) == ["new"]


# --- writers that know nothing of each other


def test_a_stale_change_is_refused_and_nothing_of_its_batch_done(path: Path) -> None:
    one, other = MemoryStore(path), MemoryStore(path)
    one.apply("ana", [add("Drinks tea"), add("Lives in Graz")])
    tea, graz = one.memories("ana")
    other.apply("ana", [update(tea, "Drinks coffee"), delete(graz)])
    for operation, words in (
        (update(tea, "Drinks green tea"), "was changed"),
        (delete(tea), "was changed"),
        (update(graz, "Lives in Linz"), "was deleted"),
        (delete(MemoryItem("x", "m9")), "was never added"),
    ):
        with pytest.raises(StaleMemory, match=words) as caught:
            one.apply("ana", [add("kept out"), operation])
        assert "\n" not in str(caught.value)
    assert texts(one) == texts(other) == ["Drinks coffee"]
    assert consistent(one, "ana")


def test_operations_see_those_before_them_in_their_batch(store: MemoryStore) -> None:
    store.apply("ana", [add("a")])
    item = MemoryItem("a", "m1")
    store.apply("ana", [update(item, "b"), update(replace(item, text="b"), "c")])
    with pytest.raises(StaleMemory):
        store.apply("ana", [update(replace(item, text="c"), "d"), delete(replace(item, text="c"))])
    assert texts(store) == ["c"]


def count_up(store: MemoryStore, times: int) -> None:
    """Read, decide, write, and once more where another writer came between."""
    for _ in range(times):
        while True:
            [item] = store.memories("ana")
            try:
                store.apply("ana", [update(item, str(int(item.text) + 1))])
            except StaleMemory:
                continue
            break


def test_threads_lose_no_update(store: MemoryStore) -> None:
    store.apply("ana", [add("0")])
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(count_up, store, 50) for _ in range(4)]:
            done.result()
    assert texts(store) == ["200"]
    assert consistent(store, "ana")


# In step with the other: both read, then both write what they decided on; one must be refused.
COUNTER = """
import sys
from pathlib import Path
from memory_systems.store import MemoryStore, StaleMemory
from tests.test_memory_store import count_up, update
store = MemoryStore(Path(sys.argv[1]))
print("ready", flush=True)
for wish in sys.stdin:
    said = "done"
    if wish == "read\\n":
        [item] = store.memories("ana")
    elif wish == "write\\n":
        try:
            store.apply("ana", [update(item, str(int(item.text) + 1))])
        except StaleMemory:
            said = "stale"
            count_up(store, 1)
    else:
        count_up(store, 50)
    print(said, flush=True)
"""


def child(code: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def tell(processes: Sequence[subprocess.Popen[str]], wish: str) -> list[str]:
    """What each says, once all have been told."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(wish + "\n")
        process.stdin.flush()
    return sorted(map(heard, processes))


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_two_processes_lose_no_update(path: Path) -> None:
    store = MemoryStore(path)
    store.apply("ana", [add("0")])
    both = [child(COUNTER, str(path)) for _ in range(2)]
    assert list(map(heard, both)) == ["ready", "ready"]
    for _ in range(20):
        assert tell(both, "read") == ["done", "done"]
        assert tell(both, "write") == ["done", "stale"]
    tell(both, "as fast as you can")
    for process in both:
        process.communicate(timeout=60)
    assert [process.returncode for process in both] == [0, 0]
    assert texts(store) == ["140"]
    history = store.history("ana")
    assert [e.operation.before.text for e in history if e.operation.before] == [
        str(i) for i in range(140)
    ]
    assert consistent(store, "ana")


OPENER = """
import sys
from pathlib import Path
from memory_systems.store import MemoryStore
from tests.test_memory_store import add
print("ready", flush=True)
sys.stdin.readline()
for i in range(20):
    store = MemoryStore(Path(sys.argv[1]).with_name(f"{i}.sqlite"))
    store.apply("ana", [add(sys.argv[2])])
    store.close()
print("done")
"""


def test_processes_may_make_the_same_file_at_once(path: Path) -> None:
    all_of_them = [child(OPENER, str(path), str(i)) for i in range(3)]
    assert list(map(heard, all_of_them)) == ["ready"] * 3
    assert tell(all_of_them, "go") == ["done"] * 3
    assert [process.wait(300) for process in all_of_them] == [0, 0, 0]
    for i in range(20):
        assert sorted(texts(MemoryStore(path.with_name(f"{i}.sqlite")))) == ["0", "1", "2"]


# --- kill -9

# Every batch adds a memory, changes the one before it, and makes a NOOP: a half one would show.
BATCHES = """
import sys
from pathlib import Path
from recallbed.corpus.records import MemoryItem
from memory_systems.base import Action, Operation
from memory_systems.store import MemoryStore
store, number = MemoryStore(Path(sys.argv[1])), 0
while True:
    now = store.memories("ana")[-1:]
    store.apply("ana", [
        *(Operation(Action.UPDATE, item, MemoryItem(f"done {item.text}", item.id)) for item in now),
        Operation(Action.ADD, None, MemoryItem(str(number))),
        Operation(Action.NOOP),
    ])
    print(number, flush=True)
    number += 1
"""


def test_killed_at_any_moment_all_acknowledged_is_there_and_nothing_half(tmp_path: Path) -> None:
    rng = random.Random(6)
    for round_ in range(4):
        path = tmp_path / f"{round_}.sqlite"
        process = child(BATCHES, str(path))
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 120)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        acknowledged = [line for line in process.stdout.read().split("\n") if line]
        assert process.wait(300) == -signal.SIGKILL
        store = MemoryStore(path)
        found = texts(store)
        # One may have been stored whose acknowledgement was cut off.
        assert found[:-1] == [f"done {i}" for i in range(len(found) - 1)]
        assert found[-1] == str(len(found) - 1)
        if acknowledged:
            assert len(found) - 1 in (int(acknowledged[-1]), int(acknowledged[-1]) + 1)
        assert len(store.history("ana")) == 3 * len(found) - 1
        assert consistent(store, "ana")
        store.apply("ana", [add("goes on")])


# Stands still between two operations of a batch, long after the first of them went to the disk.
IN_THE_MIDDLE = """
import sys
from pathlib import Path
import memory_systems.store
from tests.test_memory_store import add, delete
store = memory_systems.store.MemoryStore(Path(sys.argv[1]))
store._open().execute("PRAGMA cache_size = 1")
[old] = store.memories("ana")
class Changing(memory_systems.store._Changing):
    def do(self, operation):
        if self.operations == 500:
            print("in the middle", flush=True)
            sys.stdin.read()
        return super().do(operation)
memory_systems.store._Changing = Changing
store.apply("ana", [delete(old), *(add(f"number {i} " * 50) for i in range(600))])
"""


def test_killed_in_the_middle_of_a_batch_nothing_of_it_is_done(path: Path) -> None:
    store = MemoryStore(path)
    store.apply("ana", [add("old")])
    process = child(IN_THE_MIDDLE, str(path))
    assert heard(process) == "in the middle"
    assert texts(store) == ["old"]  # readers don't wait for a writer
    journal = path.with_name(path.name + "-wal")
    assert b"number 300" in journal.read_bytes()
    process.kill()
    assert process.wait(300) == -signal.SIGKILL
    [done] = store.apply("ana", [add("new")])  # and its lock is gone with it
    assert done.after == MemoryItem("new", "m2")
    assert texts(store) == texts(MemoryStore(path)) == ["old", "new"]
    assert consistent(store, "ana")


def test_stopped_in_a_batch_nothing_of_it_is_done(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C."""
    store.apply("ana", [add("old")])

    def stop(item: MemoryItem | None) -> str | None:
        if item is not None and item.text == "second":
            raise KeyboardInterrupt
        return "{}"

    with monkeypatch.context() as patched:
        patched.setattr("memory_systems.store._stored", stop)
        with pytest.raises(KeyboardInterrupt):
            store.apply("ana", [add("first"), add("second")])
    assert texts(store) == ["old"]
    store.apply("ana", [add("first"), add("second")])
    assert [item.id for item in store.memories("ana")] == ["m1", "m2", "m3"]


# --- faults and forks


def test_what_is_stored_as_a_memory_and_is_none_is_damage(path: Path) -> None:
    store = MemoryStore(path)
    store.apply("ana", [add("one"), add("two")])
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE memory SET item = '{\"colour\": 1}' WHERE added = 2")
    with pytest.raises(UserError, match="damaged") as caught:
        store.memories("ana")
    assert str(path) in str(caught.value)


FORKED = """
import os, sys
from pathlib import Path
from memory_systems.store import MemoryStore
from tests.test_memory_store import add, texts
store = MemoryStore(Path(sys.argv[1]) if sys.argv[1] else None)
store.apply("ana", [add("before")])
pid = os.fork()
store.apply("ana", [add("parent" if pid else "child")])
if not pid:
    os._exit(0 if texts(store)[0] == "before" else 1)
print(os.waitpid(pid, 0)[1], *sorted(texts(store)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("place", ["file", "memory"])
def test_a_fork_opens_the_file_for_itself(path: Path, place: str) -> None:
    out, _ = child(FORKED, str(path) if place == "file" else "").communicate(timeout=60)
    assert out.split() == ["0", "before", *(["child"] if place == "file" else []), "parent"]


# --- the command


run = partial(kit.run, app)


def test_the_command_shows_memories_and_how_they_came(path: Path) -> None:
    store = MemoryStore(path)
    store.apply("ana", [Operation(Action.ADD, None, FULL), add("Has a \x1b[31mcat\nand a dog")])
    store.apply("ana", [update(FULL, "Grows beans"), Operation(Action.NOOP)])
    store.apply("bo", [add("x")])
    store.apply("bo", [delete(MemoryItem("x", "m1"))])
    listed = run(path).stdout.splitlines()
    assert listed == ["ana: 2 memories, 4 operations", "bo: 0 memories, 2 operations"]
    shown = run(path, "--user", "ana").stdout.splitlines()
    kept = ["a-7 [Hobbies/Gardening] Grows beans", "m1 Has a \\x1b[31mcat and a dog"]
    assert shown[:3] == [*kept, ""]
    assert [line.split()[0::2][:2] for line in shown[3:]] == [
        ["1", "ADD"], ["2", "ADD"], ["3", "UPDATE"], ["4", "NOOP"],
    ]  # fmt: skip
    assert shown[5].endswith(
        "a-7 [Hobbies/Gardening] Grows tomatoes on the balcony"
        "  ->  a-7 [Hobbies/Gardening] Grows beans"
    )
    users = run_json(app, path)
    assert users[1] == {"user": "bo", "memories": 0, "operations": 2}
    found = run_json(app, path, "--user", "ana")
    assert [item["value"] for item in found["memories"]] == texts(store)
    assert found["history"][2]["before"]["evidence"]["utterance_index"] == [2, 5]
    assert [entry["number"] for entry in found["history"]] == [1, 2, 3, 4]


def test_errors_of_the_command_are_one_line_and_make_no_file(path: Path) -> None:
    one_line_error(run(path), "no memory store here")
    assert not path.exists()
    MemoryStore(path).apply("ana", [add("x")])
    one_line_error(run(path, "--user", "bo"), "no user `bo`")


def test_the_loop_of_the_page_changes_what_is_stored() -> None:
    [counting] = [b.text for b in blocks(ROOT / "docs/memory_store.md") if b.title == "counting.py"]
    names: dict[str, Any] = {}
    exec(counting, names)
    store = MemoryStore(None)
    store.apply("bo", [add("7")])
    names["count_up"](store, "bo")
    assert texts(store, "bo") == ["8"]
