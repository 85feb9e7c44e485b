"""A memory system in another process, as a `MemorySystem`."""

from __future__ import annotations

import hashlib
import secrets
import subprocess
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from typing_extensions import override

from memory_systems.attempt import Attempt
from memory_systems.base import Action, Hit, Operation, Response, SystemContext, SystemFailure
from memory_systems.budget import best_within
from memory_systems.external.difference import Known, operations_between
from memory_systems.external.gateway import Gateway, embedder_settings
from memory_systems.external.pool import WorkerPool
from memory_systems.external.protocol import EmptyReply, ListReply, LoadReply, SearchReply
from memory_systems.external.session import StoreSession
from memory_systems.external.witness import Witness
from memory_systems.external.worker_process import Limits, WorkerFault, WorkerProcess
from memory_systems.own_search import OwnSearch
from memory_systems.shared import Shared
from memory_systems.stored import StoredSystem, at_least_one
from recallbed.chat_models.base import JSON
from recallbed.corpus.records import MemoryItem, Turn
from recallbed.errors import UserError
from recallbed.harness.input_text import clean_text

FIRST_DAY = datetime(2025, 1, 1, tzinfo=UTC)
"""Time of a user's first dialogue as the systems are told; each further one is a day later."""


class ExternalSystem(StoredSystem):
    """A system that `worker_file` runs, in the Python environment of `python`.

    Its memories are listed after every dialogue and kept in our store with ids of ours. Its own
    files are copied then, and brought back after a failure. `seconds` bounds each operation,
    `workers` the processes that a run starts.
    """

    searches = True
    replies_lead_to_calls = True

    def __init__(
        self,
        context: SystemContext,
        python: str | None = None,
        k: int = 10,
        budget: int = 2000,
        reply_tokens: int = 2048,
        temperature: float | None = 0.0,
        seconds: float = 600.0,
        workers: int = 4,
    ) -> None:
        super().__init__(context, k, budget, reply_tokens, temperature)
        at_least_one(workers=workers)
        if not seconds > 0:
            raise UserError(f"seconds must be more than 0, not {seconds}")
        self.limits, self.workers = Limits(seconds=seconds), workers
        self._python = python
        self._own_shared: Shared | None = None
        self._session: StoreSession | None = None
        self._users: set[str] = set()
        # Without a file the users of each instance are its own, though workers may be shared.
        self._scope = f"{secrets.token_hex(8)}/" if context.store is None else ""

    @property
    @abstractmethod
    def worker_file(self) -> Path:
        """The file that `workers/serve.py` runs."""

    @property
    def python(self) -> Path:
        """The Python of the system's environment: `python`, by default the one that runs this."""
        return Path(self._python or sys.executable).expanduser().absolute()

    def worker_settings(self) -> Mapping[str, JSON]:
        """Return what the worker's `open` gets as `settings`. By default nothing."""
        return {}

    def make_witness(self) -> AbstractContextManager[Witness]:
        """Return the gateway to the models of the run."""
        return Gateway(self.context.chat)

    @override
    def settings(self) -> Mapping[str, JSON]:
        places = {"python", "workers"}
        found = {key: value for key, value in super().settings().items() if key not in places}
        return {**found, "embedder": embedder_settings()}

    @override
    def open(self, user: str) -> None:
        self._leave()
        super().open(user)

    @override
    def clear(self) -> None:
        with self.attempt() as attempt:
            self.store.clear(self.user)
            self._opened_session().reset(attempt)

    @override
    def load(self, items: Sequence[MemoryItem]) -> None:
        given = [item for item in items if item.text.strip()]
        if not given:
            return
        texts = [{"text": _clean(item.text)} for item in given]

        def work(worker: WorkerProcess) -> dict[str, MemoryItem]:
            can = worker.hello.capabilities
            if not can.load:
                why = f" ({can.reason})" if can.reason else ""
                raise UserError(
                    f"{self._name} cannot be given memories{why}. Choose another system"
                )
            ids = worker.ask("load", LoadReply, items=texts).ids
            if len(ids) != len(given):
                raise WorkerFault("load did not return an id for every memory")
            loaded: dict[str, MemoryItem] = {}
            for their_id, item in zip(ids, given, strict=True):
                loaded.setdefault(their_id, item)  # equal texts may be one memory of the system
            return loaded

        with self.attempt() as attempt:
            self._change(attempt, work)

    @override
    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        turns = [
            {"role": "assistant" if turn.role == "assistant" else "user", "text": _clean(turn.text)}
            for turn in dialogue
            if turn.text.strip()
        ]
        if not turns:
            return []

        def work(worker: WorkerProcess) -> dict[str, MemoryItem]:
            time = FIRST_DAY + timedelta(days=self._known().ingests)
            worker.ask("ingest", EmptyReply, turns=turns, time=time.isoformat())
            return {}

        with self.attempt() as attempt:
            return self._change(attempt, work, ingests=1)

    @override
    def search(self, query: str, k: int) -> list[Hit]:
        with self.attempt() as attempt:
            return self._search(attempt, query, k)[0]

    @override
    def respond(self, query: str) -> Response:
        with self.attempt() as attempt:
            hits, context = self._search(attempt, query, self.k)
            state = self._state()
            texts = [*(hit.item.text for hit in hits), *(state.context if state else ()), *context]
            return attempt.respond(query, texts, self.budget, best_within, tuple(hits))

    @override
    def discard_files(self) -> None:
        session = self._opened_session()
        self._leave()
        session.files.remove()

    @override
    def close(self) -> None:
        self._leave()
        for user in self._users if self.context.store is None else ():
            self._pool().folder(f"{self._scope}{user}").remove()
        self._users.clear()
        if self._own_shared is not None:
            self._own_shared.close()
            self._own_shared = None
        super().close()

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _shared(self) -> Shared:
        """The parts of the run, or those of this instance if there is no run."""
        if self.context.shared is not None:
            return self.context.shared
        if self._own_shared is None:
            self._own_shared = Shared()
        return self._own_shared

    def _pool(self) -> WorkerPool:
        store = self.context.store
        root = None if store is None else store.with_suffix(".files")
        python, script = self.python, self.worker_file

        def make() -> WorkerPool:
            return WorkerPool(python, script, root, self.workers, self.limits)

        return self._shared().get(("workers", root, python, script), make)

    def _opened_session(self) -> StoreSession:
        if self._session is None:
            pool = self._pool()
            self._users.add(self.user)
            self._session = StoreSession(
                pool,
                pool.folder(f"{self._scope}{self.user}"),
                self._shared().get(("gateway", id(self.context.chat)), self.make_witness),
                self.user,
                len(self.history()),
                self.worker_settings(),
                self.limits,
            )
        return self._session

    def _leave(self) -> None:
        if self._session is not None:
            self._session.leave()
            self._session = None

    def _state(self) -> Known | None:
        """What was known after the last operation, None if the files are missing."""
        session = self._opened_session()
        if session.number == 0:
            return Known()
        state = session.files.state(session.number)
        return None if state is None else Known.model_validate_json(state)

    def _known(self) -> Known:
        """What was known after the last operation. Raises UserError if the files are missing."""
        state = self._state()
        if state is None:
            raise UserError(
                f"{self._opened_session().files.path}: the files of {self._name} for {self.user}"
                " are missing. Its memories can be read, not changed"
            )
        return state

    def _items(self, known: Known) -> dict[str, MemoryItem]:
        """Our memories by the system's ids."""
        items = {item.id: item for item in self.memories()}
        ids = {
            entry.number: entry.operation.after.id
            for entry in self.history()
            if entry.operation.action is Action.ADD and entry.operation.after is not None
        }
        return {their_id: items[ids[one.added]] for their_id, one in known.memories.items()}

    def _change(
        self,
        attempt: Attempt,
        work: Callable[[WorkerProcess], dict[str, MemoryItem]],
        ingests: int = 0,
    ) -> list[Operation]:
        """Store what `work` changes, in one step. It returns loaded items by their new ids."""
        session = self._opened_session()
        known = self._known()

        def observed(worker: WorkerProcess) -> tuple[dict[str, MemoryItem], ListReply]:
            loaded = work(worker)
            listed = worker.ask("list", ListReply)
            session.close_store()
            return _as_listed(loaded, listed), listed

        loaded, listed = session.run(attempt, observed)
        try:
            items = self._items(known)
            operations, known = operations_between(known, listed, items, session.number, loaded)
            known = known.model_copy(update={"ingests": known.ingests + ingests})
            number = session.number + len(operations)
            session.files.keep(number, known.model_dump_json())
            done = self.apply(operations, attempt.usage)
        except FileNotFoundError as error:
            session.abandon()
            cause = "the system changed its files after it was closed"
            raise SystemFailure(cause, attempt.usage) from error
        except BaseException:
            session.abandon()
            raise
        session.number = number
        session.files.drop_before(number)
        return done

    def _search(self, attempt: Attempt, query: str, k: int) -> tuple[list[Hit], list[str]]:
        """The best `k`, and what the system's own search found besides."""
        if not isinstance(self.context.retriever, OwnSearch):
            return list(attempt.search(query, self.memories(), k)), []
        ours = self._items(self._known())

        def work(worker: WorkerProcess) -> SearchReply:
            if not worker.hello.capabilities.search:
                raise UserError(f"{self._name} has no search of its own; choose a --retriever")
            return worker.ask("search", SearchReply, query=_clean(query), k=k)

        found = self._opened_session().run(attempt, work)
        hits = [Hit(ours.get(hit.id) or MemoryItem(hit.text), hit.score) for hit in found.hits[:k]]
        return hits, found.context


class CustomSystem(ExternalSystem):
    """A system of the user's own, which the file `worker` runs in the environment of `python`."""

    def __init__(
        self,
        context: SystemContext,
        worker: str,
        python: str | None = None,
        k: int = 10,
        budget: int = 2000,
        reply_tokens: int = 2048,
        temperature: float | None = 0.0,
        seconds: float = 600.0,
        workers: int = 4,
    ) -> None:
        super().__init__(context, python, k, budget, reply_tokens, temperature, seconds, workers)
        self._worker_file = Path(worker).expanduser().absolute()
        if not self._worker_file.is_file():
            raise UserError(f"{worker}: there is no such worker file")

    @property
    @override
    def worker_file(self) -> Path:
        return self._worker_file

    @override
    def settings(self) -> Mapping[str, JSON]:
        found = {key: value for key, value in super().settings().items() if key != "worker"}
        return {**found, "environment": packages_of(self.python)}

    @override
    def depends_on(self) -> Sequence[Path]:
        return [self._worker_file]


@cache
def packages_of(python: Path) -> Mapping[str, str]:
    """Return the version of a Python and a hash over its packages with their versions.

    Raises UserError if it cannot be run.
    """
    code = (
        "import importlib.metadata as m, platform;"
        "print(platform.python_version(), sorted({(d.name, d.version) for d in m.distributions()}))"
    )
    try:
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True)
    except OSError as error:
        raise UserError(f"{python}: cannot be run ({error.strerror})") from error
    if done.returncode:
        raise UserError(f"{python}: is not a Python that lists its packages")
    version, _, packages = done.stdout.partition(" ")
    return {"python": version, "packages": hashlib.sha256(packages.encode()).hexdigest()[:16]}


def _as_listed(loaded: Mapping[str, MemoryItem], listed: ListReply) -> dict[str, MemoryItem]:
    """Loaded items with the texts that the system made of them. Raises WorkerFault if one is lost.

    A text that differs only in what `_clean` replaced is as it was given.
    """
    texts = {memory.id: memory.text for memory in listed.memories if memory.text.strip()}
    if loaded.keys() - texts.keys():
        raise WorkerFault("a memory that was loaded is not listed")
    return {
        their_id: item
        if texts[their_id] == _clean(item.text)
        else replace(item, text=texts[their_id])
        for their_id, item in loaded.items()
    }


def _clean(text: str) -> str:
    """Text that any program can take: no NUL, no half of a surrogate pair."""
    return clean_text(text, Counter())
