"""The fake and the faulty system as users would write them, with a gateway that a test scripts."""

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from memory_systems.base import SystemContext
from memory_systems.external.system import CustomSystem
from memory_systems.external.witness import Taken, Witness

HERE = Path(__file__).parent


class ScriptedWitness:
    """Gives what a test put into `taken`, for the token last registered; there is no server."""

    url = "http://127.0.0.1:9/v1"

    def __init__(self) -> None:
        self.taken: list[Taken] = []
        self.tokens: set[str] = set()
        self._count, self._lock = 0, threading.Lock()

    def register(self) -> str:
        with self._lock:
            self._count += 1
            self.tokens.add(f"token-{self._count}")
            return f"token-{self._count}"

    def take(self, token: str) -> Taken:
        assert token in self.tokens
        return self.taken.pop(0) if self.taken else Taken()

    def forget(self, token: str) -> None:
        self.tokens.remove(token)


class Scripted(CustomSystem):
    """The worker file `FILE` in the Python of the tests."""

    FILE = "fake_worker.py"

    def __init__(
        self,
        context: SystemContext,
        python: str = sys.executable,
        seconds: float = 600.0,
        workers: int = 4,
    ) -> None:
        worker = str(HERE / self.FILE)
        super().__init__(context, worker, python, seconds=seconds, workers=workers)
        self.witness = ScriptedWitness()

    @override
    def make_witness(self) -> AbstractContextManager[Witness]:
        @contextmanager
        def opened() -> Iterator[Witness]:
            yield self.witness

        return opened()


class Fake(Scripted):
    """Notes what users say about their things."""


class FaultySystem(Scripted):
    """The same, with faults that a dialogue asks for."""

    FILE = "faulty_worker.py"


class AsksModel(CustomSystem):
    """The same over the gateway of a run: two calls per dialogue, whose errors it stores."""

    def __init__(self, context: SystemContext) -> None:
        super().__init__(context, str(HERE / "faulty_worker.py"))

    @override
    def worker_settings(self) -> Mapping[str, Any]:
        return {"calls": 2}
