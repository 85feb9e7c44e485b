"""Contract tests for any retriever, as a test class.

    from retrievers.testing import RetrieverContract

    class TestMine(RetrieverContract):
        def make(self):
            return Mine()

pytest finds the methods; the docstring of each states the requirement that it checks.
"""

from __future__ import annotations

import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

from recallbed.corpus.records import Memory
from retrievers.base import Retriever, Scored, checked_result

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

QUERIES = ("Which tea should I buy for the office kettle?", "我想买绿茶，哪一种适合我？", "???")
POOL = tuple(
    Memory(text, label)
    for text, label in (
        ("Prefers green tea over coffee", "Preferences/Food"),
        ("Has a cat called Biscuit", "Possessions/Pet"),
        ("喜欢喝绿茶", None),
        ("Runs ten kilometres every Sunday", "Preferences/Sports"),
        ("Prefers green tea over coffee", "Preferences/Food"),
        ("", None),
        ("Has an office with a broken kettle", "UNMAPPED"),
    )
)


def _values(result: object, size: int) -> NDArray[np.float32]:
    import numpy as np

    found = checked_result(result, size)
    assert isinstance(found, Scored), f"failed: {found.cause}"
    return np.asarray(found.scores, np.float32)


def _score_frozen(frozen: bytes, query: str, pool: Sequence[Memory]) -> object:
    return pickle.loads(frozen).score(query, pool)


class RetrieverContract(ABC):
    """Subclass it, define `make`, and let pytest run it."""

    has_direction = True
    """False for a retriever that does not read the texts, such as a random one."""

    @abstractmethod
    def make(self) -> Retriever:
        """Return a new, unprepared instance."""

    def test_length_and_finiteness(self) -> None:
        """One finite number per memory, for queries in any script and without any word."""
        retriever = self.make()
        for query in QUERIES:
            for pool in (POOL, POOL[:1]):
                _values(retriever.score(query, pool), len(pool))
        for result in retriever.results(QUERIES, [POOL] * len(QUERIES)):
            assert isinstance(result, Scored), f"failed: {result.cause}"

    def test_direction(self) -> None:
        """Higher is better: a memory equal to the query scores above an unrelated one."""
        if self.has_direction:
            texts = ("Has a cat called Biscuit", "Prefers green tea over coffee", "Runs on Sundays")
            pool = [Memory(text) for text in texts]
            scores = _values(self.make().score("Prefers green tea over coffee", pool), 3)
            assert scores[1] > scores[0], "the memory equal to the query must score higher"

    def test_equal_texts_get_equal_scores(self) -> None:
        """Positions 0 and 4 of the pool hold the same memory."""
        scores = _values(self.make().score(QUERIES[0], POOL), len(POOL))
        assert scores[0] == scores[4], "the same text twice in a pool must tie"

    def test_unchanged_under_shuffling(self) -> None:
        """A score depends on the memory, not on its position."""
        retriever = self.make()
        order = [3, 0, 6, 2, 5, 4, 1]
        for query in QUERIES:
            straight = _values(retriever.score(query, POOL), len(POOL))
            shuffled = _values(retriever.score(query, [POOL[i] for i in order]), len(POOL))
            assert (straight[order] == shuffled).all(), "scores depend on the order of the pool"

    def test_unchanged_under_batching(self) -> None:
        """`score_batch` returns the scores of `score`, one result per query."""
        retriever = self.make()
        pools = [POOL, POOL[:3], POOL[2:]]
        batch = retriever.score_batch(QUERIES, pools)
        assert len(batch) == len(QUERIES), "score_batch must return one result per query"
        # The whole batch first: a reused buffer would hide what it overwrote.
        found = [_values(result, len(p)) for result, p in zip(batch, pools, strict=True)]
        for query, pool, values in zip(QUERIES, pools, found, strict=True):
            alone = _values(retriever.score(query, pool), len(pool))
            self._close(values, alone, "score_batch differs from score")

    def test_unchanged_by_other_queries(self) -> None:
        """The scores of a query do not depend on earlier queries, and do not vary."""
        retriever = self.make()
        retriever.prepare(sorted(QUERIES), sorted({*POOL}, key=lambda m: m.text))
        pools = dict(zip(QUERIES, (POOL, POOL[:3], POOL[2:]), strict=True))
        first = {q: _values(retriever.score(q, pools[q]), len(pools[q])).copy() for q in QUERIES}
        for query in reversed(QUERIES):
            again = _values(retriever.score(query, pools[query]), len(pools[query]))
            scale = max(abs(first[query]).max(), abs(again).max())
            assert abs(first[query] - again).max() <= 1e-5 * scale, (
                "scores depend on the queries before, or on unseeded random numbers"
            )

    def test_preparing_is_optional(self) -> None:
        """`prepare` changes no score, for prepared texts and for others."""
        prepared = self.make()
        prepared.prepare(sorted(QUERIES[:2]), sorted({*POOL[:4]}, key=lambda m: m.text))
        for query in QUERIES:
            plain = _values(self.make().score(query, POOL), len(POOL))
            self._close(_values(prepared.score(query, POOL), len(POOL)), plain, "prepare changes")

    def test_unchanged_in_a_worker(self) -> None:
        """A prepared instance survives pickling into a spawned process."""
        retriever = self.make()
        retriever.prepare(sorted(QUERIES), sorted({*POOL}, key=lambda m: m.text))
        here = _values(retriever.score(QUERIES[0], POOL), len(POOL))
        frozen = pickle.dumps(retriever)
        with ProcessPoolExecutor(1, get_context("spawn")) as executor:
            there = executor.submit(_score_frozen, frozen, QUERIES[0], POOL).result(timeout=120)
        assert (_values(there, len(POOL)) == here).all(), "another process gives other scores"

    def test_pool_independence(self) -> None:
        """If `pool_independent`, a memory has the same score in any pool."""
        retriever = self.make()
        if retriever.pool_independent:
            whole = _values(retriever.score(QUERIES[0], POOL), len(POOL))
            for first, last in ((2, 5), *((i, i + 1) for i in range(len(POOL)))):
                part = _values(retriever.score(QUERIES[0], POOL[first:last]), last - first)
                self._close(part, whole[first:last], "the pool changes scores")

    def test_explanations_make_the_scores(self) -> None:
        """Explanations, if the retriever has any, are one for each score and add up to it."""
        retriever = self.make()
        positions = range(len(POOL))
        for query in QUERIES:
            found = retriever.explanations(query, POOL, positions)
            scores = _values(retriever.score(query, POOL), len(POOL))
            for position, explanation in zip(positions, found or (), strict=found is not None):
                if explanation.score is not None:
                    gap = abs(explanation.score - float(scores[position]))
                    assert gap <= 1e-5 * max(abs(explanation.score), 1), "not the score"

    def test_settings_are_json(self) -> None:
        """Settings and notes can be written to the run's manifest."""
        retriever = self.make()
        json.dumps([dict(retriever.settings()), dict(retriever.notes())], allow_nan=False)

    @staticmethod
    def _close(a: NDArray[np.float32], b: NDArray[np.float32], message: str) -> None:
        assert abs(a - b).max() <= 1e-5, message
