"""From a retriever and some places in the plan to rows. Runs alike in the parent and in workers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.rows import Reranked, Row, failed_row, scored_row
from recallbed.corpus.pools import Pool, PoolSet
from retrievers.attempt import attempt
from retrievers.base import Retriever, RetrieverError, Scored

Scores = NDArray[np.float32]
Ints = NDArray[np.integer[Any]]


class Place(NamedTuple):
    """Which pool: its number of distractors, its seed, and the number of its query."""

    distractors: int
    seed: int
    query: int


class Finished(NamedTuple):
    """A row with the place it belongs to, the seconds it took, and its scores where kept."""

    place: Place
    row: Row
    seconds: float
    scores: Scores | None = None


@dataclass(frozen=True)
class Scorer:
    """One labelled retriever over the pools of a run."""

    label: str
    retriever: Retriever
    pools: PoolSet
    keep_scores: bool = False

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
        found = list(self._results(places))
        share = (time.perf_counter() - started) / max(len(found), 1)
        return [
            Finished(place, row, share, scores if self.keep_scores else None)
            for place, (row, scores) in zip(places, found, strict=True)
        ]

    def _pool(self, place: Place) -> Pool:
        return self.pools.pools[place.distractors, place.seed][place.query]

    def _results(self, places: Sequence[Place]) -> Iterable[tuple[Row, Scores | None]]:
        if not self.retriever.pool_independent:
            members = [self.pools.texts(self._pool(place)) for place in places]
            queries = [self.pools.rows[place.query].query for place in places]
            for place, result in zip(
                places, attempt(self.retriever, queries, members), strict=True
            ):
                yield self._finish(place, result, slice(None))
            return
        numbers = list(dict.fromkeys(place.query for place in places))
        unions = {n: self._union(n) for n in numbers}
        memories = [[self.pools.memories[i] for i in unions[n]] for n in numbers]
        queries = [self.pools.rows[n].query for n in numbers]
        results = dict(zip(numbers, attempt(self.retriever, queries, memories), strict=True))
        for place in places:
            at = np.searchsorted(unions[place.query], self._pool(place).members)
            yield self._finish(place, results[place.query], at)

    def _union(self, query: int) -> Ints:
        """All memories of a query's pools, whatever part of them is left to do."""
        found: Ints = np.unique(
            np.concatenate([pools[query].members for pools in self.pools.pools.values()])
        )
        return found

    def _finish(
        self, place: Place, result: Scored | RetrieverError, at: slice | Ints
    ) -> tuple[Row, Scores | None]:
        pool = self._pool(place)
        memories = self.pools.texts(pool)
        where = (self.pools.rows[place.query].benchmark_id, self.label, place.distractors)
        if isinstance(result, RetrieverError):
            return failed_row(where, memories, pool.golds, str(result.cause)), None
        scores = np.asarray(result.scores)[at]
        usage, repairs = asdict(result.usage), dict(result.repairs)
        usage.pop("estimated")
        # In a union of pools there is no first stage and no prompt of this one.
        reranked = _reranked(result if isinstance(at, slice) else Scored((), usage=result.usage))
        return scored_row(where, memories, pool.golds, scores, usage, repairs, reranked), scores


def _reranked(result: Scored) -> Reranked | None:
    """What a row tells of reranking; None, and not a key of it, where there is nothing to tell."""
    estimated = result.usage.estimated
    known = any(part is not None for part in (result.first_stage, result.depth, result.shown))
    if not known and not estimated:
        return None
    first = None if result.first_stage is None else np.asarray(result.first_stage, np.float32)
    return Reranked(first, result.depth, result.shown, estimated)
