"""External systems with real processes: contract, faults, kills, own search."""

import os
import platform
import signal
import sys
import time
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memory_systems import Action, Operation, SystemContext, SystemFailure
from memory_systems.base import Hit
from memory_systems.external.system import CustomSystem, ExternalSystem
from memory_systems.external.testing import ExternalSystemContract, workers_of
from memory_systems.external.witness import GAVE_UP, Taken
from memory_systems.external.worker_process import Limits
from memory_systems.own_search import OwnSearch
from memory_systems.shared import Shared
from memory_systems.testing import DIALOGUE, ITEMS
from recallbed.chat_models import ChatModel, chat_model
from recallbed.chat_models.base import BudgetReached, Usage
from recallbed.corpus.records import MemoryItem, Turn
from recallbed.errors import UserError
from retrievers.base import Retriever
from retrievers.overlap import Overlap
from tests.external_system import AsksModel, Fake, FaultySystem, Scripted
from tests.scripted_server import ScriptedServer, scripted_server

USED = Usage(2, 30, 5)


class TestFake(ExternalSystemContract):
    def make(self, context: SystemContext) -> Fake:
        return Fake(context)


@contextmanager
def faulty(
    store: Path | None = None, retriever: Retriever | None = None, **settings: Any
) -> Iterator[FaultySystem]:
    system = FaultySystem(SystemContext(retriever or Overlap(), store=store), **settings)
    system.open("ann")
    try:
        yield system
    finally:
        system.close()


def said(*texts: str) -> list[Turn]:
    return [Turn("user", text) for text in texts]


def texts(system: ExternalSystem) -> list[str]:
    return [item.text for item in system.memories()]


def test_operations_are_differences() -> None:
    with faulty() as system:
        system.load([MemoryItem("my tea is oolong", id="given", label="Tea", confidence=0.5)])
        [added, changed] = system.ingest(said("my dog is old", "my tea is black"))[::-1]
        before = MemoryItem("my tea is oolong", "given", "Tea", confidence=0.5)
        assert changed == Operation(Action.UPDATE, before, replace(before, text="my tea is black"))
        assert added == Operation(Action.ADD, after=MemoryItem("my dog is old", "m1"))
        [deleted] = system.ingest(said("forget my tea"))
        assert deleted == Operation(Action.DELETE, replace(before, text="my tea is black"))
        assert system.ingest(said("well")) == [Operation(Action.NOOP)]
        assert system.ingest([Turn("assistant", "my cat is old"), Turn("user", " \n")]) == [
            Operation(Action.NOOP)
        ]
        assert system.ingest(said("", "  ")) == []
        assert texts(system) == ["my dog is old"]
        actions = [entry.operation.action for entry in system.history()]
        assert "".join(action[0] for action in actions) == "AUADNN"


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("exit 1", "the worker ended with code 1 during ingest"),
        ("kill itself", "the worker was ended by SIGKILL during ingest"),
        ("write garbage", "the worker wrote something other than a reply"),
        ("reply twice", "the worker wrote something other than a reply"),
        ("flood", "the worker flooded stderr"),
        ("long line", "the worker's reply is too long"),
        ("raise error", "the system raised KeyError (reason: 'no such note')"),
        ("list twice", "the worker did not follow the protocol"),
    ],
)
@pytest.mark.parametrize("loaded", [False, True])
def test_a_fault_changes_nothing(fault: str, cause: str, loaded: bool) -> None:
    with faulty() as system:
        system.limits = Limits(reply_bytes=2_000_000, stderr_bytes=2_000_000)
        if loaded:
            system.load(ITEMS)
        before = system.memories()
        with pytest.raises(SystemFailure) as failure:
            system.ingest(said("my dog is old", "forget my bicycle", f"fault {fault}"))
        assert failure.value.cause.startswith(cause)
        assert "\n" not in failure.value.cause
        assert system.memories() == before
        [operation] = system.ingest(said("my cat is young"))
        assert operation.action is Action.ADD
        assert system.memories() == [*before, operation.after]
        assert [hit.item for hit in system.search("my cat", 1)] == [operation.after]


def test_a_system_that_hangs_is_a_failure() -> None:
    with faulty() as system:
        system.load(ITEMS)
        before = system.memories()
        session = system._opened_session()
        session._limits = Limits(seconds=0.5)
        with pytest.raises(SystemFailure, match=r"no reply to (ingest|open) in 0\.5 s"):
            system.ingest(said("my dog is old", "fault hang"))
        assert system.memories() == before
        session._limits = system.limits
        assert len(system.ingest(said("my dog is old"))) == 1


@pytest.mark.parametrize("fault", ["leak thread", "leak child", "print garbage", "read input"])
def test_what_is_no_fault(fault: str) -> None:
    with faulty() as system:
        [operation] = system.ingest(said("my dog is old", f"fault {fault}"))
        assert system.memories() == [operation.after]


def test_what_only_looks_like_a_memory_is_none() -> None:
    with faulty() as system:
        assert system.ingest(said("fault blank")) == [Operation(Action.NOOP)]
        assert len(system.ingest(said("my dog is old"))) == 1


def test_lost_notes_are_deletions() -> None:
    with faulty() as system:
        system.load(ITEMS)
        before = system.memories()
        done = system.ingest(said("fault lose notes"))
        assert done == [Operation(Action.DELETE, item) for item in before]
        assert system.memories() == []


@pytest.mark.parametrize("error", [None, BudgetReached("spent"), UserError("wrong key")])
@pytest.mark.parametrize("also", ["", "fault raise error", "fault exit 1"])
def test_a_failure_that_the_gateway_saw(error: UserError | None, also: str) -> None:
    """Whatever the system says: real ones store the text of the error."""
    with faulty() as system:
        system.load(ITEMS)
        before = system.memories()
        system.witness.taken = [Taken(USED, ("rate limited", "timeout"), error)]
        wanted = SystemFailure if error is None else type(error)
        with pytest.raises(wanted) as failure:
            system.ingest(said("my dog is old", "fault ask model", also))
        if error is None:
            assert isinstance(failure.value, SystemFailure)
            assert (failure.value.cause, failure.value.usage) == ("rate limited", USED)
        else:
            assert failure.value is error
        assert system.memories() == before
        assert system.take_usage() == USED
        assert [one.after.text for one in system.ingest(said("my cat is old")) if one.after] == [
            "my cat is old"
        ]


def test_a_call_that_a_killed_worker_left_is_not_the_cause() -> None:
    with faulty() as system:
        system.witness.taken = [Taken(USED, (GAVE_UP,))]
        with pytest.raises(SystemFailure, match="ended with code 1") as failure:
            system.ingest(said("fault exit 1"))
        assert failure.value.usage == USED
        system.witness.taken = [Taken(USED, (GAVE_UP,))]
        with pytest.raises(SystemFailure, match=GAVE_UP):
            system.ingest(said("my dog is old"))


def test_usage_is_that_of_the_gateway() -> None:
    with faulty(retriever=OwnSearch()) as system:
        system.witness.taken = [Taken(USED), Taken(USED)]
        system.ingest(said("my dog is old"))
        system.search("dog", 1)
        assert system.take_usage() == USED + USED


def test_a_token_lasts_as_long_as_a_user() -> None:
    with faulty() as system:
        system.ingest(said("my dog is old"))
        assert len(system.witness.tokens) == 1
        system.open("ben")
        assert system.witness.tokens == set()


def test_a_failure_of_its_own_search() -> None:
    with faulty(retriever=OwnSearch()) as system:
        system.load(ITEMS)
        before = system.memories()
        system.witness.taken = [Taken(USED, ("timeout",))]
        with pytest.raises(SystemFailure, match="timeout"):
            system.search("my tea", 3)
        hits = system.search("my tea", 1)
        assert hits == [Hit(before[2], 2.0)]


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    """Killed in the middle of an operation, then asked again: as if nothing had happened."""
    told = []
    for marker in (tmp_path, tmp_path / "killed"):
        with faulty(tmp_path / f"{marker.name}.sqlite") as system:
            system.load(ITEMS)
            dialogue = [*DIALOGUE, *said(f"fault kill itself once {marker}")]
            if marker != tmp_path:
                with pytest.raises(SystemFailure, match="ended by SIGKILL"):
                    system.ingest(dialogue)
            told.append((system.ingest(dialogue), system.memories()))
    assert told[0] == told[1]


def test_a_kill_between_two_operations_is_no_failure() -> None:
    with faulty() as system:
        system.ingest(said("my dog is old"))
        [worker] = workers_of(system)
        os.kill(worker._process.pid, signal.SIGKILL)
        while worker.running:
            time.sleep(0.01)
        system.ingest(said("my cat is old"))
        assert texts(system) == ["my dog is old", "my cat is old"]


@pytest.mark.parametrize("moment", ["before the snapshot", "before the store", "after the store"])
def test_an_interruption_leaves_a_whole_store(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process finds after a kill at any moment: all of the dialogue or none."""
    store = tmp_path / "memories.sqlite"
    with faulty(store) as system:
        system.load(ITEMS)
        before = system.memories()
        session = system._opened_session()

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        if moment == "before the snapshot":
            monkeypatch.setattr(session.files, "keep", stop)
        elif moment == "before the store":
            monkeypatch.setattr(system, "apply", stop)
        else:
            monkeypatch.setattr(session.files, "drop_before", stop)
        with pytest.raises(KeyboardInterrupt):
            system.ingest(said("my dog is old"))
        monkeypatch.undo()
    with faulty(store) as system:
        kept = texts(system)[len(before) :]
        assert kept == (["my dog is old"] if moment == "after the store" else [])
        system.ingest(said("my cat is old", "my dog is young"))
        assert texts(system)[len(before) :] in (
            ["my dog is young", "my cat is old"],
            ["my cat is old", "my dog is young"],
        )
        assert len({item.id for item in system.memories()}) == len(before) + 2


def test_missing_files_are_named(tmp_path: Path) -> None:
    store = tmp_path / "memories.sqlite"
    with faulty(store) as system:
        system.load(ITEMS)
        system.discard_files()
    with faulty(store) as system:
        assert len(system.memories()) == len(ITEMS)
        assert len(system.search("my tea", 1)) == 1
        with pytest.raises(UserError, match="FaultySystem for ann are missing"):
            system.ingest(said("my dog is old"))
        system.clear()
        assert len(system.ingest(said("my dog is old"))) == 1


def test_nothing_is_left_of_a_store_without_a_file(tmp_path: Path) -> None:
    shared = Shared()
    system = FaultySystem(SystemContext(Overlap(), shared=shared))
    system.open("ann")
    system.ingest(said("my dog is old"))
    files = system._opened_session().files
    assert files.path.exists()
    root = system._pool()._root
    system.close()
    assert not files.path.exists()
    shared.close()
    assert not root.exists()


def test_a_store_that_another_process_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_systems.external.pool._SECONDS_FOR_LOCK", 0.0)
    store = tmp_path / "memories.sqlite"
    with faulty(store) as first:
        first.ingest(said("my dog is old"))
        with faulty(store) as second, pytest.raises(UserError, match=r"locked by another process"):
            second.ingest(said("my cat is old"))
    with faulty(store) as third:
        assert texts(third) == ["my dog is old"]
        third.ingest(said("my cat is old"))


def test_rows_in_flight_change_nothing(tmp_path: Path) -> None:
    """As many results as users, whoever has which worker after whom."""

    def work(user: str, shared: Shared, store: Path) -> Any:
        system = Fake(SystemContext(Overlap(), store=store, shared=shared), workers=2)
        system.open(user)
        try:
            system.load([MemoryItem(f"my name is {user}"), *ITEMS])
            operations = system.ingest([*DIALOGUE, *said(f"my name was {user}")])
            return operations, system.memories(), system.search("my name", 2)
        finally:
            system.close()

    users = [f"user-{i}" for i in range(8)]
    told = []
    for threads in (1, 4):
        store = tmp_path / f"{threads}.sqlite"
        with Shared() as shared, ThreadPoolExecutor(threads) as pool:
            told.append([*pool.map(partial(work, shared=shared, store=store), users)])
    assert told[0] == told[1]


def test_one_process_per_store_if_the_system_wants_it(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    fake = (Path(__file__).parent / "fake_worker.py").read_text()
    script.write_text(fake.replace('version="1.0"', 'version="1.0", reopen=False'))

    class Once(Scripted):
        FILE = str(script)

    system = Once(SystemContext(Overlap()))
    system.open("ann")
    system.ingest(said("my dog is old"))
    assert workers_of(system) == []
    system.ingest(said("my cat is old"))
    assert texts(system) == ["my dog is old", "my cat is old"]
    system.close()


def test_a_system_that_cannot_load(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    fake = (Path(__file__).parent / "fake_worker.py").read_text()
    why = 'version="1.0", load=False, reason="a model must write them"'
    script.write_text(fake.replace('version="1.0"', why))

    class Closed(Scripted):
        FILE = str(script)

    system = Closed(SystemContext(Overlap()))
    system.open("ann")
    with pytest.raises(UserError) as error:
        system.load(ITEMS)
    assert str(error.value) == (
        "Closed cannot be given memories (a model must write them). Choose another system"
    )
    assert system.memories() == []
    system.close()


def test_a_worker_that_never_starts_is_the_users_mistake(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text("import missing_one")
    system = CustomSystem(SystemContext(Overlap()), str(script), python=sys.executable)
    system.make_witness = Fake(SystemContext(Overlap())).make_witness  # type: ignore[method-assign]
    system.open("ann")
    with pytest.raises(UserError) as error:
        system.ingest(DIALOGUE)
    assert str(error.value) == (
        f"worker.py does not start with {sys.executable}: the worker ended with code 1 during start"
        " (reason: ModuleNotFoundError: No module named 'missing_one')"
    )
    system.close()


def test_wrong_settings(tmp_path: Path) -> None:
    context = SystemContext(Overlap())
    with pytest.raises(UserError, match="there is no such worker file"):
        CustomSystem(context, str(tmp_path / "worker.py"))
    script = tmp_path / "worker.py"
    script.touch()
    with pytest.raises(UserError, match="seconds must be more than 0, not 0"):
        CustomSystem(context, str(script), seconds=0)
    with pytest.raises(UserError, match="workers must be at least 1, not 0"):
        CustomSystem(context, str(script), workers=0)


def test_settings_tell_environments_apart(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.touch()
    context = SystemContext(Overlap())
    ours = CustomSystem(context, str(script)).settings()["environment"]
    assert ours["python"] == platform.python_version()
    assert (
        ours == CustomSystem(context, str(script), python=sys.executable).settings()["environment"]
    )
    venv.create(tmp_path / "env")
    other = CustomSystem(context, str(script), python=str(tmp_path / "env" / "bin" / "python"))
    assert other.settings()["environment"]["packages"] != ours["packages"]
    for wrong, line in (("/nowhere/python", "cannot be run"), ("/bin/false", "is not a Python")):
        with pytest.raises(UserError, match=f"{wrong}: {line}"):
            CustomSystem(context, str(script), python=wrong).settings()


def test_settings_name_no_place_of_this_machine() -> None:
    system = Fake(SystemContext(Overlap()))
    system._configured = {"python": "p", "worker": "w", "workers": 3, "k": 10, "seconds": 1.0}
    assert {"python", "worker", "workers"}.isdisjoint(system.settings())
    assert system.settings()["k"] == 10
    assert [path.name for path in system.depends_on()] == ["fake_worker.py"]


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server(lambda call: {"answer": "yes", "used_memory_fact": ""}) as running:
        yield running


class TestAsksModel(ExternalSystemContract):
    """With the gateway of a run: at whichever call a model fails, nothing is stored."""

    @pytest.fixture(autouse=True)
    def _server(self, server: ScriptedServer) -> None:
        self.server = server

    def make(self, context: SystemContext) -> AsksModel:
        return AsksModel(context)

    def chat(self) -> ChatModel:
        return chat_model("openai:scripted", base_url=self.server.url, first_wait=0.01)


def test_usage_of_a_model_is_per_row(server: ScriptedServer) -> None:
    chat = chat_model("openai:scripted", base_url=server.url, first_wait=0.01)
    with Shared() as shared:
        context = SystemContext(Overlap(), chat, shared=shared)
        systems = [AsksModel(context), AsksModel(context)]
        for system, dialogues in zip(systems, (1, 3), strict=True):
            system.open("ann")
            for _ in range(dialogues):
                system.ingest(said("my dog is old"))
        assert [system.take_usage().calls for system in systems] == [2, 6]
        for system in systems:
            system.close()


def test_a_model_that_is_missing_is_named() -> None:
    system = AsksModel(SystemContext(Overlap()))
    system.open("ann")
    with pytest.raises(UserError, match="Pass --chat-model"):
        system.ingest(said("my dog is old"))
    assert system.memories() == []
    system.close()
