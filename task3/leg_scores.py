"""Scores of legs over the pools of a run, kept so that many fusions of them cost one scoring."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import Recall, above_tied, ranked
from recallbed.corpus.pools import Pool, PoolSet
from recallbed.harness.configurations import Configuration
from recallbed.harness.progress import progress
from retrievers.base import NotScored, Retriever, RunContext, Scored
from retrievers.hybrid import Hybrid
from retrievers.registry import leg_finder
from task3.order_check import check_order

BATCH = 16
Key = tuple[str, tuple[tuple[str, str], ...]]
Result = Scored | NotScored
Pools = tuple[int, int]


@dataclass
class LegScores:
    """What each retriever that fuses nothing gave for every pool, by its name and settings."""

    pools: PoolSet
    run: RunContext
    _kept: dict[tuple[Key, Pools], list[Result]] = field(default_factory=dict)
    _built: dict[Key, Retriever] = field(default_factory=dict)

    def recalls(
        self, configurations: Sequence[Configuration], label: str, k: int
    ) -> dict[int, NDArray[np.float64]]:
        """By size, recall@k of each query averaged over pool seeds, (queries,).

        NaN where the retriever failed on one of a query's pools.
        """
        find = leg_finder(configurations, self.run)
        keys = {
            one.label: (one.name, tuple(sorted(one.settings.items()))) for one in configurations
        }
        found: dict[int, list[list[float]]] = {}
        for at, pools in self.pools.pools.items():
            results = self._results(find, keys, label, at)
            values = [_recall(one, pool, k) for one, pool in zip(results, pools, strict=True)]
            found.setdefault(at[0], []).append(values)
        return {size: np.mean(values, axis=0) for size, values in found.items()}

    def _results(
        self, find: Callable[[str], Retriever], keys: Mapping[str, Key], label: str, at: Pools
    ) -> list[Result]:
        retriever = find(label)
        if isinstance(retriever, Hybrid):
            by_leg = [self._results(find, keys, name, at) for name in retriever.names]
            places = zip(self.pools.rows, *by_leg, strict=True)
            return [retriever.fuse(row.query, legs) for row, *legs in places]
        key = keys.get(label, (label, ()))
        if (key, at) not in self._kept:
            # One instance for all candidates that ask for it, so that it is prepared once.
            retriever = self._built.setdefault(key, retriever)
            self._kept[key, at] = list(self._score(label, retriever, at))
        return self._kept[key, at]

    def _score(self, label: str, retriever: Retriever, at: Pools) -> Iterator[Result]:
        rows, pools = self.pools.rows, self.pools.pools[at]
        retriever.prepare_for(label, (row.query for row in rows), self.pools.memories)
        if at == min(self.pools.pools):
            check_order(
                label,
                retriever,
                [row.benchmark_id for row in rows],
                lambda i: (rows[i].query, self.pools.texts(pools[i])),
                self.run.seed,
            )
        with progress(f"{label} at {at[0]}", len(rows)) as advance:
            for start in range(0, len(rows), BATCH):
                batch = range(start, min(start + BATCH, len(rows)))
                members = [self.pools.texts(pools[i]) for i in batch]
                yield from retriever.results([rows[i].query for i in batch], members)
                advance(len(batch))


def _recall(result: Result, pool: Pool, k: int) -> float:
    if isinstance(result, NotScored):
        return float("nan")
    scores = ranked(result.scores, len(pool))
    return Recall(k).value([above_tied(scores, gold) for gold in pool.golds])
