"""A sweep from settings to a finished run folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.summary import summarise, write_summary
from recallbed.chat_models.prices import Prices
from recallbed.chat_models.session import Chats, open_chats
from recallbed.corpus.material import Material
from recallbed.corpus.pools import PoolSet, pool_hash
from recallbed.errors import UserError
from recallbed.harness.failures import Failures
from recallbed.harness.files import file_name
from recallbed.harness.fingerprint import code_hash, own_version, short_hash, versions
from recallbed.harness.first_failures import FirstFailures
from recallbed.harness.progress import progress
from recallbed.harness.run_folder import RunFolder, open_run, say_reused
from retrievers.attempt import prepare
from retrievers.base import Retriever
from retrievers.registry import describe
from task3.config import SweepConfig
from task3.order_check import check_order
from task3.scoring import Finished, Place, Scorer, Scores
from task3.setup import chat_models_of, open_sweep, places_of, task_size
from task3.workers import run_tasks


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a finished sweep lies, and its summary (the content of summary.json)."""

    path: Path
    summary: Mapping[str, Any]


def run_sweep(config: SweepConfig) -> Outcome:
    """Score every pool with every retriever; a row is kept once all before it are.

    Raises DataError for faulty data, and UserError for faulty settings, for a folder that holds
    another run, and where not one row could be scored.
    """
    if config.chat.dry_run:
        raise UserError("a dry run scores nothing: task3.dry_run tells what a sweep would send")
    with open_chats(config.chat) as chats:
        return _run(config, chats)


def _run(config: SweepConfig, chats: Chats) -> Outcome:
    material, retrievers = open_sweep(config, chats)
    fingerprint = _fingerprint(config, material, retrievers)
    path, on_existing = config.out, config.on_existing
    if path is None:
        name = file_name("+".join(retrievers))[:60]
        path = Path("runs") / f"{name}-{short_hash(fingerprint)}"
        on_existing = "resume" if on_existing == "refuse" else on_existing
    if config.retry_failed:
        on_existing = "resume"
    with open_run(path, fingerprint, on_existing) as folder:
        folder.manifest.update(material.facts())
        rows = material.data.smallest.sha256
        folder.manifest["fitted_on_these_rows"] = [
            label for label, retriever in retrievers.items() if rows in retriever.fitted_on
        ]
        Sweep(config, folder, material.pools, retrievers, chats.prices).run()
        folder.write_manifest()
        summary = summarise(folder.manifest, folder.rows, config.ks)
        write_summary(path, summary)
    if not any(cell["scored"] for cell in summary["cells"]):
        raise UserError(
            f"{path}: not one of {len(folder.rows)} rows could be scored"
            f" ({Failures(row['error'] for row in folder.rows)})"
        )
    return Outcome(path, summary)


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
        self.places = places_of(pools)

    def run(self) -> None:
        """Do what is left to do, failed rows included where they are to be tried again."""
        self._check_kept_rows()
        self._keep_prices()
        kept = len(self.folder.rows)
        if self.config.retry_failed:
            kept -= sum(row["error"] is not None for row in self.folder.rows)
            self._retry_failed()
        for number, label in enumerate(self.retrievers):
            done = len(self.folder.rows) - number * len(self.places)
            self._fill(label, self.places[max(done, 0) :])
        say_reused(kept, len(self.folder.rows) - kept)

    def _scorer(self, label: str) -> Scorer:
        retriever = self.retrievers[label]
        queries = (row.query for row in self.pools.rows)
        prepare(label, retriever, queries, self.pools.memories)
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

    def _fill(self, label: str, places: Sequence[Place]) -> None:
        """Score `places` and append their rows in order, as far as order allows at any time."""
        if not places:
            return
        waiting: dict[Place, Finished] = {}
        following = 0
        ready: list[Finished] = []
        begun = len(places) < len(self.places)
        first = FirstFailures(label, keep_going=self.config.keep_going or begun)
        for finished in self._score(label, places):
            waiting.update((one.place, one) for one in finished)
            seen = len(ready)
            while following < len(places) and places[following] in waiting:
                ready.append(waiting.pop(places[following]))
                following += 1
            first.see(one.row["error"] for one in ready[seen:])
            if not first.decided and following < len(places):
                continue  # nothing of a run that stops at its first rows is kept
            self.folder.append(
                [one.row for one in ready],
                [one.seconds for one in ready],
                [one.scores for one in ready] if self.config.keep_scores else None,
            )
            ready = []

    def _score(self, label: str, places: Sequence[Place]) -> Iterator[list[Finished]]:
        started = time.perf_counter()
        scorer = self._scorer(label)
        self._check_order(label)
        seconds = round(time.perf_counter() - started, 4)
        self.folder.time(retriever=label, phase="prepare", seconds=seconds)
        notes = self.folder.manifest["notes"][label]
        tasks = scorer.tasks(places, task_size(self.config, notes))
        with progress(label, len(places)) as advance:
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
                start = number * len(self.places)
                failed = {
                    self.places[i - start]: i
                    for i in range(start, min(start + len(self.places), len(rows)))
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
        if len(self.folder.rows) > len(self.places) * len(self.retrievers):
            raise UserError(f"{self.folder.path}: holds more rows than this run has")
        hashes = [
            pool_hash(self.pools.texts(self.pools.pools[p.distractors, p.seed][p.query]))
            for p in self.places[: len(self.folder.rows)]
        ]
        for i, row in enumerate(self.folder.rows):
            label = list(self.retrievers)[i // len(self.places)]
            place = self.places[i % len(self.places)]
            expected = (
                label,
                place.distractors,
                self.pools.rows[place.query].benchmark_id,
                hashes[i % len(self.places)],
            )
            if tuple(row.get(k) for k in ("retriever", "distractors", "query", "pool")) != expected:
                raise UserError(
                    f"{self.folder.path / 'rows.jsonl'}:{i + 1}: not the row that belongs here."
                    " Start again with --overwrite"
                )


def _fingerprint(
    config: SweepConfig, material: Material, retrievers: Mapping[str, Retriever]
) -> dict[str, Any]:
    by_label = {c.label: c for c in config.configurations}
    libraries = {name for r in retrievers.values() for name in r.libraries}
    return {
        **material.fingerprint(),
        "retrievers": [
            {"label": label, **describe(by_label[label], retriever)}
            for label, retriever in retrievers.items()
        ],
        "code": {"version": own_version(), "sha256": code_hash()},
        "libraries": versions(sorted({"numpy", *libraries})),
        "seed": config.seed,
        **({"kept": "scores"} if config.keep_scores else {}),
    }
