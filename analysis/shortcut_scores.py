"""Shortcuts scored as retrievers, compared with chance on the same pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.audit_data import AuditRow
from analysis.metrics import Recall, ranked
from analysis.p_values import holm
from analysis.shortcuts import Scores
from analysis.statistics import Bootstrap, Floats, Interval

KS = (1, 5, 10)
DRAWS = 10_000
"""Random places of the golds in a test, and the fewest of a family."""
_DRAWS_PER_TEST = 100


@dataclass(frozen=True, slots=True)
class ShortcutScore:
    """Recall of a ranker over all queries, by k, with that of a random order of the same pools.

    `interval` is of recall@1, by whole sessions. `p` is one-sided, that recall@1 is above chance;
    `holm` is corrected for all rankers scored together. `informed` counts the queries whose
    memories do not all have one score; if there are none, `p` is None, and the ranker does not
    count in the correction.
    """

    recall: Mapping[int, float]
    chance: Mapping[int, float]
    interval: Interval
    informed: int
    p: float | None
    holm: float | None

    @property
    def lift(self) -> float:
        """The share of the way from chance to certainty: (recall@1 - chance) / (1 - chance)."""
        room = 1 - self.chance[1]
        return (self.recall[1] - self.chance[1]) / room if room > 1e-12 else 0.0


def score_shortcuts(
    rows: Sequence[AuditRow],
    scorers: Sequence[Callable[[AuditRow], Scores | None]],
    seed: int = 0,
) -> list[ShortcutScore]:
    """Score every ranker on all rows; ties count in expectation.

    A ranker that says nothing about a pool has chance there. Test: the golds of each pool are moved
    by one random number of places, the same share of the pool for all queries of a session, and
    p = (b + 1) / (draws + 1), where b counts the draws whose recall@1 is at least the observed.
    """
    draws = max(DRAWS, _DRAWS_PER_TEST * len(scorers))
    values = np.zeros((len(scorers), len(KS), len(rows)))
    chance = np.zeros((len(KS), len(rows)))
    informed = np.zeros(len(scorers), int)
    null = np.zeros((len(scorers), draws))
    metrics = [Recall(k) for k in KS]
    numbers = {name: i for i, name in enumerate(sorted({row.session for row in rows}))}
    for place, row in enumerate(rows):
        size = len(row.memories)
        chance[:, place] = [metric.chance(len(row.golds), size) for metric in metrics]
        moved: list[NDArray[np.int64]] = []
        for which, score in enumerate(scorers):
            found = score(row)
            if found is None or np.ptp(found) == 0:
                values[which, :, place] = chance[:, place]
                null[which] += chance[0, place]
                continue
            if not moved:
                rng = np.random.default_rng([seed, numbers[row.session]])
                moves = (rng.random(draws) * size).astype(np.int64)
                moved = [(gold + moves) % size for gold in row.golds]
            informed[which] += 1
            above, tied = _ties(found)
            ties = [(int(above[gold]), int(tied[gold])) for gold in row.golds]
            values[which, :, place] = [metric.value(ties) for metric in metrics]
            first = (above == 0) / (tied * len(moved))
            for places in moved:
                null[which] += first[places]
    ps = [
        _p(null[i], values[i, 0].sum(), draws) if informed[i] else None for i in range(len(scorers))
    ]
    intervals = Bootstrap([row.session for row in rows], seed).intervals(values[:, 0])
    return [
        ShortcutScore(
            {k: float(values[i, j].mean()) for j, k in enumerate(KS)},
            {k: float(chance[j].mean()) for j, k in enumerate(KS)},
            intervals[i],
            int(informed[i]),
            *(ps[i], corrected),
        )
        for i, corrected in enumerate(holm(ps))
    ]


def _ties(scores: Scores) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every position, how many scores are above its own, and how many are equal."""
    single = ranked(scores, len(scores))
    _, place, counts = np.unique(single, return_inverse=True, return_counts=True)
    above = len(single) - np.cumsum(counts)
    return above[place], counts[place]


def _p(null: Floats, observed: float, draws: int) -> float:
    return (int((null >= observed - 1e-9 * max(observed, 1)).sum()) + 1) / (draws + 1)
