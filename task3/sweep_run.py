"""A sweep from settings to a finished run folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.rows import SweepRow, is_sweep_row
from analysis.summary import SweepSummary, summarise, write_summary
from recallbed.chat_models.dry_run import Plan
from recallbed.chat_models.prices import Prices
from recallbed.chat_models.session import Chats, open_chats
from recallbed.corpus.material import Material, gather
from recallbed.corpus.pools import PoolSet, pool_hash
from recallbed.errors import UserError
from recallbed.harness.failures import Failures
from recallbed.harness.files import file_name
from recallbed.harness.fingerprint import code_identity, short_hash, versions
from recallbed.harness.first_failures import FirstFailures
from recallbed.harness.progress import progress
from recallbed.harness.run_folder import RunFolder, open_run, say_reused
from retrievers.base import Retriever
from retrievers.registry import build_retrievers, describe_retriever
from retrievers.rerank.base import Reranker
from task3.options import SweepConfig
from task3.order_check import check_order
from task3.pool_scoring import Finished, PoolKey, Scorer, Scores, chat_models_of, run_tasks

QUERIES_A_TASK = 16


def open_sweep(config: SweepConfig, chats: Chats) -> tuple[Material, dict[str, Retriever]]:
    """The data and pools of a sweep, and its retrievers by label.

    Raises UserError where reranking could change no figure of a label.
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
    return material, retrievers


def pool_keys(pools: PoolSet) -> list[PoolKey]:
    """All pools of a run in the order of its rows."""
    return [PoolKey(*pool, query) for pool in pools.pools for query in range(len(pools.rows))]


def task_size(config: SweepConfig, notes: Mapping[str, Any]) -> int:
    """How many queries are scored, and their rows kept, at once.

    With a chat model enough to keep its calls under way: some queries wait for their next turn.
    """
    return 2 * config.chat.in_flight if chat_models_of(notes) else QUERIES_A_TASK


@dataclass(frozen=True, slots=True)
class Outcome:
    """The folder of a finished sweep, its report, and the content of its summary.json."""

    path: Path
    report: SweepSummary

    @property
    def summary(self) -> Mapping[str, Any]:
        """Return the report as JSON."""
        return self.report.to_json()


def run_sweep(config: SweepConfig) -> Outcome:
    """Score every pool with every retriever; a row is kept once all before it are.

    Raises DataError for faulty data, and UserError for faulty settings, for a folder that holds
    another run, and where not one row could be scored.
    """
    if config.chat.dry_run:
        raise UserError("a dry run scores nothing: task3.sweep_run tells what a sweep would send")
    with open_chats(config.chat) as chats:
        return _run(config, chats)


def _run(config: SweepConfig, chats: Chats) -> Outcome:
    material, retrievers = open_sweep(config, chats)
    fingerprint = _fingerprint(config, material, retrievers)
    path, on_existing = config.run.out, config.run.on_existing
    if path is None:
        name = file_name("+".join(retrievers))[:60]
        path = Path("runs") / f"{name}-{short_hash(fingerprint)}"
        on_existing = "resume" if on_existing == "refuse" else on_existing
    with open_run(path, fingerprint, on_existing, is_sweep_row) as folder:
        folder.manifest.update(material.facts())
        data = material.data.smallest.sha256
        folder.manifest["fitted_on_these_rows"] = [
            label for label, retriever in retrievers.items() if data in retriever.fitted_on
        ]
        Sweep(config, folder, material.pools, retrievers, chats.prices).run()
        folder.write_manifest()
        rows = [SweepRow.from_json(row) for row in folder.rows]
        report = summarise(folder.manifest, rows, config.ks)
        write_summary(path, report)
    if not any(cell.scored for cell in report.cells):
        raise UserError(
            f"{path}: not one of {len(folder.rows)} rows could be scored"
            f" ({Failures(row['error'] for row in folder.rows)})"
        )
    return Outcome(path, report)


class Sweep:
    """The loop over labels, sizes and queries of one open run."""

    def __init__(
        self,
        config: SweepConfig,
        folder: RunFolder,
        pools: PoolSet,
        retrievers: Mapping[str, Retriever],
        prices: Prices,
    ) -> None:
        self.config, self.folder, self.pools, self.retrievers = config, folder, pools, retrievers
        self.prices = prices
        self.keys = pool_keys(pools)

    def run(self) -> None:
        """Do what is left to do, failed rows included where they are to be tried again."""
        self._check_kept_rows()
        self._keep_prices()
        kept = len(self.folder.rows)
        if self.config.run.retry_failed:
            kept -= sum(row["error"] is not None for row in self.folder.rows)
            self._retry_failed()
        for number, label in enumerate(self.retrievers):
            done = len(self.folder.rows) - number * len(self.keys)
            self._fill(label, self.keys[max(done, 0) :])
        say_reused(kept, len(self.folder.rows) - kept)

    def _scorer(self, label: str) -> Scorer:
        retriever = self.retrievers[label]
        queries = (row.query for row in self.pools.rows)
        retriever.prepare_for(label, queries, self.pools.memories)
        self.folder.manifest["notes"][label] = dict(retriever.notes())
        self._keep_prices()
        self.folder.write_manifest()
        return Scorer(label, retriever, self.pools, self.config.keep_scores)

    def _keep_prices(self) -> None:
        """Which label asks which models, and what these cost; a price kept before stays.

        A row holds tokens and no cost, so none of it is part of the fingerprint.
        """
        manifest = self.folder.manifest
        models = {label: chat_models_of(notes) for label, notes in manifest["notes"].items()}
        models = {label: names for label, names in models.items() if names}
        if not models:
            return
        manifest["chat_models"] = models
        prices = dict(manifest.get("prices", {}))
        for name in sorted({name for names in models.values() for name in names}):
            if name in self.prices.by_model:
                price = self.prices.by_model[name]
                prices[name] = {"in": price.tokens_in, "out": price.tokens_out}
        manifest["prices"] = prices

    def _fill(self, label: str, keys: Sequence[PoolKey]) -> None:
        """Score `keys` and append their rows in order, as far as order allows at any time."""
        if not keys:
            return
        waiting: dict[PoolKey, Finished] = {}
        following = 0
        ready: list[Finished] = []
        begun = len(keys) < len(self.keys)
        first = FirstFailures(label, keep_going=self.config.run.keep_going or begun)
        for finished in self._score(label, keys):
            waiting.update((one.place, one) for one in finished)
            seen = len(ready)
            while following < len(keys) and keys[following] in waiting:
                ready.append(waiting.pop(keys[following]))
                following += 1
            first.see(one.row["error"] for one in ready[seen:])
            if not first.decided and following < len(keys):
                continue  # nothing of a run that stops at its first rows is kept
            self.folder.append(
                [one.row for one in ready],
                [one.seconds for one in ready],
                [one.scores for one in ready] if self.config.keep_scores else None,
            )
            ready = []

    def _score(self, label: str, keys: Sequence[PoolKey]) -> Iterator[list[Finished]]:
        started = time.perf_counter()
        scorer = self._scorer(label)
        self._check_order(label)
        seconds = round(time.perf_counter() - started, 4)
        self.folder.time(retriever=label, phase="prepare", seconds=seconds)
        notes = self.folder.manifest["notes"][label]
        tasks = scorer.tasks(keys, task_size(self.config, notes))
        with progress(label, len(keys)) as advance:
            for finished in run_tasks(scorer, tasks, self.config.workers):
                yield finished
                advance(len(finished))

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

    def _retry_failed(self) -> None:
        """Score failed rows again. Where that is stopped, those that were done are kept."""
        rows = list(self.folder.rows)
        scores: dict[int, Scores | None] = {}
        try:
            for number, label in enumerate(self.retrievers):
                start = number * len(self.keys)
                failed = {
                    self.keys[i - start]: i
                    for i in range(start, min(start + len(self.keys), len(rows)))
                    if rows[i]["error"] is not None
                }
                for finished in self._score(label, list(failed)) if failed else ():
                    for one in finished:
                        rows[failed[one.place]] = one.row
                        scores[failed[one.place]] = one.scores
        finally:
            self.folder.rewrite(rows, scores if self.config.keep_scores else None)

    def _check_kept_rows(self) -> None:
        """The rows already there must be the first rows of this plan."""
        if len(self.folder.rows) > len(self.keys) * len(self.retrievers):
            raise UserError(f"{self.folder.path}: holds more rows than this run has")
        hashes = [
            pool_hash(self.pools.texts(self.pools.pools[p.distractors, p.seed][p.query]))
            for p in self.keys[: len(self.folder.rows)]
        ]
        for i, row in enumerate(self.folder.rows):
            label = list(self.retrievers)[i // len(self.keys)]
            place = self.keys[i % len(self.keys)]
            expected = (
                label,
                place.distractors,
                self.pools.rows[place.query].benchmark_id,
                hashes[i % len(self.keys)],
            )
            if tuple(row.get(k) for k in ("retriever", "distractors", "query", "pool")) != expected:
                raise UserError(
                    f"{self.folder.path / 'rows.jsonl'}:{i + 1}: not the row that belongs here."
                    " Start again with --overwrite"
                )


def _fingerprint(
    config: SweepConfig, material: Material, retrievers: Mapping[str, Retriever]
) -> dict[str, Any]:
    by_label = {c.label: c for c in config.retrievers.configurations}
    libraries = {name for r in retrievers.values() for name in r.libraries}
    return {
        **material.fingerprint(),
        "retrievers": [
            {"label": label, **describe_retriever(by_label[label], retriever)}
            for label, retriever in retrievers.items()
        ],
        "code": code_identity(),
        "libraries": versions(sorted({"numpy", *libraries})),
        "seed": config.seed,
        **({"kept": "scores"} if config.keep_scores else {}),
    }


HEDGE = (
    "tokens in: estimated where the tokenizer is a server's; tokens out and cost: the most that may"
    " come; re-asks and calls that hang on earlier replies: counted as far as they are made when no"
    " reply comes, so a run may make more calls or fewer"
)


def plan_sweep(config: SweepConfig) -> Mapping[str, Plan]:
    """By the models' names as given, what the sweep would send. Writes no run folder.

    Every pool goes through every retriever that asks a model, and the rows are thrown away: a call
    that isn't stored fails as not sent. Raises UserError as `run_sweep` does, and where no
    retriever asks a model.
    """
    with open_chats(config.chat) as chats:
        material, retrievers = open_sweep(config, chats)
        for label, retriever in retrievers.items():
            queries = (row.query for row in material.pools.rows)
            retriever.prepare_for(label, queries, material.pools.memories)
            notes = retriever.notes()
            if not chat_models_of(notes):
                continue
            scorer = Scorer(label, retriever, material.pools)
            keys = pool_keys(material.pools)
            with progress(f"{label}, dry run", len(keys)) as advance:
                for task in scorer.tasks(keys, task_size(config, notes)):
                    scorer.run(task)
                    advance(len(task))
        plans = chats.plans()
    if not plans:
        raise UserError("--dry-run: no retriever here asks a chat model")
    return plans


def planned(chats: Chats) -> list[str]:
    """What a dry run of another command came to. Raises UserError if it asks no model."""
    plans = chats.plans()
    if not plans:
        raise UserError("--dry-run: no retriever here asks a chat model")
    return report(plans)


def report(plans: Mapping[str, Plan]) -> list[str]:
    """A line a model, and what the figures are."""
    return [*(plan.line(name) for name, plan in plans.items()), HEDGE]
