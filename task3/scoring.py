"""From a retriever and some places in the plan to rows. Runs alike in the parent and in workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import above_tied, display_order
from corpus.pools import Pool, PoolSet, pool_hash
from retrievers.base import Retriever, RetrieverError, Scored, Usage
from task3.attempt import attempt

TOP = 10
Row = dict[str, Any]
Ints = NDArray[np.integer[Any]]


class Place(NamedTuple):
    """Which pool: its number of distractors, its seed, and the number of its query."""

    distractors: int
    seed: int
    query: int


class Finished(NamedTuple):
    """A row with the place it belongs to and the seconds it took."""

    place: Place
    row: Row
    seconds: float


@dataclass(frozen=True)
class Scorer:
    """One labelled retriever over the pools of a run."""

    label: str
    retriever: Retriever
    pools: PoolSet

    def tasks(self, places: Sequence[Place], size: int) -> list[list[Place]]:
        """Cut the places into tasks: one pass over about `size` queries each.

        All pools of a query lie in one task where a union of them can be scored at once.
        """
        if not self.retriever.pool_independent:
            by_pool: dict[tuple[int, int], list[Place]] = {}
            for place in places:
                by_pool.setdefault(place[:2], []).append(place)
            return [
                group[i : i + size]
                for group in by_pool.values()
                for i in range(0, len(group), size)
            ]
        by_query: dict[int, list[Place]] = {}
        for place in places:
            by_query.setdefault(place.query, []).append(place)
        groups = list(by_query.values())
        return [sum(groups[i : i + size], []) for i in range(0, len(groups), size)]

    def run(self, places: Sequence[Place]) -> list[Finished]:
        """The rows of one task, in the order of `places`."""
        started = time.perf_counter()
        rows = list(self._rows(places))
        share = (time.perf_counter() - started) / max(len(rows), 1)
        return [Finished(place, row, share) for place, row in zip(places, rows, strict=True)]

    def _pool(self, place: Place) -> Pool:
        return self.pools.pools[place.distractors, place.seed][place.query]

    def _rows(self, places: Sequence[Place]) -> Iterable[Row]:
        if not self.retriever.pool_independent:
            members = [self.pools.texts(self._pool(place)) for place in places]
            queries = [self.pools.rows[place.query].query for place in places]
            for place, result in zip(
                places, attempt(self.retriever, queries, members), strict=True
            ):
                yield self._row(place, result, slice(None))
            return
        numbers = list(dict.fromkeys(place.query for place in places))
        unions = {n: self._union(n) for n in numbers}
        memories = [[self.pools.memories[i] for i in unions[n]] for n in numbers]
        queries = [self.pools.rows[n].query for n in numbers]
        results = dict(zip(numbers, attempt(self.retriever, queries, memories), strict=True))
        for place in places:
            at = np.searchsorted(unions[place.query], self._pool(place).members)
            yield self._row(place, results[place.query], at)

    def _union(self, query: int) -> Ints:
        """All memories of a query's pools, whatever part of them is left to do."""
        found: Ints = np.unique(
            np.concatenate([pools[query].members for pools in self.pools.pools.values()])
        )
        return found

    def _row(self, place: Place, result: Scored | RetrieverError, at: slice | Ints) -> Row:
        pool = self._pool(place)
        row: Row = {
            "query": self.pools.rows[place.query].benchmark_id,
            "retriever": self.label,
            "distractors": place.distractors,
            "pool": pool_hash(self.pools.texts(pool)),
            "gold": pool.gold if len(pool.golds) == 1 else list(pool.golds),
            "above": None,
            "tied": None,
            "top": [],
        }
        if isinstance(result, RetrieverError):
            return {**row, **_usage(Usage()), "repairs": {}, "error": str(result.cause)}
        scores = np.asarray(result.scores)[at]
        row["above"], row["tied"] = above_tied(scores, pool.gold)
        if len(pool.golds) > 1:
            ranks = [above_tied(scores, gold) for gold in pool.golds]
            row["above"] = [above for above, _ in ranks]
            row["tied"] = [tied for _, tied in ranks]
        row["top"] = [[i, float(f"{scores[i]:.7g}")] for i in display_order(scores, TOP)]
        return {**row, **_usage(result.usage), "repairs": dict(result.repairs), "error": None}


def _usage(usage: Usage) -> Row:
    return {"calls": usage.calls, "tokens_in": usage.tokens_in, "tokens_out": usage.tokens_out}
