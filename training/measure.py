"""Recall of retrievers on queries that they were not trained on, compared in pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import Recall, above_tied, ranked
from analysis.statistics import Bootstrap, rounded
from recallbed.corpus.material import Material
from recallbed.corpus.pools import Pool, PoolSet
from recallbed.errors import UserError
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical
from recallbed.harness.progress import progress
from recallbed.harness.text_table import TextTable
from retrievers.base import NotScored, Retriever
from retrievers.trained import read_json_object

KS = (1, 5, 10, 20)
BASELINE, BASELINE_MODEL = "minilm", "all-MiniLM-L6-v2"
"""What trained retrievers are compared with: its label, and the model of `dense`."""
FIGURES_FILE = "crossvalidation.json"
_BATCH = 16

RecallBySize = Mapping[tuple[int, int], NDArray[np.float64]]
"""By (distractors, k), the recall of each query averaged over pool seeds, (queries,)."""


@dataclass(frozen=True)
class HeldOut:
    """Recalls of retrievers over the same queries, by label; `sessions` names that of each query.

    A query on which any retriever failed is left out for all, and counted in `failed`.
    """

    recalls: Mapping[str, RecallBySize]
    sessions: Sequence[str]
    queries: Sequence[str]
    failed: int


def measure(
    material: Material,
    retrievers: Mapping[str, Callable[[int], Retriever]],
    ks: Sequence[int] = KS,
    rows: Sequence[int] | None = None,
) -> HeldOut:
    """Score every pool of the rows with the retriever that a label has for the row's number.

    `rows` are numbers of `material.pools.rows`, all by default. A label whose models differ by fold
    returns for each row the model that did not see it. Raises UserError if no query is left.
    """
    pools = material.pools
    numbers = list(range(len(pools.rows))) if rows is None else list(rows)
    found: dict[str, dict[tuple[int, int], NDArray[np.float64]]] = {}
    for label, retriever_of in retrievers.items():
        by_model: dict[int, tuple[Retriever, list[int]]] = {}
        for number in numbers:
            model = retriever_of(number)
            by_model.setdefault(id(model), (model, []))[1].append(number)
        place = {number: i for i, number in enumerate(numbers)}
        values = {(size, k): np.zeros((len(numbers),)) for size in material.sizes for k in ks}
        with progress(f"measuring {label}", len(numbers)) as advance:
            for model, of_model in by_model.values():
                _prepare(label, model, pools, of_model)
                for start in range(0, len(of_model), _BATCH):
                    batch = of_model[start : start + _BATCH]
                    _add(values, model, material, batch, [place[n] for n in batch], ks)
                    advance(len(batch))
        found[label] = values
    failed = np.any([np.isnan(v) for one in found.values() for v in one.values()], axis=0)
    kept = np.flatnonzero(~failed)
    if not len(kept):
        raise UserError("no query could be scored")
    return HeldOut(
        {label: {key: v[kept] for key, v in one.items()} for label, one in found.items()},
        [pools.rows[numbers[i]].session_id for i in kept],
        [pools.rows[numbers[i]].benchmark_id for i in kept],
        int(failed.sum()),
    )


def _prepare(label: str, model: Retriever, pools: PoolSet, numbers: Sequence[int]) -> None:
    members = np.unique(
        np.concatenate([of_all[i].members for of_all in pools.pools.values() for i in numbers])
    )
    memories = [pools.memories[i] for i in members]
    model.prepare_for(label, [pools.rows[i].query for i in numbers], memories)


def _add(
    values: dict[tuple[int, int], NDArray[np.float64]],
    model: Retriever,
    material: Material,
    batch: Sequence[int],
    places: Sequence[int],
    ks: Sequence[int],
) -> None:
    """Add a batch's share of the mean over pool seeds; NaN for a query that fails."""
    pools = material.pools
    queries = [pools.rows[i].query for i in batch]
    keys = list(pools.pools)
    if model.pool_independent:
        unions = [
            np.unique(np.concatenate([pools.pools[k][i].members for k in keys])) for i in batch
        ]
        memories = [[pools.memories[m] for m in union] for union in unions]
        scored = model.results(queries, memories)
        parts = {
            key: [
                None
                if isinstance(one, NotScored)
                else np.asarray(one.scores)[np.searchsorted(union, pools.pools[key][i].members)]
                for i, union, one in zip(batch, unions, scored, strict=True)
            ]
            for key in keys
        }
    else:
        parts = {}
        for key in keys:
            of_key = [pools.texts(pools.pools[key][i]) for i in batch]
            scored = model.results(queries, of_key)
            parts[key] = [
                None if isinstance(one, NotScored) else np.asarray(one.scores) for one in scored
            ]
    share = 1 / len(material.seeds)
    for (size, seed), scores in parts.items():
        for i, place, one in zip(batch, places, scores, strict=True):
            for k in ks:
                values[size, k][place] += share * _recall(one, pools.pools[size, seed][i], k)


def _recall(scores: NDArray[Any] | None, pool: Pool, k: int) -> float:
    if scores is None:
        return float("nan")
    checked = ranked(scores, len(pool))
    return Recall(k).value([above_tied(checked, gold) for gold in pool.golds])


def held_out_figures(
    found: HeldOut, material: Material, baseline: str, folds: int, seed: int = 0
) -> dict[str, Any]:
    """Return the content of crossvalidation.json.

    By label, metric and size: the mean with its 95 % interval over sessions, and the same of the
    paired difference to `baseline`. All are over the same resamples.
    """
    bootstrap = Bootstrap(found.sessions, seed)
    retrievers: dict[str, Any] = {}
    for label, recalls in found.recalls.items():
        keys = list(recalls)
        metrics: dict[str, dict[str, Any]] = {}
        values = np.array([recalls[key] for key in keys])
        gaps = values - np.array([found.recalls[baseline][key] for key in keys])
        means = bootstrap.intervals(values)
        differences = bootstrap.intervals(gaps, (-1.0, 1.0))
        for (size, k), mean, gap in zip(keys, means, differences, strict=True):
            entry: dict[str, Any] = dict(mean.to_json())
            if label != baseline:
                entry[f"minus {baseline}"] = gap.to_json()
            metrics.setdefault(f"R@{k}", {})[str(size)] = entry
        retrievers[label] = metrics
    content: dict[str, Any] = rounded(
        {
            "format": 1,
            "folds": folds,
            "strategy": material.strategy,
            "pool_seeds": list(material.seeds),
            "distractors": list(material.sizes),
            "queries": len(found.sessions),
            "sessions": len(set(found.sessions)),
            "failed": found.failed,
            "baseline": baseline,
            "retrievers": retrievers,
        }
    )
    return content


def write_figures(folder: Path, figures: Mapping[str, Any]) -> None:
    """Write crossvalidation.json."""
    write_atomically(folder / FIGURES_FILE, canonical(figures) + "\n")


def read_figures(path: Path) -> dict[str, Any]:
    """Read crossvalidation.json. Raises UserError for another file."""
    found = read_json_object(path, 1)
    if not {"folds", "retrievers", "distractors"} <= found.keys():
        raise UserError(f"{path}: is no crossvalidation.json")
    return found


def figures_table(figures: Mapping[str, Any]) -> TextTable:
    """Return the recalls by size, and the difference to the baseline at the largest size."""
    sizes = [str(size) for size in figures["distractors"]]
    baseline = figures["baseline"]
    against = f"- {baseline} at {sizes[-1]}"
    seeds = ", ".join(map(str, figures["pool_seeds"]))
    table = TextTable(
        f"Recall by distractors on held-out sessions: {figures['queries']} queries,"
        f" {figures['folds']} folds, {figures['strategy']} pools, seeds {seeds}",
        ("retriever", "metric", *sizes, against),
        keys=2,
        texts=("metric", against),
    )
    for label, metrics in figures["retrievers"].items():
        for metric, by_size in metrics.items():
            gap = by_size[sizes[-1]].get(f"minus {baseline}")
            shown = f"{gap['mean']:+.4f} [{gap['low']:+.4f}, {gap['high']:+.4f}]" if gap else ""
            means = (f"{by_size[size]['mean']:.4f}" for size in sizes)
            table.add(label, metric, *means, shown)
    return table
