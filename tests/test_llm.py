"""The plain chat model: extraction, the updated list, long dialogues, and runs of the tasks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from memory_systems import SystemContext, SystemFailure
from memory_systems.llm import PlainModel
from memory_systems.testing import ITEMS
from recallbed.chat_models import chat_model
from recallbed.corpus.records import MemoryItem, Turn
from retrievers.bm25 import BM25
from tests.kit import read_json, rows_of, run
from tests.memory_models import data_of, perfect
from tests.scripted_server import Call, ScriptedServer, scripted_server

GREEN, SISTER, *_ = (item.text for item in ITEMS)
OLD = [Turn("user", f"my secret word {n} is tea") for n in range(40)]
NEW = [
    Turn("user", "my bicycle is red now"),
    Turn("user", "please forget my sister"),
    Turn("user", "my cat is called Miso"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server(perfect) as running:
        yield running


def model(
    server: ScriptedServer,
    load: Sequence[MemoryItem] = (),
    context: int | None = None,
    **settings: Any,
) -> PlainModel:
    chat = chat_model("openai:scripted", base_url=server.url, first_wait=0.01, context=context)
    made = PlainModel(SystemContext(BM25(), chat), **settings)
    made.open("ann")
    made.load(load)
    return made


def texts(system: PlainModel) -> list[str]:
    return [item.text for item in system.memories()]


def test_without_memories_the_facts_of_a_dialogue_are_stored(server: ScriptedServer) -> None:
    system = model(server)
    done = system.ingest([*NEW, NEW[0], Turn("assistant", "my tea is oolong")])
    assert [one.action for one in done] == ["ADD", "ADD", "ADD", "NOOP"]
    assert texts(system) == [turn.text for turn in NEW]
    assert system.take_usage().calls == 1


def test_the_updated_list_becomes_operations_that_keep_ids(server: ScriptedServer) -> None:
    system = model(server, ITEMS)
    done = system.ingest(NEW)
    changed = [
        (one.action, one.before and one.before.text, one.after and one.after.text) for one in done
    ]
    assert changed == [
        ("UPDATE", GREEN, "my bicycle is red now"),
        ("DELETE", SISTER, None),
        ("ADD", None, "my cat is called Miso"),
    ]
    kept = {item.id: item for item in system.memories()}
    assert kept["m1"].text == "my bicycle is red now"
    assert kept["m3"] == replace(ITEMS[2], id="m3")


def test_labels_that_name_nothing_or_repeat_are_counted_and_lose_no_text() -> None:
    def sloppy(call: Call) -> Any:
        reply = perfect(call)
        first = reply["memories"][0]
        return {"memories": [first, {**first, "text": "twice"}, {**first, "memory": 99}]}

    with scripted_server(sloppy) as server:
        system = model(server, ITEMS[:1])
        system.ingest([Turn("user", "hello")])
        assert texts(system) == [GREEN, "twice"]
        assert system.unknown_labels == 2


@pytest.mark.parametrize("shown", [True, False])
def test_the_old_dialogue_is_shown_unless_it_is_left_out(shown: bool) -> None:
    with scripted_server(perfect) as server:
        system = model(server, ITEMS, old_dialogue=shown)
        system.read_before(OLD)
        system.ingest(NEW)
        [prompt] = server.prompts()
        assert ("Old dialogue:" in prompt) == ("my secret word 39" in prompt) == shown
        assert not system.cut


def test_a_long_old_dialogue_loses_its_oldest_lines_and_is_counted() -> None:
    with scripted_server(perfect) as server:
        system = model(server, ITEMS, chunk=300)
        system.read_before(OLD)
        system.ingest(NEW)
        data = data_of(server.prompts()[0])
        assert "my secret word 39 is" in data
        assert "my secret word 0 is" not in data
        assert system.cut == {"old dialogues cut": 1}


def test_a_long_new_dialogue_is_read_in_parts_of_which_each_updates_the_list() -> None:
    talk = [Turn("user", f"my colour is blue{n} " + "and so on " * 20) for n in range(6)]
    with scripted_server(perfect) as server:
        system = model(server, ITEMS[:1], chunk=160)
        system.ingest([*talk, *NEW[:1]])
        assert len(server.calls) > 2
        assert texts(system)[0] == "my bicycle is red now"
        assert len(texts(system)) == 2
        assert system.cut == {"dialogues read in parts": 1}


def test_memories_over_the_context_are_a_failure_that_changes_nothing(
    server: ScriptedServer,
) -> None:
    many = [MemoryItem(f"my thing {n} is " + "long " * 40, id=f"m{n}") for n in range(1, 90)]
    system = model(server, many, context=8000)
    with pytest.raises(SystemFailure, match="context too long"):
        system.ingest(NEW)
    assert system.memories() == many


@pytest.mark.parametrize("task", ["task1", "task2", "task4"])
def test_each_task_runs_it_on_the_sample(server: ScriptedServer, tmp_path: Path, task: str) -> None:
    out = tmp_path / "out"
    server.calls.clear()
    run(
        import_module(f"{task}.run").app,
        *("--system", "llm", "--chat-model", "openai:scripted", "--limit", "2"),
        *("--base-url", server.url, "--replies", "none", "--out", out),
        code=0,
    )
    summary = read_json(out / "summary.json")
    assert summary["rows"]["done"] == summary["rows"]["attempted"] > 0
    prompts = [call.prompt for call in server.calls]
    if task == "task2":
        assert all(row["calls"] == 1 for row in rows_of(out))
        assert all("Old dialogue:" in prompt for prompt in prompts)
    if task == "task4":
        assert all('"used_memory_fact"' in prompt for prompt in prompts)
