"""Choosing settings on one split, with an honest estimate of what the choice is worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.statistics import Z95, Paired, paired
from recallbed.corpus.material import Material
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from retrievers.base import RunContext
from retrievers.hybrid import Hybrid
from retrievers.registry import build_retrievers
from task3.folds import folds_of
from task3.grid import Candidate, configured
from task3.leg_scores import LegScores
from task3.options import Objective

BySize = Mapping[int, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a tuning run found. All recalls are recall@k, by size.

    `means` holds the recall of each candidate over all queries, `worth` the objective of each;
    `chosen` is the best candidate, `by_fold` the best without each fold. `estimate` is the recall
    of the choice on the folds it wasn't made on, beside the configuration as it was given and its
    legs; `against` compares the two, by size and name of the other. `failed` counts the queries
    left out because some candidate failed on them.
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
    """Score each leg once a setting, then every candidate on what was kept.

    Each fold's estimate comes from the candidate that is best on the other folds; ties go to the
    candidate that stands first. `mean` is the mean of recall@k over sizes. `floor` is the worst
    size's lower 95 % bound (normal) of the paired difference to the best leg at that size, or to
    the configuration as given where it has no legs: it prefers the candidate that can least hurt.

    Raises UserError for wrong settings, and for a fold without sessions or without scored ones.
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
