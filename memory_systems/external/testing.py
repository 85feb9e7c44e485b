"""Contract tests of external systems, to run on anyone's worker.

    from memory_systems.external.testing import ExternalSystemContract

    class TestMine(ExternalSystemContract):
        def make(self, context):
            return Mine(context)

pytest finds the tests; their docstrings say what they check.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from typing_extensions import override

from memory_systems.base import MemorySystem, Operation, SystemContext
from memory_systems.external.system import ExternalSystem
from memory_systems.external.worker_process import WorkerProcess
from memory_systems.own_search import OwnSearch
from memory_systems.shared import Shared
from memory_systems.testing import DIALOGUE, ITEMS, QUERIES, MemorySystemContract
from recallbed.corpus.records import MemoryItem


class ExternalSystemContract(MemorySystemContract):
    """Subclass it, define `make`, and let pytest run it. All tests share the started workers."""

    can_load = True
    """Set to False for a system that cannot be given memories."""
    searches = True
    """Set to False for a system without a search of its own."""
    _shared: ClassVar[Shared]

    @classmethod
    def setup_class(cls) -> None:
        """Have no workers."""
        cls._shared = Shared()
        if not cls.can_load:
            cls.keeps_loaded = False

    @classmethod
    def teardown_class(cls) -> None:
        """End the workers."""
        cls._shared.close()

    @override
    def made(self, context: SystemContext) -> MemorySystem:
        system = self.make(replace(context, shared=self._shared))
        if not self.can_load:
            setattr(system, "load", _load_nothing)  # noqa: B010
        return system

    def test_a_killed_worker_changes_nothing(self) -> None:
        """The next operation works on the files as they were, and leads to the same memories."""
        told: list[tuple[list[Operation], list[MemoryItem]]] = []
        for killed in (False, True):
            with self.opened(load=ITEMS) as system:
                operations = system.ingest(DIALOGUE[:2])
                for worker in workers_of(system) if killed else ():
                    worker.kill()
                told.append((operations, system.memories()))
                told.append((system.ingest(DIALOGUE), system.memories()))
        assert told[:2] == told[2:]

    def test_a_used_process_is_like_a_new_one(self) -> None:
        """What it did for one user changes nothing for the next."""
        told = []
        with self.opened() as system:
            for user in ("ann", "ben", "ann and ben"):
                system.open(user)
                system.load(ITEMS)
                told.append((system.ingest(DIALOGUE), system.memories()))
        assert told[0] == told[1] == told[2]

    def test_its_own_search(self) -> None:
        """At most k memories, best first, with finite scores; they stay as they are."""
        if not self.searches:
            return
        with self.opened(retriever=OwnSearch(), load=ITEMS) as system:
            system.ingest(DIALOGUE)
            items = system.memories()
            for query in QUERIES[:3]:
                for k in (1, 100):
                    hits = system.search(query, k)
                    scores = [hit.score for hit in hits]
                    assert len(hits) <= k
                    assert scores == sorted(scores, reverse=True)
                    assert all(map(math.isfinite, scores))
                    assert all(hit.item in items or hit.item.id is None for hit in hits)
            assert system.memories() == items
            told = [system.search(query, 10) for query in QUERIES[:3]]
            assert told == [system.search(query, 10) for query in QUERIES[:3]]

    def test_the_network_is_not_tried(self) -> None:
        """No look-up and no connection but to the gateway, telemetry included."""
        with self.opened(load=ITEMS) as system:
            system.ingest(DIALOGUE)
            system.search(QUERIES[0], 3)
            assert [host for worker in workers_of(system) for host in worker.refused] == []


def workers_of(system: MemorySystem) -> list[WorkerProcess]:
    """Return the workers that an external system has or shares."""
    assert isinstance(system, ExternalSystem)
    return system._pool().workers


def _load_nothing(items: Sequence[MemoryItem]) -> None:
    pass
