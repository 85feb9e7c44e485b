"""Task 1 as a run: every system on real dialogues, killed and resumed, what it says and refuses."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory_scoring.predictions import read_memory_lists
from memory_systems.base import Action, Operation, SystemFailure, item_json, operations_json
from memory_systems.external.catalogue import EXTERNAL
from memory_systems.facts import UNMAPPED, Label
from memory_systems.registry import MEMORY_SYSTEMS
from memory_systems.run import writable
from memory_systems.store import MemoryStore, memories_after
from memory_systems.turns import Turns
from recallbed.chat_models.cache import ReplyCache
from recallbed.corpus.inputs import read_inputs
from recallbed.corpus.records import Evidence, MemoryItem, Turn
from recallbed.corpus.tracks import track
from task1.extractive import QUERIES
from task1.run import app
from tests import kit
from tests.kit import (
    ROOT,
    assert_equal_runs,
    one_line_error,
    read_json,
    read_lines,
    rows_of,
    write_lines,
)
from tests.memory_models import by_hash
from tests.scripted_server import ScriptedServer, kill_when, scripted_server

MODEL = ("--chat-model", "openai:scripted")
KEPT = ("rows.jsonl", "predictions.jsonl", "summary.json", "manifest.json")
SYSTEMS = sorted({*MEMORY_SYSTEMS.names(), "extractive"} - EXTERNAL.keys())


run = partial(kit.run, app)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(by_hash) as script:
        yield script


def chat(server: ScriptedServer, replies: object) -> tuple[object, ...]:
    return (*MODEL, "--base-url", server.url, "--replies", replies)


def options(system: str, data: Path, out: Path) -> tuple[object, ...]:
    return ("--system", system, "--data", data, "--out", out)


def predictions_of(folder: Path) -> list[Any]:
    return read_lines(folder / "predictions.jsonl")


def summary_of(folder: Path) -> Any:
    return read_json(folder / "summary.json")


def release(folder: Path, dialogues: Sequence[Sequence[str]]) -> Path:
    """A release whose dialogues hold these user turns."""
    rows = [
        {
            "benchmark_id": f"s{i}__{i}",
            "session_id": f"s{i}",
            "input": {"sessions": [{"turns": [{"role": "user", "text": t} for t in turns]}]},
        }
        for i, turns in enumerate(dialogues)
    ]
    write_lines(folder / "dev" / "task1" / "model_input.jsonl", rows)
    return folder


def items_of(value: Sequence[Any]) -> list[MemoryItem]:
    return [item for item in map(read_back, value) if item is not None]


def read_back(value: Any) -> MemoryItem | None:
    """The item that `item_json` wrote."""
    if value is None:
        return None
    told = value["evidence"]
    return MemoryItem(
        value["value"],
        value["memory_id"],
        value["label"],
        value["type"],
        value["confidence"],
        value["time_scope"],
        value["preference_attitude"],
        value["emotion"],
        told and Evidence(told["session_id"], tuple(told["utterance_index"]), told["text"]),
    )


def operations_of(value: Sequence[Any]) -> list[Operation]:
    return [
        Operation(Action(one["action"]), read_back(one["before"]), read_back(one["after"]))
        for one in value
    ]


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_reads_real_dialogues(
    system: str, alpsbench: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    """The operations lead to the predictions, and both are what the store holds."""
    out = tmp_path / "run"
    words = options(system, alpsbench, out)
    asking = chat(server, tmp_path / "replies.sqlite")
    printed = kit.run_json(app, *words, "--limit", 10, *asking)
    rows, predicted = rows_of(out), predictions_of(out)
    asked = list(read_inputs(alpsbench, "dev", track("task1"), 10).rows)
    assert [row["item"] for row in rows] == [row["benchmark_id"] for row in predicted] == asked
    assert not any(row["error"] for row in rows)
    store = MemoryStore(out / "memory.sqlite")
    for row, prediction in zip(rows, predicted, strict=True):
        found = row["result"]
        assert prediction["memory_items"] == found["memory_items"]
        items = items_of(found["memory_items"])
        assert store.memories(row["item"]) == items
        done = operations_of(found["operations"])
        assert memories_after(done) == items
        if system != "none":  # which has no store
            assert [entry.operation for entry in store.history(row["item"])] == done
    summary = summary_of(out)
    assert summary["rows"] == {"attempted": 10, "done": 10, "failed": {}, "reasons": {}}
    assert summary["memories"] == sum(len(row["memory_items"]) for row in predicted)
    assert printed == summary
    read = read_memory_lists(out / "predictions.jsonl")
    assert len(read.predictions) == 10
    assert not any(row.fault for row in read.predictions)
    assert read.malformed.count == 0
    assert all(row.value and row.value.left_out == 0 for row in read.predictions)
    assert all(item.text for row in read.predictions if row.value for item in row.value.items)
    assert bool(server.calls) == bool(summary["calls"]) == (system in ("llm", "mem0-like"))
    if system == "mem0-like":
        # Of a memory that is new and then reworded, or taken back, no more is stored than that.
        assert {a for a, n in summary["operations"].items() if n} == {"ADD", "NOOP"}
        assert 0 < summary["unknown_labels"] < summary["calls"]
        assert len(server.calls) <= summary["calls"]  # equal requests are sent once
    if system in ("turns", "extractive", "full-dialogue"):
        assert summary["operations"]["ADD"] == summary["memories"] > 10


def test_without_a_model_the_sample_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("--system", "turns", "--retriever", "bm25", code=0)
    assert "sample, not AlpsBench" in result.stdout
    assert "no model: " in result.stdout
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("task1-turns-")
    summary = summary_of(folder)
    assert (summary["chat_models"], summary["calls"], summary["cost"]) == ([], 0, 0)
    assert summary["predictions"] == summary["data"]["rows"] > 100
    before = {name: (folder / name).read_bytes() for name in KEPT}
    run("--system", "turns", code=0)  # the same run, resumed without asking
    assert {name: (folder / name).read_bytes() for name in KEPT} == before


def test_every_label_but_unmapped_is_asked() -> None:
    assert {*QUERIES, UNMAPPED} == {*Label.__args__}


def test_the_extractive_baseline_quotes_the_turns_that_speak_of_the_user(tmp_path: Path) -> None:
    pets = "My old cat chases the dog, and both are my pets"
    turns = ["Convert 12 inches to centimetres", "Sort these numbers: 4 1 3", pets]
    dialogues = [[*turns, "Thanks", "Thanks"], [], ["  "], ["Only this, about my job"]]
    out = tmp_path / "run"
    words = options("extractive", release(tmp_path / "release", dialogues), out)
    run(*words, "--system-set", "top=1", code=0)
    found = [row["memory_items"] for row in predictions_of(out)]
    assert [[item["value"] for item in items] for items in found] == [
        [pets],
        [],
        [],
        ["Only this, about my job"],
    ]
    [chosen] = found[0]
    assert chosen["label"] == "Possessions/Pet"
    assert (chosen["memory_id"], chosen["type"]) == ("m1", "direct")
    assert chosen["evidence"]["utterance_index"] == [2]
    run(*words, "--overwrite", "--system-set", "top=9", code=0)
    found = [row["memory_items"] for row in predictions_of(out)]
    # Once each, in the order of the dialogue.
    assert [item["evidence"]["utterance_index"] for item in found[0]] == [[0], [1], [2], [3]]


def test_equal_scores_go_to_the_earlier_turn(tmp_path: Path) -> None:
    data = release(tmp_path / "release", [["b", "a", "c"]])
    out = tmp_path / "run"
    run(*options("extractive", data, out), "--retriever", "constant", code=0)
    [row] = predictions_of(out)
    assert [item["value"] for item in row["memory_items"]] == ["b", "a"]
    assert {item["label"] for item in row["memory_items"]} == {next(iter(QUERIES))}


# --- stopped and taken up again -----------------------------------------------------------------


@pytest.mark.parametrize("moment", [1, 30])
def test_killed_by_the_server_and_resumed(
    moment: int, alpsbench: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    """No call whose reply was stored is repeated, no memory is lost, all bytes are equal."""
    whole, broken, replies = tmp_path / "whole", tmp_path / "broken", tmp_path / "broken.sqlite"
    more = ("--limit", 20, "--in-flight", 4)
    run(*options("mem0-like", alpsbench, whole), *more, *chat(server, f"{whole}.sqlite"), code=0)
    every = len(server.calls)
    assert every > moment + 4
    again = (*options("mem0-like", alpsbench, broken), *more, *chat(server, replies))
    kill_when(server, lambda call: len(server.calls) >= moment, "task1.run", *again)
    done = rows_of(broken) if (broken / "rows.jsonl").exists() else []
    assert len(done) < 20
    assert not (broken / "predictions.jsonl").exists()
    stored = len(ReplyCache(replies)) if replies.exists() else 0
    if moment > 8:  # the four under way may be lost, and no others
        assert stored >= moment - 4
    server.calls.clear()
    run(*again, "--resume", code=0)
    assert len(server.calls) == every - stored
    assert_equal_runs(broken, whole, KEPT)
    store = MemoryStore(broken / "memory.sqlite")
    for row in predictions_of(broken):
        assert store.memories(row["benchmark_id"]) == items_of(row["memory_items"])


class DiesOnce(Turns):
    """Stores the third dialogue, then kills its process; a file by_hash that it did."""

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        done = super().ingest(dialogue)
        mark = Path(os.environ["DIES_ONCE"])
        if self.user == "s2__2" and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return done


def test_a_row_not_kept_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = release(tmp_path / "release", [[f"I own {i} cups", "and a cup"] for i in range(5)])
    monkeypatch.setenv("DIES_ONCE", str(tmp_path / "mark"))
    out = tmp_path / "run"
    words = (*options("tests.test_task1_run:DiesOnce", data, out), "--in-flight", 1)
    kit.python("-m", "task1.run", *words, cwd=ROOT, code=-signal.SIGKILL)
    # A row is written by another thread than the one that killed the process.
    kept_rows = [row["item"] for row in rows_of(out)]
    assert kept_rows == ["s0__0", "s1__1"][: len(kept_rows)]
    before = MemoryStore(out / "memory.sqlite")
    assert len(before.memories("s2__2")) == 2
    before.close()
    kit.python("-m", "task1.run", *words, "--resume", cwd=ROOT)
    assert [len(row["memory_items"]) for row in predictions_of(out)] == [2] * 5
    # Not those of before under new ids, and no trace of them in the history.
    again = rows_of(out)[2]["result"]
    assert [item["memory_id"] for item in again["memory_items"]] == ["m1", "m2"]
    history = MemoryStore(out / "memory.sqlite").history("s2__2")
    assert [entry.operation.action for entry in history] == [Action.ADD, Action.ADD]


def test_in_flight_changes_no_row(alpsbench: Path, server: ScriptedServer, tmp_path: Path) -> None:
    outs = [tmp_path / "one", tmp_path / "many"]
    for out, count in zip(outs, (1, 8), strict=True):
        more = ("--limit", 20, "--in-flight", count, *chat(server, "none"))
        run(*options("mem0-like", alpsbench, out), *more, code=0)
    assert_equal_runs(*outs, KEPT)


# --- failures, budgets, plans -------------------------------------------------------------------


def few(tmp_path: Path) -> Path:
    return release(tmp_path / "release", [[f"I keep {i} bees", f"and {i} hens"] for i in range(6)])


def test_failures_are_counted_by_cause_and_retried(server: ScriptedServer, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = (*options("mem0-like", few(tmp_path), out), *chat(server, "none"))
    server.choose = lambda call: "refusal" if "I keep 3 bees" in call.prompt else "perfect"
    result = run(*words, "--json", code=0)
    summary = json.loads(result.stdout)
    failed = {"failed": {"refused": 1}, "reasons": {"refused": "I would rather not."}}
    assert summary["rows"] == {"attempted": 6, "done": 5, **failed}
    assert summary["predictions"] == len(predictions_of(out)) == 5
    assert "failed: refused (reason: I would rather not.): 1" in result.stderr
    assert rows_of(out)[3]["result"] is None
    assert MemoryStore(out / "memory.sqlite").memories("s3__3") == []
    server.choose = lambda call: "perfect"
    server.calls.clear()
    run(*words, "--retry-failed", code=0)
    assert all("I keep 3 bees" in prompt or "3 hens" in prompt for prompt in server.prompts())
    assert summary_of(out)["rows"] == {"attempted": 6, "done": 6, "failed": {}, "reasons": {}}
    assert [row["benchmark_id"] for row in predictions_of(out)] == [f"s{i}__{i}" for i in range(6)]


def test_a_run_of_failures_alone_is_an_error(server: ScriptedServer, tmp_path: Path) -> None:
    server.choose = lambda call: "no json"
    words = (*options("mem0-like", few(tmp_path), tmp_path / "run"), *chat(server, "none"))
    said = "not one of 6 rows could be done (no JSON in the reply: 6)"
    one_line_error(run(*words), said, after_notes=True)
    assert predictions_of(tmp_path / "run") == []


class Crashes(Turns):
    """A user's own class with a fault in it."""

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        if "3 bees" in dialogue[0].text:
            raise KeyError("a fault\nof its own")
        if "4 bees" in dialogue[0].text:
            raise SystemFailure("too many bees")
        return super().ingest([Turn("user", "half a pair: \ud83d"), *dialogue])


def test_a_fault_in_a_class_of_ones_own_fails_its_row_alone(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(*options("tests.test_task1_run:Crashes", few(tmp_path), out), code=0)
    failed = summary_of(out)["rows"]["failed"]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = 1 + lines.index('            raise KeyError("a fault\\nof its own")')
    place = f"(test_task1_run.py:{line})"
    assert failed == {f"KeyError: 'a fault\\nof its own' {place}": 1, "too many bees": 1}
    [first, *_] = predictions_of(out)
    assert first["memory_items"][0]["value"] == "half a pair: \ufffd"  # or it couldn't be written


def test_a_run_that_the_budget_stops_can_be_resumed(server: ScriptedServer, tmp_path: Path) -> None:
    out = tmp_path / "run"
    more = ("--in-flight", 1, "--system-set", "reply_tokens=500")
    words = (*options("mem0-like", few(tmp_path), out), *chat(server, tmp_path / "replies"), *more)
    [plan] = kit.run_json(app, *words, "--dry-run").values()
    enough = (plan["tokens_in"] + plan["tokens_out"]) // 6 + 150
    stopped = run(*words, "--max-tokens-total", enough)
    one_line_error(stopped, "budget reached", after_notes=True)
    assert 0 < len(server.calls) < 12
    assert 0 < len(rows_of(out)) < 6
    run(*words, "--resume", code=0)
    # Six extractions; of two facts a dialogue the second alone has to be decided on.
    assert summary_of(out)["calls"] == len(server.calls) == 12


def test_a_dry_run_reports_calls_tokens_and_cost(server: ScriptedServer, tmp_path: Path) -> None:
    out, prices = tmp_path / "run", tmp_path / "prices.json"
    prices.write_text('{"scripted": {"in": 1.0, "out": 2.0}}')
    more = (*chat(server, tmp_path / "replies"), "--prices", prices)
    words = (*options("mem0-like", few(tmp_path), out), *more)
    [plan] = kit.run_json(app, *words, "--dry-run").values()
    assert (plan["calls"], plan["stored"], plan["at_least"]) == (6, 0, True)
    assert plan["cost"] == pytest.approx((plan["tokens_in"] + 2 * plan["tokens_out"]) / 1e6)
    assert not server.calls
    assert not out.exists()
    run(*words, code=0)
    found = summary_of(out)
    assert found["cost"] == pytest.approx((found["tokens_in"] + 2 * found["tokens_out"]) / 1e6)
    again = run(*words, "--dry-run").stdout
    assert "0 calls, 12 stored, 0 tokens in, at most 0 out, cost at most 0.0000" in again


def test_the_fingerprint_says_what_differs(tmp_path: Path) -> None:
    out, data = tmp_path / "run", few(tmp_path)
    words = options("extractive", data, out)
    run(*words, code=0)
    for more, field in (
        (("--system-set", "top=3"), "system.settings.top"),
        (("--retriever", "mine=bm25"), "retriever.label"),
        (("--set", "bm25.k1=1.2"), "k1"),
        (("--seed", 1), "seed"),
        (("--limit", 2), "data.rows"),
    ):
        one_line_error(run(*words, *more, "--resume"), field, after_notes=True)
    inputs = data / "dev" / "task1" / "model_input.jsonl"
    inputs.write_text(inputs.read_text().replace("bees", "fish"))
    assert "data.sha256" in run(*words, "--resume").stderr
    assert "already holds" not in run(*words, "--overwrite").stderr


def test_overwriting_leaves_no_memory_of_the_run_before(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = options("turns", few(tmp_path), out)
    run(*words, code=0)
    run(*words, "--limit", 2, "--overwrite", code=0)
    assert MemoryStore(out / "memory.sqlite").users() == ["s0__0", "s1__1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "missing option '--system'"),
        (("--system", "nothing"), "extractive, "),
        (("--system", "mem0-like"), "--chat-model"),
        (("--system", "mem0-like", "--chat-model", "sesame"), "no chat model `sesame`"),
        (("--system", "no.such:Thing"), "cannot be imported"),
        (("--system", "tests.kit:ROOT"), "not a subclass"),
        (("--system", "turns", "--system-set", "k"), "KEY=VALUE"),
        (("--system", "turns", "--system-set", "k=2", "--system-set", "k=3"), "set twice"),
        (("--system", "turns", "--system-set", "wings=2"), "no setting `wings`"),
        (("--system", "turns", "--system-set", "k=0"), "at least 1"),
        (("--system", "turns", "--retriever", "bm26"), "no retriever `bm26`"),
        (("--system", "turns", "--retriever", "bm25", "--retriever", "overlap"), "--label"),
        (("--system", "turns", "--label", "other"), "--label other"),
        (("--system", "turns", "--split", "test"), "no split `test`"),
        (("--system", "turns", "--data", "nowhere"), "no such folder"),
        (("--system", "turns", "--resume", "--overwrite"), "excludes"),
        (("--system", "turns", "--dry-run"), "nothing here asks a chat model"),
        (("--system", "turns", *MODEL, "--prices", "none.json"), "none.json"),
    ],
)
def test_a_mistake_is_one_line(
    words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one_line_error(run(*words), said)
    assert not list(tmp_path.iterdir())


def test_data_that_cannot_be_read_is_named_by_its_line(tmp_path: Path) -> None:
    data = few(tmp_path)
    inputs = data / "dev" / "task1" / "model_input.jsonl"
    lines = inputs.read_text().splitlines()
    inputs.write_text("\n".join([*lines, lines[0]]) + "\n")
    result = run(*options("turns", data, tmp_path / "run"))
    message = "model_input.jsonl:7: benchmark_id `s0__0` appears twice"
    one_line_error(result, message, after_notes=True)
    result = run("--system", "turns", "--data", data.parent, "--split", "release")
    assert "no model_input.jsonl of task1" in result.stderr


def test_help_answers_without_heavy_libraries() -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from task1.run import app;"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0;"
        "print([m for m in ('torch', 'openai', 'nltk', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    assert kit.python("-c", script, cwd=ROOT).stdout.strip() == "[]"


def test_items_and_operations_as_json_can_be_read_back() -> None:
    told = Evidence("s", (0, 4), "as said")
    item = MemoryItem(
        "Keeps bees", "m1", "Possessions/Pet", "direct", 0.5, "now", "like", "joy", told
    )
    bare = MemoryItem("Keeps hens")
    done = [Operation(Action.UPDATE, item, bare), Operation(Action.ADD, after=bare)]
    assert items_of([item_json(item), item_json(bare)]) == [item, bare]
    assert operations_of(json.loads(json.dumps(operations_json(done)))) == done
    assert writable({"a\ud800": [float("nan"), ("\x00", 1, True, None)]}) == {
        "a\ufffd": [None, ["\ufffd", 1, True, None]]
    }
