"""The external systems that are installed, for real, against a scripted model.

They are looked for where `python -m memory_systems.install` puts them. `make systems` installs all.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memory_systems.external.catalogue import EXTERNAL, ExternalSpec
from memory_systems.external.environments import installed
from memory_systems.external.protocol import EmptyReply, ListReply, LoadReply, SearchReply
from memory_systems.external.worker_process import WorkerProcess
from tests.scripted_server import JSON, ScriptedServer, scripted_server
from tests.system_replies import DIALOGUES, DOG, GREEN, NO_MORE, RED, SOLD, answer, embed

pytestmark = [pytest.mark.slow, pytest.mark.systems]

# A Python that thinks it is more than a year later.
LATER = """#!{python}
import copyreg, datetime, runpy, sys, time

first, now = time.time, datetime.datetime

class OfAnyTime(type):
    def __instancecheck__(cls, one):
        return isinstance(one, now)

class LaterDatetime(now, metaclass=OfAnyTime):
    @classmethod
    def now(cls, tz=None):
        return now.now(tz) + datetime.timedelta(days=400)

    @classmethod
    def utcnow(cls):
        return now.utcnow() + datetime.timedelta(days=400)

time.time = lambda: first() + 400 * 86_400
datetime.datetime = LaterDatetime
LaterDatetime.__module__, LaterDatetime.__qualname__ = "datetime", "datetime"
copyreg.pickle(now, lambda one: (LaterDatetime, one.__reduce_ex__(2)[1]))
[serve] = [word for word in sys.argv if word.endswith("serve.py")]
sys.argv = sys.argv[sys.argv.index(serve):]
sys.path.pop(0)
runpy.run_path(serve, run_name="__main__")
"""
CHANGED = ([DOG, GREEN], [DOG, RED], [DOG])
ADDED = ([DOG, GREEN], [DOG, GREEN, RED], [DOG, GREEN, RED, SOLD])
TURNS = [[f"{role}: {text}" for role, text in dialogue] for dialogue in DIALOGUES]
NOTED = (TURNS[0], TURNS[0] + TURNS[1], TURNS[0] + TURNS[1] + TURNS[2])
LISTED = {
    "a-mem": NOTED,
    "a-mem-paper": NOTED,
    "mem0": CHANGED,
    "mem0g": CHANGED,
    "mem0-2": (*ADDED[:2], ADDED[1]),
    "memoryos": ADDED,
    "memos": ADDED,
    "memos-tree": ADDED,
    "evermemos": ADDED,
    "lightmem": (*ADDED[:2], [DOG, GREEN, NO_MORE]),
    "langmem": CHANGED,
    "graphiti": (*CHANGED[:2], [DOG, SOLD]),
}
"""What a system remembers after each of the dialogues."""
ADDS_ONLY = {name for name, after in LISTED.items() if set(after[0]) < set(after[1])}
CALLS = {
    **{"mem0": 2, "mem0g": 5, "mem0-2": 1, "a-mem": 7, "memoryos": 10, "memos": 1},
    **{"memos-tree": 1, "a-mem-paper": 9},
    **{"lightmem": 1, "evermemos": 4, "langmem": 1, "graphiti": 4},
}
"""Calls of the model for the first dialogue."""
SEARCH_CALLS = {"mem0g": 1, "memoryos": 1}


@pytest.fixture(params=EXTERNAL.values(), ids=list(EXTERNAL))
def spec(request: pytest.FixtureRequest) -> ExternalSpec:
    found: ExternalSpec = request.param
    if installed(found) is None:
        pytest.skip(f"{found.name} is not installed: python -m memory_systems.install {found.name}")
    return found


@contextmanager
def started(
    spec: ExternalSpec, folder: Path, python: Path | None = None
) -> Iterator[tuple[WorkerProcess, ScriptedServer]]:
    """Start the worker of a system and the model that it asks."""
    found = installed(spec)
    assert found is not None
    (folder / "home").mkdir(exist_ok=True)
    with scripted_server(answer, embed=embed) as server:
        worker = WorkerProcess(python or found.python, spec.worker_file, folder / "home")
        try:
            assert worker.hello.version == found.version
            yield worker, server
        finally:
            worker.kill()


def open_store(
    worker: WorkerProcess, server: ScriptedServer, spec: ExternalSpec, folder: Path
) -> None:
    folder.mkdir(exist_ok=True)
    access = {"user": "ann", "base_url": server.url, "api_key": "key"}
    settings = dict(spec.settings)
    worker.ask("open", EmptyReply, folder=str(folder), settings=settings, **access)


def ingest(worker: WorkerProcess, number: int) -> None:
    turns = [{"role": role, "text": text} for role, text in DIALOGUES[number]]
    worker.ask("ingest", EmptyReply, turns=turns, time=f"2025-01-0{number + 1}T00:00:00+00:00")


def listed(worker: WorkerProcess) -> list[str]:
    return [memory.text for memory in worker.ask("list", ListReply).memories]


def chat_calls(server: ScriptedServer) -> list[JSON]:
    return [call.body for call in server.calls if "messages" in call.body]


def test_every_operation(spec: ExternalSpec, tmp_path: Path) -> None:
    store, other = tmp_path / "store", tmp_path / "other"
    with started(spec, tmp_path) as (worker, server):
        open_store(worker, server, spec, store)
        assert listed(worker) == []
        assert worker.ask("search", SearchReply, query="a dog", k=3).hits == []
        for number, expected in enumerate(LISTED[spec.name]):
            before = len(chat_calls(server))
            ingest(worker, number)
            assert sorted(listed(worker)) == sorted(expected)
            if number == 0:
                assert len(chat_calls(server)) - before == CALLS[spec.name]
        whole = worker.ask("list", ListReply)
        before = len(chat_calls(server))
        best = worker.ask("search", SearchReply, query="a dog called Pepper", k=1).hits[0]
        assert (best.id, best.text) in [(one.id, one.text) for one in whole.memories]
        assert "Pepper" in best.text
        assert len(chat_calls(server)) - before == SEARCH_CALLS.get(spec.name, 0)
        assert "Error" not in worker.stderr  # of those that a system only prints
        worker.ask("close", EmptyReply)

        before = len(chat_calls(server))
        open_store(worker, server, spec, other)
        assert listed(worker) == []
        given = ["Plays the cello", "喜欢乌龙茶 🐶\nand \u2028 more"]
        ids = worker.ask("load", LoadReply, items=[{"text": text} for text in given]).ids
        found = worker.ask("list", ListReply).memories
        assert [(one.id, one.text) for one in found] == list(zip(ids, given, strict=True))
        hits = worker.ask("search", SearchReply, query="Plays the cello", k=1).hits
        assert [hit.text for hit in hits] == ["Plays the cello"]
        assert len(chat_calls(server)) == before or spec.settings
        worker.ask("reset", EmptyReply)
        assert listed(worker) == []
        worker.ask("close", EmptyReply)
        assert worker.refused == []

    with started(spec, tmp_path) as (worker, server):
        open_store(worker, server, spec, store)
        assert worker.ask("list", ListReply) == whole
        ingest(worker, 0)
        assert any("Pepper" in text for text in listed(worker))


def test_loaded_memories_are_updated(spec: ExternalSpec, tmp_path: Path) -> None:
    with started(spec, tmp_path) as (worker, server):
        open_store(worker, server, spec, tmp_path / "store")
        worker.ask("load", LoadReply, items=[{"text": GREEN}, {"text": DOG}])
        ingest(worker, 1)
        if spec.name in ADDS_ONLY:
            assert {GREEN, DOG} < set(listed(worker))
        else:
            assert set(listed(worker)) == {RED, DOG}


def test_runs_on_different_days_ask_the_same(spec: ExternalSpec, tmp_path: Path) -> None:
    found = installed(spec)
    assert found is not None
    later = tmp_path / "python"
    later.write_text(LATER.format(python=found.python))
    later.chmod(0o755)
    asked = []
    for name, python in (("today", None), ("later", later)):
        folder = tmp_path / name
        folder.mkdir()
        with started(spec, folder, python) as (worker, server):
            open_store(worker, server, spec, folder / "store")
            worker.ask("load", LoadReply, items=[{"text": "Plays the cello"}])
            for number in range(len(DIALOGUES)):
                ingest(worker, number)
                worker.ask("close", EmptyReply)
                open_store(worker, server, spec, folder / "store")
            worker.ask("search", SearchReply, query="a dog called Pepper", k=3)
            asked.append([json.dumps(call.body, sort_keys=True) for call in server.calls])
    assert asked[0] == asked[1]


@pytest.mark.parametrize("dies_alone", [True, False])
def test_no_database_outlives_its_worker(dies_alone: bool, tmp_path: Path) -> None:
    spec = EXTERNAL["memos-tree"]
    if installed(spec) is None:
        pytest.skip("memos-tree is not installed: python -m memory_systems.install memos-tree")

    def servers() -> list[str]:
        words = ("ps", "-A", "-ww", "-o", "args=")
        lines = subprocess.check_output(words, text=True, errors="replace").splitlines()
        return [line for line in lines if f"postgres -D {tmp_path}" in line]

    with started(spec, tmp_path) as (worker, server):
        open_store(worker, server, spec, tmp_path / "store")
        assert len(servers()) == 1
        if dies_alone:
            worker._process.kill()
            worker._process.wait()
        else:
            worker.kill()
        while servers():  # else the test runs into its time limit
            time.sleep(0.01)
