"""Rows of a retriever for keys of the plan, in the parent process and in workers."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.rows import Reranking, SweepRow
from recallbed.corpus.pools import Pool, PoolSet
from recallbed.errors import UserError
from recallbed.harness.experiment import Finished
from retrievers.base import NotScored, Retriever, Scored

Scores = NDArray[np.float32]
Ints = NDArray[np.integer[Any]]


class PoolKey(NamedTuple):
    """Which pool: its number of distractors, its seed, and the number of its query."""

    distractors: int
    seed: int
    query: int


class ScoredPool(NamedTuple):
    """The row of a pool, the seconds that it took, and its scores if they are kept."""

    key: PoolKey
    finished: Finished


@dataclass(frozen=True)
class Scorer:
    """One labelled retriever over the pools of a run."""

    label: str
    retriever: Retriever
    pools: PoolSet
    keep_scores: bool = False

    def tasks(self, keys: Sequence[PoolKey], size: int) -> list[list[PoolKey]]:
        """Cut the keys into tasks: one pass over about `size` queries each.

        All pools of a query are in one task if their union can be scored at once.
        """
        if not self.retriever.pool_independent:
            by_pool: dict[tuple[int, int], list[PoolKey]] = {}
            for key in keys:
                by_pool.setdefault(key[:2], []).append(key)
            return [
                group[i : i + size]
                for group in by_pool.values()
                for i in range(0, len(group), size)
            ]
        by_query: dict[int, list[PoolKey]] = {}
        for key in keys:
            by_query.setdefault(key.query, []).append(key)
        groups = list(by_query.values())
        return [sum(groups[i : i + size], []) for i in range(0, len(groups), size)]

    def run(self, keys: Sequence[PoolKey]) -> list[ScoredPool]:
        """The rows of one task, in the order of `keys`."""
        started = time.perf_counter()
        found = list(self._results(keys))
        share = (time.perf_counter() - started) / max(len(found), 1)
        return [
            ScoredPool(key, Finished(row.to_json(), share, scores if self.keep_scores else None))
            for key, (row, scores) in zip(keys, found, strict=True)
        ]

    def _pool(self, key: PoolKey) -> Pool:
        return self.pools.pools[key.distractors, key.seed][key.query]

    def _results(self, keys: Sequence[PoolKey]) -> Iterable[tuple[SweepRow, Scores | None]]:
        if not self.retriever.pool_independent:
            members = [self.pools.texts(self._pool(key)) for key in keys]
            queries = [self.pools.rows[key.query].query for key in keys]
            for key, result in zip(keys, self.retriever.results(queries, members), strict=True):
                yield self._finish(key, result, slice(None))
            return
        numbers = list(dict.fromkeys(key.query for key in keys))
        unions = {n: self._union(n) for n in numbers}
        memories = [[self.pools.memories[i] for i in unions[n]] for n in numbers]
        queries = [self.pools.rows[n].query for n in numbers]
        results = dict(zip(numbers, self.retriever.results(queries, memories), strict=True))
        for key in keys:
            at = np.searchsorted(unions[key.query], self._pool(key).members)
            yield self._finish(key, results[key.query], at)

    def _union(self, query: int) -> Ints:
        """All memories of a query's pools, whatever part of them is left to do."""
        found: Ints = np.unique(
            np.concatenate([pools[query].members for pools in self.pools.pools.values()])
        )
        return found

    def _finish(
        self, key: PoolKey, result: Scored | NotScored, at: slice | Ints
    ) -> tuple[SweepRow, Scores | None]:
        pool = self._pool(key)
        memories = self.pools.texts(pool)
        where = (self.pools.rows[key.query].benchmark_id, self.label, key.distractors)
        if isinstance(result, NotScored):
            return SweepRow.failed(where, memories, pool.golds, result.cause), None
        scores = np.asarray(result.scores)[at]
        # In a union of pools there is no first stage and no prompt of this one.
        known = result if isinstance(at, slice) else Scored((), usage=result.usage)
        row = SweepRow.scored(
            where,
            memories,
            pool.golds,
            scores,
            **result.usage.counts,
            repairs=dict(result.repairs),
            reranked=_reranked(known, pool.golds),
        )
        return row, scores


def _reranked(result: Scored, golds: Sequence[int]) -> Reranking | None:
    """What is known of reranking; None if nothing is, and the row then has no key of it."""
    estimated = result.usage.unreported
    known = any(part is not None for part in (result.first_stage, result.depth, result.shown))
    if not known and not estimated:
        return None
    first = None if result.first_stage is None else np.asarray(result.first_stage, np.float32)
    return Reranking.of(golds, first, result.depth, result.shown, estimated)


_scorer: Scorer | None = None


def _start(frozen: bytes) -> None:
    global _scorer
    # Ctrl-C is the parent's to answer; and a worker must not outlive a parent that was killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, args=(parent_process(),), daemon=True).start()
    _scorer = pickle.loads(frozen)


def _follow(parent: BaseProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(keys: Sequence[PoolKey]) -> list[ScoredPool]:
    assert _scorer is not None
    return _scorer.run(keys)


def run_tasks(
    scorer: Scorer, tasks: Sequence[Sequence[PoolKey]], workers: int
) -> Iterator[list[ScoredPool]]:
    """The finished rows of each task, in the order of `tasks`, whatever the number of workers.

    Workers are spawned, never forked: a CUDA context or a thread pool doesn't survive a fork. They
    receive the prepared retriever as a pickle. Raise UserError if it cannot be pickled, or a
    worker dies.
    """
    if workers == 1 or len(tasks) < 2:
        yield from map(scorer.run, tasks)
        return
    try:
        frozen = pickle.dumps(scorer)
    except UserError as error:
        raise UserError(f"{scorer.label}: {error}") from None
    except Exception as error:
        raise UserError(
            f"{scorer.label}: cannot be sent to worker processes ({error}). Use --workers 1"
        ) from error
    pool = ProcessPoolExecutor(
        min(workers, len(tasks)), get_context("spawn"), initializer=_start, initargs=(frozen,)
    )
    try:
        yield from pool.map(_work, tasks)
    except BrokenProcessPool:
        raise UserError(
            f"{scorer.label}: a worker process died; its own message is above. A script that"
            " starts workers needs `if __name__ == '__main__':`. Or use --workers 1"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def chat_models_of(notes: Mapping[str, Any]) -> list[str]:
    """The chat models that a retriever's notes name as `chat_model`, those of legs included."""
    found = {notes["chat_model"]} if isinstance(notes.get("chat_model"), str) else set()
    for value in notes.values():
        if isinstance(value, Mapping):
            found.update(chat_models_of(value))
    return sorted(found)
