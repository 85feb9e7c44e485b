"""Choice of settings on one split, with an unbiased estimate of its recall on other sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import Recall, above_tied, ranked
from analysis.paired import Paired, paired
from analysis.statistics import Z95
from recallbed.corpus.material import Material
from recallbed.corpus.pools import Pool, PoolSet
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from recallbed.harness.progress import progress
from retrievers.base import NotScored, Retriever, RunContext, Scored
from retrievers.hybrid import Hybrid
from retrievers.registry import build_retrievers, leg_finder
from task3.options import Objective
from task3.order_check import check_order

Candidate = Mapping[tuple[str, str], str]
"""A value for each (label, key)."""

_SHARES = ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "0.8", "0.9", "0.95", "0.98", "0.99")
_DEFAULT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "bm25": {
        "k1": ("1.5", "0", "0.2", "0.4", "0.8", "1.2", "2"),
        "b": ("0.75", "0", "0.25", "0.5", "1"),
    },
    "hybrid": {"weights": tuple(f"{share},{1 - float(share):g}" for share in _SHARES)},
}


def parse_grid(
    words: Sequence[str], label: str, configurations: Sequence[Configuration]
) -> list[Candidate]:
    """Return the candidates of `LABEL.key=value/value/...` arguments, in the order of their values.

    Without arguments, return the default grid of the retriever at `label`: k1 and b of bm25, the
    weights of a hybrid of two legs. Raise UserError for a malformed argument, an unknown label, a
    value given twice, and a retriever without a default grid.
    """
    labels = {one.label: one for one in configurations}
    values: dict[tuple[str, str], tuple[str, ...]] = {}
    for word in words:
        target, equals, given = word.partition("=")
        owner, dot, key = target.partition(".")
        choices = tuple(given.split("/"))
        if not (equals and dot and key) or "" in choices:
            raise UserError(f"--grid {word}: write it as LABEL.key=value/value/...")
        if owner not in labels:
            raise UserError(
                f"--grid {word}: no retriever has the label `{owner}` (labels: {', '.join(labels)})"
            )
        if (owner, key) in values or len(set(choices)) < len(choices):
            raise UserError(f"--grid {word}: `{owner}.{key}` has a value twice")
        values[owner, key] = choices
    if not values:
        values = _usual(labels[label])
    keys = list(values)
    return [dict(zip(keys, chosen, strict=True)) for chosen in product(*values.values())]


def _usual(target: Configuration) -> dict[tuple[str, str], tuple[str, ...]]:
    grid = _DEFAULT.get(target.name, {})
    if target.settings.get("legs", "").count(",") not in (0, 1):
        grid = {}
    if not grid:
        raise UserError(
            f"{target.label}: no grid is usual for this retriever."
            f" Give --grid {target.label}.key=value/value/..."
        )
    return {(target.label, key): choices for key, choices in grid.items()}


def configured(
    configurations: Sequence[Configuration], candidate: Candidate
) -> tuple[Configuration, ...]:
    """Return the configurations with the candidate's values in place of their own."""
    found = []
    for one in configurations:
        typed = {key: value for (label, key), value in candidate.items() if label == one.label}
        settings, left = {**one.settings, **typed}, one.from_files - typed.keys()
        found.append(replace(one, settings=settings, from_files=left))
    return tuple(found)


def folds_of(sessions: Sequence[str], folds: int) -> NDArray[np.int64]:
    """Return the fold of each session, 0 to folds - 1, by a hash of its id, as (len(sessions),).

    A session is in the same fold whatever else the data holds. Raise UserError for fewer than two
    folds, and for a fold that no session falls into.
    """
    if folds < 2:
        raise UserError(f"--folds {folds}: at least 2 are needed")
    numbers = [
        int.from_bytes(hashlib.blake2b(session.encode(), digest_size=8).digest(), "big") % folds
        for session in sessions
    ]
    empty = sorted(set(range(folds)) - set(numbers))
    if empty:
        raise UserError(
            f"--folds {folds}: {len(set(sessions))} sessions leave fold {empty[0]} empty."
            " Give fewer"
        )
    return np.array(numbers, np.int64)


BATCH = 16
Key = tuple[str, tuple[tuple[str, str], ...]]
Result = Scored | NotScored
Pools = tuple[int, int]


@dataclass
class LegScores:
    """Scores of each retriever that is not a fusion, by name, settings and pool.

    They are kept so that many fusions of the same legs cost one scoring.
    """

    pools: PoolSet
    run: RunContext
    _kept: dict[tuple[Key, Pools], list[Result]] = field(default_factory=dict)
    _built: dict[Key, Retriever] = field(default_factory=dict)

    def recalls(
        self, configurations: Sequence[Configuration], label: str, k: int
    ) -> dict[int, NDArray[np.float64]]:
        """Return by size the recall@k of each query averaged over pool seeds, (queries,).

        It is NaN if the retriever failed on one of the query's pools.
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


BySize = Mapping[int, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a tuning run found. All recalls are recall@k, by size.

    `means` holds the recall of each candidate over all queries, `worth` the objective of each;
    `chosen` is the best candidate, `by_fold` the best without each fold. `estimate` is the recall
    of the choice on the folds that it was not made on. `others` holds the recall of the
    configuration as given and of its legs; `against` compares the estimate with each, by size and
    name. `failed` counts the queries left out because a candidate failed on them.
    """

    label: str
    candidates: Sequence[Candidate]
    means: Sequence[Mapping[int, float]]
    worth: Sequence[float]
    chosen: int
    by_fold: Sequence[int]
    others: Mapping[str, Mapping[int, float]]
    estimate: Mapping[int, float]
    against: Mapping[int, Mapping[str, Paired]]
    queries: int
    failed: int


def tune(
    material: Material,
    run: RunContext,
    configurations: Sequence[Configuration],
    label: str,
    candidates: Sequence[Candidate],
    folds: int = 5,
    objective: Objective = "floor",
    k: int = 1,
) -> Tuned:
    """Score each leg once per setting, then every candidate from the stored scores.

    Each fold's estimate comes from the candidate that is best on the other folds; ties go to the
    first candidate. `mean` is the mean of recall@k over sizes. `floor` is the smallest lower 95 %
    bound (normal) over sizes of the paired difference to the best leg at that size, or to the
    configuration as given if it has no legs: it prefers the candidate with the least possible loss.

    Raise UserError for invalid settings, and for a fold without sessions or without scored ones.
    """
    sessions = [row.session_id for row in material.pools.rows]
    fold = folds_of(sessions, folds)
    scores = LegScores(material.pools, run)
    given = build_retrievers(configurations, run)[label]
    names = given.names if isinstance(given, Hybrid) else ()
    found = [scores.recalls(configured(configurations, one), label, k) for one in candidates]
    others = {"as given": scores.recalls(configurations, label, k)}
    others |= {name: scores.recalls(configurations, name, k) for name in names}
    failed = np.asarray(np.isnan([*_rows(found), *_rows(others.values())]).any(axis=0), np.bool_)
    kept = ~failed
    if len(set(fold[kept])) < folds:
        raise UserError(
            f"{label}: {failed.sum()} of {len(failed)} queries fail, and leave a fold empty"
        )
    found = [_only(one, kept) for one in found]
    others = {name: _only(one, kept) for name, one in others.items()}
    fold = fold[kept]
    references = [others[name] for name in names] or [others["as given"]]

    def worth(one: BySize, among: NDArray[np.bool_]) -> float:
        if objective == "mean":
            return float(np.mean([one[size][among].mean() for size in one]))
        return min(_floor(one[size][among], [r[size][among] for r in references]) for size in one)

    everywhere = np.ones(int(kept.sum()), np.bool_)
    values = [worth(one, everywhere) for one in found]
    by_fold = [int(np.argmax([worth(one, fold != n) for one in found])) for n in range(folds)]
    estimate = {
        size: np.select([fold == n for n in range(folds)], [found[c][size] for c in by_fold])
        for size in found[0]
    }
    ids = [row.benchmark_id for row, keep in zip(material.pools.rows, kept, strict=True) if keep]
    of_session = {row.benchmark_id: row.session_id for row in material.pools.rows}
    return Tuned(
        label=label,
        candidates=candidates,
        means=[_means(one) for one in found],
        worth=values,
        chosen=int(np.argmax(values)),
        by_fold=by_fold,
        others={name: _means(one) for name, one in others.items()},
        estimate=_means(estimate),
        against={
            size: {
                name: paired(
                    dict(zip(ids, mine.tolist(), strict=True)),
                    dict(zip(ids, other[size].tolist(), strict=True)),
                    of_session,
                    run.seed,
                )
                for name, other in others.items()
            }
            for size, mine in estimate.items()
        },
        queries=len(ids),
        failed=int(failed.sum()),
    )


def _floor(mine: NDArray[np.float64], references: Sequence[NDArray[np.float64]]) -> float:
    gap = mine - max(references, key=lambda values: float(values.mean()))
    return float(gap.mean() - Z95 * gap.std() / np.sqrt(len(gap)))


def _rows(found: Iterable[BySize]) -> list[NDArray[np.float64]]:
    return [values for one in found for values in one.values()]


def _only(found: BySize, kept: NDArray[np.bool_]) -> dict[int, NDArray[np.float64]]:
    return {size: values[kept] for size, values in found.items()}


def _means(found: BySize) -> dict[int, float]:
    return {size: float(values.mean()) for size, values in found.items()}
