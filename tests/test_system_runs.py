"""Runs of the external systems that are installed, against a scripted model and one that is real.

They are looked for where `python -m memory_systems.install` puts them. `make systems` installs all.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory_systems.external.catalogue import EXTERNAL
from memory_systems.external.environments import installed
from memory_systems.external.pool import WorkerPool
from memory_systems.external.worker_process import WorkerProcess
from memory_systems.store import MemoryStore
from task4.run import app as task4
from tests import kit
from tests.kit import one_line_error, rows_of, write_lines
from tests.scripted_server import Call, ScriptedServer, kill_when, scripted_server
from tests.system_replies import DIALOGUES, answer
from tests.test_chat_local import needs_model
from tests.test_external_runs import kept, model, run
from tests.test_task1_run import release

pytestmark = [pytest.mark.slow, pytest.mark.systems]
SAID = [[text for role, text in dialogue if role == "user"] for dialogue in DIALOGUES]
TEXTS = [SAID[0], SAID[0] + SAID[1], [*SAID[0], *SAID[1], *SAID[2]]]


@pytest.fixture(params=EXTERNAL)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    if installed(EXTERNAL[found]) is None:
        pytest.skip(f"{found} is not installed: python -m memory_systems.install {found}")
    return found


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server(answer) as running:
        yield running


def own(
    name: str, folder: Path, out: str, server: ScriptedServer, texts: list[list[str]] = TEXTS
) -> tuple[object, ...]:
    """A run with a reply cache of its own."""
    data = release(folder / "data", texts)
    asked = model(server, folder / f"{out}.sqlite")
    return ("--system", name, "--retriever", "own", "--data", data, "--out", folder / out, *asked)


def test_rows_in_flight_and_kills_change_nothing(
    name: str, server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second run all workers are killed in the middle of a dialogue, once."""
    run(*own(name, tmp_path, "unbroken", server), "--in-flight", 1, code=0)
    unbroken = rows_of(tmp_path / "unbroken")
    assert [row["error"] for row in unbroken] == [None] * len(TEXTS)
    found = [item["value"] for row in unbroken for item in row["result"]["memory_items"]]
    assert any("Pepper" in text for text in found)

    workers: list[WorkerProcess] = []
    start = WorkerPool._start

    def started(pool: WorkerPool) -> WorkerProcess:
        workers.append(start(pool))
        return workers[-1]

    def kills(call: Call) -> str:
        while workers:
            workers.pop()._process.send_signal(signal.SIGKILL)
        return "perfect"

    monkeypatch.setattr(WorkerPool, "_start", started)
    server.choose = kills
    words = own(name, tmp_path, "killed", server)
    run(*words, "--in-flight", 2)
    failed = [row["error"] for row in rows_of(tmp_path / "killed") if row["error"]]
    assert failed
    assert all(error.startswith("the worker was ended by SIGKILL") for error in failed)
    server.choose = lambda call: "perfect"
    run(*words, "--in-flight", 3, "--resume", "--retry-failed", code=0)
    assert kept(tmp_path / "killed")[:3] == kept(tmp_path / "unbroken")[:3]


def test_a_run_that_is_killed_in_a_dialogue_and_resumed(
    name: str, server: ScriptedServer, tmp_path: Path
) -> None:
    """The process of the run ends by SIGKILL when a system in the middle of it asks the model."""
    run(*own(name, tmp_path, "unbroken", server), "--in-flight", 1, code=0)
    calls = len(server.calls)
    assert calls >= len(TEXTS)
    words = own(name, tmp_path, "killed", server)
    moment = 2 * calls // 3
    kill_when(server, lambda _: len(server.calls) >= moment, "task1.run", *words, "--in-flight", 1)
    assert len(rows_of(tmp_path / "killed")) < len(TEXTS)
    assert list(tmp_path.glob("killed/*.files/**/live"))
    run(*words, "--resume", code=0)
    assert kept(tmp_path / "killed") == kept(tmp_path / "unbroken")
    assert not list(tmp_path.glob("killed/*.files"))


def test_with_every_call_failing_nothing_is_stored(
    name: str, server: ScriptedServer, tmp_path: Path
) -> None:
    """One dialogue: a run stops by itself at its twentieth failure."""
    server.choose = lambda call: "status 400"
    done = run(*own(name, tmp_path, "failing", server, TEXTS[:1]))
    assert "not one of 1 rows could be done" in one_line_error(done, after_notes=True)
    [row] = rows_of(tmp_path / "failing")
    assert row["error"].startswith("bad request")
    store = MemoryStore(tmp_path / "failing" / "memory.sqlite")
    assert [memory for user in store.users() for memory in store.memories(user)] == []


@needs_model
def test_a_row_with_a_small_model_on_this_machine(tmp_path: Path) -> None:
    """Its grammar keeps to A-Mem's schemas, so a note is stored, found and shown for the answer."""
    if installed(EXTERNAL["a-mem"]) is None:
        pytest.skip("a-mem is not installed: python -m memory_systems.install a-mem")
    queries = [{"query_id": "q", "query": "What is the name of my dog?"}]
    turns = [{"role": "user", "text": "my dog is called Pepper"}]
    asked = {"queries": queries, "audit_context": {"conversation": turns}}
    row = {"benchmark_id": "r", "session_id": "s", "input": asked}
    write_lines(tmp_path / "data" / "dev" / "task4_ability1" / "model_input.jsonl", [row])
    words = ("--system", "a-mem", "--retriever", "own", "--chat-model", "local:smollm2")
    files = ("--data", tmp_path / "data", "--replies", tmp_path / "replies.sqlite")
    kit.run(task4, *words, *files, "--temperature", 0, "--out", tmp_path / "run", code=0)
    [done] = rows_of(tmp_path / "run")
    assert (done["error"], done["calls"]) == (None, 2)
    assert [item["value"] for item in done["result"]["memory_items"]] == [
        "user: my dog is called Pepper"
    ]
    [response] = done["result"]["responses"]
    assert [position for position, _ in response["hits"]] == [0]
    assert response["answer"]
