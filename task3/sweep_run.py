"""A sweep: every retriever over every pool."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

from typing_extensions import override

from analysis.rows import SweepRow, is_sweep_row
from analysis.summary import SweepSummary, summarise
from recallbed.chat_models.session import Chats, open_chats
from recallbed.corpus.material import Material, gather
from recallbed.corpus.pools import pool_hash
from recallbed.errors import UserError
from recallbed.harness.experiment import Experiment, Finished, Outcome, execute, plan
from recallbed.harness.plan import Plan
from recallbed.harness.progress import progress
from recallbed.harness.run_folder import RunFolder
from retrievers.base import Retriever
from retrievers.registry import build_retrievers, describe_retriever
from retrievers.rerank.base import Reranker
from retrievers.unseen import only_unseen
from task3.options import SweepConfig
from task3.order_check import check_order
from task3.pool_scoring import PoolKey, ScoredPool, Scorer, chat_models_of, run_tasks

QUERIES_PER_TASK = 16
SweepKey = tuple[str, PoolKey]
"""A label and one of its pools."""


def run_sweep(config: SweepConfig) -> Outcome[SweepSummary]:
    """Score every pool with every retriever. Raises DataError, and UserError as `execute`."""
    if config.chat.dry_run:
        raise UserError("a dry run scores nothing. Use plan_sweep")
    with open_chats(config.chat) as chats:
        return execute(open_sweep(config, chats), config.run)


def plan_sweep(config: SweepConfig) -> Mapping[str, Plan]:
    """Return what the sweep would send. Raises DataError for invalid data, and as `plan`."""
    with open_chats(config.chat) as chats:
        return plan(open_sweep(config, chats))


def open_sweep(config: SweepConfig, chats: Chats) -> Sweep:
    """Load the data and build the retrievers of a sweep.

    Raises UserError if a reranker's depth is too small to change any figure, and for retrievers
    that were trained on the rows.
    """
    material = gather(
        config.data.data,
        config.data.split,
        config.pools.pools,
        config.pools.distractors,
        config.pools.pool_seeds,
        config.data.limit,
    )
    run = config.retrievers.context(config.seed, material.data.bank, chats)
    retrievers = build_retrievers(config.retrievers.configurations, run)
    for label, retriever in retrievers.items():
        depth = retriever.depth if isinstance(retriever, Reranker) else None
        if depth is not None and depth <= min(config.ks):
            raise UserError(
                f"{label}: reranking the first {depth} cannot change R@{min(config.ks)} or beyond."
                f" Set a larger {label}.depth, or a --k below {depth}"
            )
    material = only_unseen(material, retrievers.items(), config.retrievers.unseen)
    return Sweep(config, material, retrievers, chats)


class Sweep(Experiment[SweepKey, SweepSummary]):
    """Labelled retrievers over the pools of `material`, in the order labels, sizes, queries.

    A dry run takes every pool through every retriever that asks a model, and keeps no row: a call
    whose reply is not stored fails as not sent.
    """

    def __init__(
        self,
        config: SweepConfig,
        material: Material,
        retrievers: Mapping[str, Retriever],
        chats: Chats,
    ) -> None:
        self.config, self.chats = config, chats
        self.material, self.pools, self.retrievers = material, material.pools, retrievers
        self.name = "+".join(retrievers)
        self.libraries = {"numpy", *(name for r in retrievers.values() for name in r.libraries)}
        self.seed, self.keep_scores = config.seed, config.keep_scores
        self._folder: RunFolder | None = None
        self._hashes: dict[PoolKey, str] = {}

    @override
    def fingerprint(self) -> Mapping[str, Any]:
        by_label = {one.label: one for one in self.config.retrievers.configurations}
        return {
            **self.material.fingerprint(),
            "retrievers": [
                {"label": label, **describe_retriever(by_label[label], retriever)}
                for label, retriever in self.retrievers.items()
            ],
            **({"kept": "scores"} if self.keep_scores else {}),
        }

    @override
    def keys(self) -> Sequence[SweepKey]:
        return [(label, key) for label in self.retrievers for key in self._pool_keys()]

    def _pool_keys(self) -> list[PoolKey]:
        queries = range(len(self.pools.rows))
        return [PoolKey(*pool, query) for pool in self.pools.pools for query in queries]

    @override
    def is_row(self, row: Any) -> bool:
        return is_sweep_row(row)

    @override
    def is_row_of(self, row: Mapping[str, Any], key: SweepKey) -> bool:
        label, pool = key
        if pool not in self._hashes:
            members = self.pools.pools[pool.distractors, pool.seed][pool.query]
            self._hashes[pool] = pool_hash(self.pools.texts(members))
        query = self.pools.rows[pool.query].benchmark_id
        expected = (label, pool.distractors, query, self._hashes[pool])
        return tuple(row[k] for k in ("retriever", "distractors", "query", "pool")) == expected

    @override
    def part(self, key: SweepKey) -> str:
        return key[0]

    @override
    @contextmanager
    def opened(self, folder: RunFolder) -> Iterator[None]:
        self._folder = folder
        folder.manifest.update(self.material.facts())
        rows = self.material.data.smallest.sha256
        folder.manifest["fitted_on_these_rows"] = [
            label for label, retriever in self.retrievers.items() if rows in retriever.fitted_on
        ]
        self._keep_prices(folder)
        yield

    @override
    def produce(self, keys: Sequence[SweepKey]) -> Iterator[Sequence[Finished]]:
        for label, members in groupby(keys, itemgetter(0)):
            pools = [pool for _, pool in members]
            waiting: dict[PoolKey, Finished] = {}
            following = 0
            for scored in self._score(label, pools):
                waiting.update((one.key, one.finished) for one in scored)
                ready = []
                while following < len(pools) and pools[following] in waiting:
                    ready.append(waiting.pop(pools[following]))
                    following += 1
                yield ready

    def _score(self, label: str, pools: Sequence[PoolKey]) -> Iterator[list[ScoredPool]]:
        assert self._folder is not None
        folder = self._folder
        started = time.perf_counter()
        scorer = self._prepared(label)
        folder.manifest["notes"][label] = dict(scorer.retriever.notes())
        self._keep_prices(folder)
        folder.write_manifest()
        self._check_order(label)
        seconds = round(time.perf_counter() - started, 4)
        folder.time(retriever=label, phase="prepare", seconds=seconds)
        with progress(label, len(pools)) as advance:
            for scored in run_tasks(scorer, self._tasks(scorer, pools), self.config.workers):
                yield scored
                advance(len(scored))

    def _prepared(self, label: str) -> Scorer:
        retriever = self.retrievers[label]
        queries = (row.query for row in self.pools.rows)
        retriever.prepare_for(label, queries, self.pools.memories)
        return Scorer(label, retriever, self.pools, self.keep_scores)

    def _tasks(self, scorer: Scorer, pools: Sequence[PoolKey]) -> list[list[PoolKey]]:
        """With a chat model a task keeps its calls in progress: some queries wait for a reply."""
        chats = chat_models_of(scorer.retriever.notes())
        return scorer.tasks(pools, 2 * self.config.chat.in_flight if chats else QUERIES_PER_TASK)

    def _check_order(self, label: str) -> None:
        rows = self.pools.rows
        smallest = self.pools.pools[min(self.pools.pools)]
        check_order(
            label,
            self.retrievers[label],
            [row.benchmark_id for row in rows],
            lambda i: (rows[i].query, self.pools.texts(smallest[i])),
            self.config.seed,
        )

    def _keep_prices(self, folder: RunFolder) -> None:
        """Record which label asks which models, and their prices; a price kept before stays.

        A row holds tokens and no cost, so none of it is part of the fingerprint.
        """
        manifest = folder.manifest
        models = {label: chat_models_of(notes) for label, notes in manifest["notes"].items()}
        models = {label: names for label, names in models.items() if names}
        if not models:
            return
        manifest["chat_models"] = models
        prices = dict(manifest.get("prices", {}))
        for name in sorted({name for names in models.values() for name in names}):
            if name in self.chats.prices.by_model:
                price = self.chats.prices.by_model[name]
                prices[name] = {"in": price.tokens_in, "out": price.tokens_out}
        manifest["prices"] = prices

    @override
    def summarise(self, folder: RunFolder) -> SweepSummary:
        rows = [SweepRow.from_json(row) for row in folder.rows]
        return summarise(folder.manifest, rows, self.config.ks)

    @override
    def rehearse(self) -> None:
        for label in self.retrievers:
            scorer = self._prepared(label)
            if not chat_models_of(scorer.retriever.notes()):
                continue
            pools = self._pool_keys()
            with progress(f"{label}, dry run", len(pools)) as advance:
                for task in self._tasks(scorer, pools):
                    scorer.run(task)
                    advance(len(task))

    @override
    def plans(self) -> Mapping[str, Plan]:
        return self.chats.plans()
