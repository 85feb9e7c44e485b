"""Results of retrievers over every pool of some material, kept so that many fits share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recallbed.corpus.material import Material
from recallbed.corpus.records import Memory
from recallbed.harness.progress import progress
from retrievers.base import NotScored, Retriever, Scored

_BATCH = 16
Result = Scored | NotScored
PoolAt = tuple[int, int, int]
"""Distractors, pool seed, and the number of the row."""


@dataclass(frozen=True)
class PoolResults:
    """The results of `legs`, by pool in the order of the legs; scores have shape (len(pool),)."""

    material: Material
    legs: Mapping[str, Retriever]
    results: Mapping[PoolAt, Sequence[Result]]

    def memories(self, at: PoolAt) -> list[Memory]:
        """Return the memories of a pool."""
        pools = self.material.pools
        return pools.texts(pools.pools[at[0], at[1]][at[2]])

    def golds(self, at: PoolAt) -> tuple[int, ...]:
        """Return the positions of the golds of a pool."""
        return self.material.pools.pools[at[0], at[1]][at[2]].golds

    def query(self, at: PoolAt) -> str:
        """Return the query of a pool."""
        return self.material.pools.rows[at[2]].query

    @property
    def failed(self) -> frozenset[int]:
        """The numbers of the rows on which a leg failed."""
        return frozenset(
            at[2]
            for at, results in self.results.items()
            if any(isinstance(one, NotScored) for one in results)
        )


def score_pools(material: Material, legs: Mapping[str, Retriever]) -> PoolResults:
    """Score every pool with every leg. Raise UserError and MemoryError as `prepare_for` does."""
    pools = material.pools
    found: dict[PoolAt, list[Result]] = {
        (*key, number): [] for key in pools.pools for number in range(len(pools.rows))
    }
    for label, leg in legs.items():
        leg.prepare_for(label, (row.query for row in pools.rows), pools.memories)
        with progress(f"scoring {label}", len(pools.rows)) as advance:
            for start in range(0, len(pools.rows), _BATCH):
                batch = range(start, min(start + _BATCH, len(pools.rows)))
                for at, result in _scored(material, leg, batch):
                    found[at].append(result)
                advance(len(batch))
    return PoolResults(material, legs, found)


def _scored(
    material: Material, leg: Retriever, batch: Sequence[int]
) -> list[tuple[PoolAt, Result]]:
    """The results of all pools of some rows; of their union if no pool changes a score."""
    pools = material.pools
    queries = [pools.rows[i].query for i in batch]
    if not leg.pool_independent:
        return [
            ((*key, i), result)
            for key, members in pools.pools.items()
            for i, result in zip(
                batch, leg.results(queries, [pools.texts(members[i]) for i in batch]), strict=True
            )
        ]
    unions = [
        np.unique(np.concatenate([p[i].members for p in pools.pools.values()])) for i in batch
    ]
    memories = [[pools.memories[m] for m in union] for union in unions]
    found: list[tuple[PoolAt, Result]] = []
    for i, union, result in zip(batch, unions, leg.results(queries, memories), strict=True):
        for key, members in pools.pools.items():
            part = _part(result, np.searchsorted(union, members[i].members))
            found.append(((*key, i), part))
    return found


def _part(result: Result, at: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Result:
    if isinstance(result, NotScored):
        return result
    matched = None if result.matched is None else result.matched[at]
    return Scored(np.asarray(result.scores)[at], matched)
