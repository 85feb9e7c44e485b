"""A sweep from settings to a finished run folder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.summary import summarise, write_summary
from corpus.material import Material, gather
from corpus.pools import PoolSet, pool_hash
from harness.errors import UserError
from harness.fingerprint import code_hash, own_version, short_hash, versions
from harness.progress import progress
from harness.run_folder import RunFolder, open_run
from retrievers.base import Retriever, RunContext
from retrievers.registry import build_all, describe
from task3.config import SweepConfig
from task3.scoring import Finished, Place, Scorer, Scores
from task3.workers import run_tasks

QUERIES_A_TASK = 16


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
    material = gather(
        config.data,
        config.split,
        config.pools,
        config.distractors,
        config.pool_seeds,
        config.limit,
    )
    run = RunContext(config.seed, material.data.bank, config.store, config.max_memory)
    retrievers = build_all(config.configurations, run)
    fingerprint = _fingerprint(config, material, retrievers)
    path, on_existing = config.out, config.on_existing
    if path is None:
        name = "+".join(retrievers)[:60]
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
        Sweep(config, folder, material.pools, retrievers).run()
        folder.write_manifest()
        summary = summarise(folder.manifest, folder.rows, config.ks)
        write_summary(path, summary)
    if not any(cell["scored"] for cell in summary["cells"]):
        causes = Counter(row["error"] for row in folder.rows)
        raise UserError(
            f"{path}: not one of {len(folder.rows)} rows could be scored"
            f" ({'; '.join(f'{cause}: {n}' for cause, n in causes.most_common(3))})"
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
    ) -> None:
        self.config, self.folder, self.pools, self.retrievers = config, folder, pools, retrievers
        self.places = [
            Place(size, seed, query)
            for size, seed in pools.pools
            for query in range(len(pools.rows))
        ]

    def run(self) -> None:
        """Do what is left to do, failed rows included where they are to be tried again."""
        self._check_kept_rows()
        if self.config.retry_failed:
            self._retry_failed()
        for number, label in enumerate(self.retrievers):
            done = len(self.folder.rows) - number * len(self.places)
            self._fill(label, self.places[max(done, 0) :])

    def _scorer(self, label: str) -> Scorer:
        retriever = self.retrievers[label]
        memories = sorted(set(self.pools.memories), key=lambda m: (m.text, m.label or ""))
        retriever.prepare_once(sorted({row.query for row in self.pools.rows}), memories)
        self.folder.manifest["notes"][label] = dict(retriever.notes())
        self.folder.write_manifest()
        return Scorer(label, retriever, self.pools, self.config.keep_scores)

    def _fill(self, label: str, places: Sequence[Place]) -> None:
        """Score `places` and append their rows in order, as far as order allows at any time."""
        if not places:
            return
        waiting: dict[Place, Finished] = {}
        following = 0
        for finished in self._score(label, places):
            waiting.update((one.place, one) for one in finished)
            ready = []
            while following < len(places) and places[following] in waiting:
                ready.append(waiting.pop(places[following]))
                following += 1
            self.folder.append(
                [one.row for one in ready],
                [one.seconds for one in ready],
                [one.scores for one in ready] if self.config.keep_scores else None,
            )

    def _score(self, label: str, places: Sequence[Place]) -> Iterator[list[Finished]]:
        started = time.perf_counter()
        scorer = self._scorer(label)
        seconds = round(time.perf_counter() - started, 4)
        self.folder.time(retriever=label, phase="prepare", seconds=seconds)
        tasks = scorer.tasks(places, QUERIES_A_TASK)
        with progress(label, len(places)) as advance:
            for finished in run_tasks(scorer, tasks, self.config.workers):
                yield finished
                advance(len(finished))

    def _retry_failed(self) -> None:
        rows = list(self.folder.rows)
        scores: dict[int, Scores | None] = {}
        for number, label in enumerate(self.retrievers):
            start = number * len(self.places)
            failed = {
                self.places[i - start]: i
                for i in range(start, min(start + len(self.places), len(rows)))
                if rows[i]["error"] is not None
            }
            if failed:
                for finished in self._score(label, list(failed)):
                    for one in finished:
                        rows[failed[one.place]] = one.row
                        scores[failed[one.place]] = one.scores
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
