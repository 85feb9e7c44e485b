"""Gold cannot leak: what a system, a retriever and a prompt are given holds none of it.

In the released rows `stratum` names the gold's label, task 2's `metadata` the memory to be changed,
and task 4's `model_input` holds the gold. Here every such field holds a word of its own; a spy in
each place writes down what it sees. The references are no JSON at all: who opens them fails.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from memory_systems.testing import Spy
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.records import Memory, MemoryItem, Turn
from recallbed.corpus.tracks import TASK2
from retrievers.overlap import Overlap
from task1.run import app as extract
from task2.run import app as update
from task3.sweep import app as sweep
from task4.run import app as utilize
from tests import kit
from tests.kit import write_lines
from tests.memory_models import by_hash
from tests.reader import reader
from tests.scripted_server import scripted_server

SECRET = "SECRET"
GOLD_FILE = f"{SECRET}: whoever reads this as JSON fails\n"


def secret(name: str) -> str:
    return f"{SECRET}-{name}"


class Listening(Overlap):
    """A retriever that writes down what it is asked."""

    heard: list[Any] = []  # noqa: RUF012

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        self.heard.append((query, tuple(pool)))
        return super().score(query, pool)


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[Any]]:
    """What the spies of this test have heard."""
    Spy.seen.clear()
    Listening.heard.clear()
    yield Listening.heard
    Spy.seen.clear()


def head(task: str, **more: Any) -> dict[str, Any]:
    return {
        "benchmark_id": f"{task}_row",
        "task": task,
        "session_id": secret("session"),
        "canonical_id": secret("canonical"),
        "stratum": secret("stratum"),
        "gold": secret("gold"),
        **more,
    }


def turns(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "text": text, "metadata": secret("turn")} for text in texts]


def item(number: int, text: str) -> dict[str, Any]:
    return {
        "memory_id": secret(f"id{number}"),
        "value": text,
        "label": "Preferences/Food",
        "type": "direct",
        "confidence": 0.5,
        "time_scope": "long_term",
        "emotion": None,
        "preference_attitude": "like",
        "evidence": None,
        "reasoning": secret("reasoning"),
        "label_suggestion": secret("suggestion"),
        "updated_at": secret("date"),
        "selected": secret("mark"),
    }


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """One row of each task, with secrets wherever the released rows have a field we don't read."""
    rows: dict[str, Any] = {
        "task1": head(
            "task1",
            input={
                "user_id": secret("user"),
                "line_index": secret("line"),
                "metadata": secret("metadata"),
                "sessions": [
                    {
                        "session_id": secret("inner"),
                        "stratum": secret("inner-stratum"),
                        "turns": turns("I like plain porridge", "and I keep plain bees"),
                    }
                ],
            },
        ),
        "task2": head(
            "task2",
            input={
                "record_id": secret("record"),
                "old_dialogue": turns(secret("old")),
                "new_dialogue": turns("No plain porridge any more", "I keep plain bees"),
                "memory": [item(1, "Likes plain porridge"), item(2, "Has plain bees")],
                "query": secret("query"),
                "metadata": {
                    "selected_memory_id": secret("id1"),
                    "controls": {"fake_memory": secret("controls")},
                },
            },
        ),
        "task4_ability1": head(
            "task4",
            ability="ability1",
            input={
                "query": secret("unasked"),
                "queries": [{"query_id": "q1", "query": "A plain breakfast?"}],
                "model_input": {
                    "query": secret("unasked"),
                    "selected_memory": item(1, secret("selected")),
                },
                "audit_context": {
                    "conversation": turns("I like plain porridge", "and I keep plain bees"),
                    "source_dataset_file": secret("source"),
                },
            },
        ),
    }
    for track, row in rows.items():
        folder = tmp_path / "release" / "dev" / track
        write_lines(folder / "model_input.jsonl", [row])
        (folder / "reference_output.jsonl").write_text(GOLD_FILE)
    return tmp_path / "release"


APPS = {"task1": extract, "task2": update, "task4": utilize}


def run(task: str, *words: Any) -> None:
    ability = ("--ability", 1) if task == "task4" else ()
    kit.run(APPS[task], *words, *ability, code=0)


@pytest.mark.parametrize("task", APPS)
def test_a_system_sees_no_gold(task: str, release: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(task, "--system", "memory_systems.testing:Spy", "--data", release, "--out", out)
    seen = dict(Spy.seen)
    assert "plain" in repr(seen["ingest"])  # it does see what there is to see
    assert SECRET not in repr(Spy.seen)
    assert seen["open"].endswith("_row")
    assert {type(turn) for turn in seen["ingest"]} == {Turn}
    if task == "task2":
        assert [(one.id, one.text) for one in seen["load"]] == [
            ("m1", "Likes plain porridge"),
            ("m2", "Has plain bees"),
        ]
    # Nor does the run keep any; the ids of the file come back in what is written for it alone.
    for name in ("rows.jsonl", "manifest.json", "summary.json"):
        kept = (out / name).read_text(encoding="utf-8")
        assert SECRET not in kept.replace(secret("id1"), "").replace(secret("id2"), ""), name


@pytest.mark.parametrize("task", APPS)
def test_a_retriever_sees_texts_and_labels(
    task: str, release: Path, tmp_path: Path, heard: list[Any]
) -> None:
    system = {"task1": "extractive", "task2": "replace"}.get(task, "memory_systems.testing:Spy")
    mine = ("--retriever", "tests.test_no_leak:Listening")
    run(task, "--system", system, *mine, "--data", release, "--out", tmp_path / "run")
    assert heard
    assert SECRET not in repr(heard)
    for query, pool in heard:
        assert isinstance(query, str)
        assert {type(memory) for memory in pool} == {Memory}
        assert "m1" not in repr(pool)


@pytest.mark.parametrize("task", APPS)
def test_a_prompt_holds_no_gold(task: str, release: Path, tmp_path: Path) -> None:
    with scripted_server(by_hash) as server:
        told = ("--chat-model", "openai:m", "--base-url", server.url, "--replies", "none")
        run(task, "--system", "mem0-like", *told, "--data", release, "--out", tmp_path / "run")
        assert any("plain porridge" in prompt for prompt in server.prompts())
        assert not [call for call in server.calls if SECRET in repr(call.body)]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Rows of a user's own file with secrets in every further field."""
    memories = ["plain bees", {"text": "plain porridge", "note": secret("note")}, "plain rain"]
    further = {
        "category": secret("category"),
        "question_type": [secret("type")],
        secret("name"): {"answer": secret("answer")},
        "golds": secret("golds"),
    }
    rows = [
        {"query": f"plain porridge {n}", "memories": memories, "gold": n % 3, **further}
        for n in range(3)
    ]
    return write_lines(tmp_path / "my.jsonl", rows)


def test_no_retriever_sees_further_fields_of_own_rows(
    own: Path, tmp_path: Path, heard: list[Any]
) -> None:
    words = ("--retriever", "tests.test_no_leak:Listening", "--data", own, "--k", 1)
    kit.run(sweep, *words, "--out", tmp_path / "run", "--keep-scores", code=0)
    assert "plain porridge" in repr(heard)
    assert SECRET not in repr(heard)
    for name in ("rows.jsonl", "scores.jsonl", "manifest.json", "summary.json", "curve.csv"):
        assert SECRET not in (tmp_path / "run" / name).read_text(encoding="utf-8"), name


def test_no_prompt_holds_further_fields_of_own_rows(own: Path, tmp_path: Path) -> None:
    with scripted_server(reader(lambda query, text: float("porridge" in text))) as server:
        kit.run(
            sweep,
            *("--retriever", "r=listwise", "--set", "r.first_stage=overlap"),
            *("--set", "r.model=openai:m", "--base-url", server.url, "--replies", "none"),
            *("--data", own, "--k", 1, "--out", tmp_path / "run"),
            code=0,
        )
        assert any("plain porridge" in prompt for prompt in server.prompts())
        assert not [call for call in server.calls if SECRET in repr(call.body)]


def test_of_real_rows_a_system_sees_memories_in_their_order_and_turns(
    alpsbench: Path, tmp_path: Path
) -> None:
    """Task 2's ids are our numbers: none says which memory is to be changed."""
    words = ("--data", alpsbench, "--limit", 60, "--out", tmp_path / "run", "--in-flight", 1)
    run("task2", "--system", "memory_systems.testing:Spy", *words)
    rows = list(read_inputs(alpsbench, "dev", TASK2, 60).rows.values())
    loads = [given for name, given in Spy.seen if name == "load"]
    dialogues = [given for name, given in Spy.seen if name == "ingest"]
    assert len(loads) == len(dialogues) == len(rows)
    for row, loaded, dialogue in zip(rows, loads, dialogues, strict=True):
        assert dialogue == row.new_dialogue
        assert [one.id for one in loaded] == [f"m{n}" for n in range(1, len(row.memories) + 1)]
        assert [one.text for one in loaded] == [one.text for one in row.memories]
        assert {type(one) for one in loaded} <= {MemoryItem}
