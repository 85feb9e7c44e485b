"""Runs of external systems: killed and resumed, with faults, with any number of rows in flight."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory_systems.external.catalogue import EXTERNAL
from memory_systems.store import MemoryStore
from task1.run import app
from tests import kit
from tests.kit import ROOT, one_line_error, python, read_json, rows_of, run_json
from tests.scripted_server import ScriptedServer, scripted_server
from tests.test_task1_run import release

run = partial(kit.run, app)
command = partial(python, "-m", "task1.run", cwd=ROOT)
FAKE, FAULTY = "tests.external_system:Fake", "tests.external_system:FaultySystem"
DIALOGUES = [
    ["my dog is old", "my cat is young", "my dog is very old"],
    ["my bike is red", "forget my bike", "my tea is black"],
    ["well"],
    ["my house is cold", "my garden is green"],
    ["my train is late"],
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return release(tmp_path / "data", DIALOGUES)


def words(data: Path, out: Path, system: str, *more: object) -> tuple[object, ...]:
    return ("--system", system, "--retriever", "bm25", "--data", data, "--out", out, *more)


def kept(out: Path) -> list[Any]:
    names = ("rows.jsonl", "predictions.jsonl", "summary.json")
    files = [(out / name).read_bytes() for name in names]
    return [*files, read_json(out / "manifest.json")["fingerprint"]]


def results(out: Path) -> list[Any]:
    return [[item["value"] for item in row["result"]["memory_items"]] for row in rows_of(out)]


def test_a_run(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(*words(data, out, FAKE), code=0)
    assert results(out) == [
        ["my dog is very old", "my cat is young"],
        ["my tea is black"],
        [],
        ["my house is cold", "my garden is green"],
        ["my train is late"],
    ]
    operations = {"ADD": 6, "UPDATE": 0, "DELETE": 0, "NOOP": 1}
    assert read_json(out / "summary.json")["operations"] == operations
    assert not list(out.glob("*.files"))


@pytest.mark.parametrize("in_flight", [1, 3, 8])
@pytest.mark.parametrize("workers", [1, 8])
def test_rows_in_flight_change_nothing(in_flight: int, workers: int, tmp_path: Path) -> None:
    data = release(tmp_path / "data", [*DIALOGUES, ["my dog is old", "fault exit 1"]])
    first, second = tmp_path / "first", tmp_path / "second"
    run(*words(data, first, FAULTY, "--in-flight", 2), code=0)
    more = ("--in-flight", in_flight, "--system-set", f"workers={workers}")
    run(*words(data, second, FAULTY, *more), code=0)
    assert kept(first) == kept(second)


def test_a_run_that_is_killed_in_a_dialogue_and_resumed(tmp_path: Path) -> None:
    """The worker kills the run in the middle of the fourth dialogue, after writing its file."""
    marker = tmp_path / "killed"
    dialogues = [*DIALOGUES[:3], ["my dog is old", f"fault kill parent once {marker}"]]
    data = release(tmp_path / "data", [*dialogues, DIALOGUES[4]])
    out = tmp_path / "run"
    command(*words(data, out, FAULTY, "--in-flight", 1), code=-signal.SIGKILL)
    assert marker.exists()
    assert len(rows_of(out)) < 5
    unbroken = tmp_path / "unbroken"
    command(*words(data, out, FAULTY, "--resume"))
    command(*words(data, unbroken, FAULTY))
    assert kept(out) == kept(unbroken)
    assert not list(out.glob("*.files"))


def test_faults_are_counted_by_cause(tmp_path: Path) -> None:
    faults = ["exit 1", "raise error", "kill itself", "write garbage", "leak thread", "exit 1"]
    data = release(tmp_path / "data", [["my dog is old", f"fault {fault}"] for fault in faults])
    out = tmp_path / "run"
    shown = run(*words(data, out, FAULTY), code=0).output
    assert read_json(out / "summary.json")["rows"]["failed"] == {
        "the worker ended with code 1 during ingest": 2,
        "the system raised KeyError": 1,
        "the worker was ended by SIGKILL during ingest": 1,
        "the worker wrote something other than a reply": 1,
    }
    assert "the system raised KeyError (reason: 'no such note')" in " ".join(shown.split())
    [row] = [row for row in rows_of(out) if row["error"] is None]
    assert row["item"] == "s4__4"


def test_own_search_is_an_option(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    own = ("--system", FAKE, "--retriever", "own", "--data", data, "--out", out)
    run(*own, code=0)
    summary = read_json(out / "summary.json")
    assert summary["retriever"] == "own (own)"
    assert read_json(out / "manifest.json")["fingerprint"]["retriever"]["name"] == "own"
    for wrong, line in (
        (("--system", "turns"), "--retriever own: turns has no search of its own"),
        (("--system", FAKE, "--set", "own.k=1"), "--set own.k: the search of a memory system has"),
    ):
        done = run(*wrong, "--retriever", "own", "--data", data, "--out", tmp_path / "other")
        one_line_error(done, line)


def test_a_python_that_is_missing_ends_the_run(data: Path, tmp_path: Path) -> None:
    done = run(*words(data, tmp_path / "run", FAKE, "--system-set", "python=/nowhere/python"))
    one_line_error(done, "/nowhere/python: cannot be run (No such file or directory)")


ASKS = "tests.external_system:AsksModel"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(lambda call: "as you like") as running:
        yield running


def model(server: ScriptedServer, replies: Path) -> tuple[object, ...]:
    address = ("--base-url", server.url, "--replies", replies, "--retries", 0)
    return ("--chat-model", "openai:scripted", *address)


def test_calls_of_a_system_are_those_of_its_row(
    data: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    """From the cache too: the second run sends nothing and gives the same rows."""
    asked = model(server, tmp_path / "replies.sqlite")
    first, second = tmp_path / "first", tmp_path / "second"
    run(*words(data, first, ASKS, *asked), code=0)
    assert [row["calls"] for row in rows_of(first)] == [2] * 5
    sent = len(server.calls)
    run(*words(data, second, ASKS, *asked, "--in-flight", 3), code=0)
    assert len(server.calls) == sent
    assert kept(first) == kept(second)


def test_a_spent_budget_stops_a_run_that_is_resumed(server: ScriptedServer, tmp_path: Path) -> None:
    data = release(tmp_path / "data", [[f"my dog {i} is old"] for i in range(6)])
    out, unbroken = tmp_path / "run", tmp_path / "unbroken"
    asked = model(server, tmp_path / "replies.sqlite")
    budget = ("--max-tokens-total", 200, "--in-flight", 1)
    stopped = run(*words(data, out, ASKS, *asked, *budget))
    one_line_error(stopped, "--max-tokens-total", after_notes=True)
    assert 2 <= len(server.calls) < 12
    run(*words(data, out, ASKS, *asked, "--resume"), code=0)
    run(*words(data, unbroken, ASKS, *model(server, tmp_path / "others.sqlite")), code=0)
    assert kept(out)[:3] == kept(unbroken)[:3]


def test_calls_that_fail_leave_nothing(data: Path, server: ScriptedServer, tmp_path: Path) -> None:
    out = tmp_path / "run"
    server.choose = lambda call: "status 400"
    done = run(*words(data, out, ASKS, *model(server, tmp_path / "replies.sqlite")))
    one_line_error(done, "not one of 5 rows could be done", after_notes=True)
    assert {row["error"].partition(" (")[0] for row in rows_of(out)} == {"bad request"}
    store = MemoryStore(out / "memory.sqlite")
    assert [memory for user in store.users() for memory in store.memories(user)] == []


def test_a_dry_run_counts_the_calls_that_need_no_reply(
    data: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    asked = model(server, tmp_path / "replies.sqlite")
    [plan] = run_json(app, *words(data, tmp_path / "run", ASKS, *asked, "--dry-run")).values()
    assert (plan["calls"], plan["at_least"]) == (10, True)
    assert server.calls == []
    shown = run(*words(data, tmp_path / "run", ASKS, *asked, "--dry-run"), code=0).stdout
    assert "at least 10 calls, 0 stored, more after their replies; without those " in shown
    run(*words(data, tmp_path / "run", ASKS, *asked), code=0)
    [plan] = run_json(app, *words(data, tmp_path / "again", ASKS, *asked, "--dry-run")).values()
    assert (plan["calls"], plan["at_least"]) == (0, False)


@pytest.mark.parametrize("name", EXTERNAL)
def test_a_system_that_is_not_installed_is_one_line(
    name: str, data: Path, server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALLBED_SYSTEMS", str(tmp_path / "systems"))
    out, asked = tmp_path / "run", model(server, tmp_path / "replies.sqlite")
    said = f"{name} is not installed", f"python -m memory_systems.install {name}"
    one_line_error(run(*words(data, out, name, *asked)), *said)
    assert not out.exists()
