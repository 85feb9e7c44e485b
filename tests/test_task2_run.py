"""Task 2 as a run: what every system makes of given memories, and the ids that say so."""

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from memory_scoring.predictions import read_memory_lists
from memory_systems.base import Action, Operation
from memory_systems.external.catalogue import EXTERNAL
from memory_systems.registry import MEMORY_SYSTEMS
from memory_systems.store import MemoryStore, memories_after
from memory_systems.stored import StoredSystem
from recallbed.chat_models.cache import ReplyCache
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.records import MemoryItem, Turn
from recallbed.corpus.tracks import TASK2
from task2.actions import UpdateAction
from task2.run import app
from task2.update import with_official_ids
from tests import kit
from tests.kit import assert_equal_runs, one_line_error, rows_of, write_lines
from tests.scripted_server import ScriptedServer, kill_when
from tests.test_task1_run import (
    KEPT,
    chat,
    items_of,
    operations_of,
    options,
    predictions_of,
    server,
    summary_of,
)

__all__ = ["server"]

SYSTEMS = sorted({*MEMORY_SYSTEMS.names(), "copy", "replace"} - EXTERNAL.keys())
BASELINES = ("copy", "replace", "turns", "gold-memory")
run = partial(kit.run, app)


def release(root: Path, memories: Sequence[tuple[str | None, str]], turns: Sequence[str]) -> Path:
    """One row: memories (id, text) and the user turns of the new dialogue."""
    new = [{"role": "user", "text": text} for text in turns]
    memory = [{"memory_id": name, "value": text} for name, text in memories]
    given = {"old_dialogue": [], "new_dialogue": new, "memory": memory}
    row = {"benchmark_id": "s0", "session_id": "s0", "input": given}
    write_lines(root / "dev" / "task2" / "model_input.jsonl", [row])
    return root


def updated(
    system: str, memories: Sequence[tuple[str | None, str]], turns: Sequence[str], folder: Path
) -> Path:
    """The folder of a run of `system` on one row."""
    data = release(folder / "release", memories, turns)
    run(*options(system, data, folder / "run"), code=0)
    return folder / "run"


def predicted(folder: Path) -> list[tuple[str, str]]:
    """The ids and texts of the one row."""
    [row] = predictions_of(folder)
    return [(item["memory_id"], item["value"]) for item in row["memory_items"]]


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_updates_real_memories(
    system: str, alpsbench: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    """Operations lead from what was given to what is stored, and the ids say what happened."""
    out = tmp_path / "run"
    words = (*options(system, alpsbench, out), "--limit", 10)
    run(*words, *chat(server, tmp_path / "replies.sqlite"), code=0)
    inputs = read_inputs(alpsbench, "dev", TASK2, 10).rows
    rows, predictions = rows_of(out), predictions_of(out)
    assert [r["item"] for r in rows] == [p["benchmark_id"] for p in predictions] == list(inputs)
    assert not any(row["error"] for row in rows)
    store = MemoryStore(out / "memory.sqlite")
    for row, prediction in zip(rows, predictions, strict=True):
        given = {item.id: item for item in inputs[row["item"]].memories}
        items = items_of(prediction["memory_items"])
        kept = store.memories(row["item"])
        assert [item.text for item in items] == [item.text for item in kept]
        done = operations_of(row["result"]["operations"])
        history = [entry.operation for entry in store.history(row["item"])]
        if system != "none":
            assert {entry.action for entry in history[: len(given)]} == {Action.ADD}
            assert history[len(given) :] == done
            assert memories_after(history) == kept
        assert len({item.id for item in items}) == len(items)
        for item, action in zip(items, row["result"]["actions"], strict=True):
            assert item.id
            if action == UpdateAction.RETENTION:
                assert item == given[item.id]
            elif action == UpdateAction.MODIFICATION:
                assert item.text != given[item.id.removesuffix("_updated")].text
                assert item.id.endswith("_updated")
            else:
                assert item.id.startswith("m_new_")
                assert item.id not in given
    summary = summary_of(out)
    total = sum(len(row.memories) for row in inputs.values())
    actions = Counter(action for row in rows for action in row["result"]["actions"])
    assert {a: n for a, n in summary["actions"].items() if n} == actions
    remaining = actions[UpdateAction.RETENTION] + actions[UpdateAction.MODIFICATION]
    assert summary["operations"]["DELETE"] == (0 if system == "none" else total - remaining)
    if system == "mem0-like":
        assert all(summary["operations"].values()), summary["operations"]
        assert {*actions} == {*UpdateAction}
        assert summary["unknown_labels"]
    if system == "copy":
        assert actions == {UpdateAction.RETENTION: total}
    if system == "replace":
        assert actions == {UpdateAction.RETENTION: total - 10, UpdateAction.MODIFICATION: 10}
    if system in BASELINES:
        assert not server.calls
    read = read_memory_lists(out / "predictions.jsonl")
    assert len(read.predictions) == 10
    assert not any(row.fault for row in read.predictions)


@pytest.mark.parametrize("system", ["copy", "replace"])
def test_sample_baselines(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("--system", system, "--json", code=0)
    assert "sample, not AlpsBench" in result.stderr
    summary = json.loads(result.stdout)
    assert summary["about"].startswith("no model: ")
    assert (summary["chat_models"], summary["calls"]) == ([], 0)
    assert summary["predictions"] == summary["data"]["rows"] > 20


# --- the ids --------------------------------------------------------------------------------------


def test_the_ids_tell_retention_modification_and_addition() -> None:
    given = {"m1": MemoryItem("a", "x7"), "m2": MemoryItem("b", "x3"), "m3": MemoryItem("c", "x9")}
    now = [
        MemoryItem("b", "m2", label="another"),  # a label alone is no modification
        MemoryItem("c, and more", "m3"),
        MemoryItem("d", "m4"),
        MemoryItem("e", None),
    ]
    found = with_official_ids(given, now)
    assert [(item.id, item.text, action) for item, action in found] == [
        ("x3", "b", UpdateAction.RETENTION),
        ("x9_updated", "c, and more", UpdateAction.MODIFICATION),
        ("m_new_1", "d", UpdateAction.ADDITION),
        ("m_new_2", "e", UpdateAction.ADDITION),
    ]
    assert with_official_ids(given, []) == []


def test_an_addition_takes_no_id_that_was_given() -> None:
    given = {"m1": MemoryItem("a", "m_new_1"), "m2": MemoryItem("b", "m_new_3")}
    now = [MemoryItem("a", "m1"), *(MemoryItem(text, f"m{n}") for n, text in enumerate("cd", 3))]
    found = [item.id for item, _ in with_official_ids(given, now)]
    assert found == ["m_new_1", "m_new_2", "m_new_4"]


@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (("m2", "m1"), ("m2", "m1")),  # not as systems number them
        ((None, "m1"), ("m1", "m1")),  # missing: the number
        (("m1", "m1"), ("m1", "m1")),  # repeated, as the file has it
        (("", "  "), ("m1", "  ")),
    ],
)
def test_memories_with_any_ids_are_kept_apart(
    ids: Sequence[str | None], kept: Sequence[str], tmp_path: Path
) -> None:
    out = updated("copy", list(zip(ids, ("tea", "coffee"), strict=True)), ["hello"], tmp_path)
    assert predicted(out) == list(zip(kept, ("tea", "coffee"), strict=True))
    [row] = rows_of(out)
    assert row["result"]["given"] == list(ids)


class Undecided(StoredSystem):
    """Deletes the first memory, rewords the second twice, adds one, and takes one back."""

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        first, second, *_ = self.memories()
        once = MemoryItem("once", second.id)
        done = self.apply(
            [
                Operation(Action.DELETE, first),
                Operation(Action.UPDATE, second, once),
                Operation(Action.ADD, after=MemoryItem(dialogue[0].text)),
                Operation(Action.UPDATE, once, MemoryItem("twice", second.id)),
                Operation(Action.ADD, after=MemoryItem("a slip")),
            ]
        )
        assert done[-1].after
        return [*done, *self.apply([Operation(Action.DELETE, done[-1].after)])]


def test_a_system_of_ones_own_may_do_as_it_likes(tmp_path: Path) -> None:
    memories = [("m5", "old"), ("m4", "older"), ("m6", "oldest")]
    out = updated("tests.test_task2_run:Undecided", memories, ["something new"], tmp_path)
    kept = [("m4_updated", "twice"), ("m6", "oldest"), ("m_new_1", "something new")]
    assert predicted(out) == kept
    assert summary_of(out)["operations"] == {"ADD": 2, "UPDATE": 2, "DELETE": 2, "NOOP": 0}


# --- the baselines --------------------------------------------------------------------------------


def test_replace_puts_the_nearest_turn_in_the_place_of_the_nearest_memory(tmp_path: Path) -> None:
    memories = [("m1", "Drinks green tea"), ("m2", "Plays the old piano"), ("m3", "Has a cat")]
    said = ["What is 7 times 8?", "I sold the old piano, I play no piano", "Tea is nice"]
    out = updated("replace", memories, said, tmp_path)
    assert predicted(out) == [memories[0], ("m2_updated", said[1]), memories[2]]
    [row] = rows_of(out)
    [operation] = row["result"]["operations"]
    assert (operation["action"], operation["before"]["value"]) == ("UPDATE", "Plays the old piano")


@pytest.mark.parametrize(
    ("memories", "said", "expected"),
    [
        ([], ["I like tea"], []),
        ([("m1", "tea")], [], [("m1", "tea")]),
        # All tie: the first turn and the oldest memory.
        ([("m1", "tea"), ("m2", "ale")], ["one", "two"], [("m1_updated", "one"), ("m2", "ale")]),
        # The turn that is the memory already changes nothing.
        ([("m1", "tea")], ["tea"], [("m1", "tea")]),
    ],
)
def test_replace_where_there_is_little_to_choose(
    memories: list[tuple[str, str]], said: list[str], expected: object, tmp_path: Path
) -> None:
    assert predicted(updated("replace", memories, said, tmp_path)) == expected


# --- stopped and taken up again -------------------------------------------------------------------


def test_killed_and_resumed(alpsbench: Path, server: ScriptedServer, tmp_path: Path) -> None:
    """What was given isn't given twice, and nothing that the dialogue changed is changed twice."""
    whole, broken, replies = tmp_path / "whole", tmp_path / "broken", tmp_path / "replies.sqlite"
    more = ("--limit", 20, "--in-flight", 3)
    run(*options("mem0-like", alpsbench, whole), *more, *chat(server, f"{whole}.sqlite"), code=0)
    every = len(server.calls)
    again = (*options("mem0-like", alpsbench, broken), *more, *chat(server, replies))
    kill_when(server, lambda call: len(server.calls) >= 33, "task2.run", *again)
    stored = len(ReplyCache(replies))
    server.calls.clear()
    run(*again, "--resume", code=0)
    assert len(server.calls) == every - stored
    assert_equal_runs(broken, whole, KEPT)
    kept, resumed = MemoryStore(whole / "memory.sqlite"), MemoryStore(broken / "memory.sqlite")
    assert kept.users() == resumed.users()
    for user in kept.users():
        assert kept.memories(user) == resumed.memories(user)
        one, other = ([entry.operation for entry in s.history(user)] for s in (kept, resumed))
        assert one == other


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "missing option '--system'"),
        (("--system", "extractive"), "copy, "),
        (("--system", "mem0-like"), "--chat-model"),
        (("--system", "copy", "--split", "test"), "no split `test`"),
        (("--system", "copy", "--in-flight", "0"), "--in-flight"),
    ],
)
def test_a_mistake_ends_with_2(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one_line_error(run(*words), said, after_notes=True)
    assert not list(tmp_path.iterdir())
