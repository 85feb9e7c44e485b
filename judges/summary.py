"""Statistics of verdicts: the mean with its counts, and the agreement of two raters.

Agreement is computed from tables of counts, so that resamples are cheap. A table is
(..., levels, levels): how often rater A gave level i and rater B level j to the same item, over any
number of resamples. A measure returns (...,), NaN if it is not defined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analysis.statistics import Bootstrap, Interval
from judges.verdicts import Judged, Unjudged, Verdict, disagreed
from recallbed.errors import UserError
from recallbed.harness.failures import Failures

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class JudgeSummary:
    """The counts of one judge over its items.

    `score` is over the judged items only and None if there is none: an unjudged item is
    neither right nor wrong. `disagreement` is the share of the items with at least two votes whose
    votes differ, tied ones included; None if no item has two.
    """

    asked: int
    judged: int
    unjudged: Mapping[str, int]
    """By cause, most frequent first."""
    score: Interval | None
    voted: int
    """Items with at least two valid votes."""
    disagreement: float | None
    repairs: Mapping[str, int]

    @property
    def coverage(self) -> float | None:
        """The share of judged items; None without items."""
        return self.judged / self.asked if self.asked else None

    def require(self, what: str) -> Self:
        """Return itself, or raise UserError if no item was judged and there is no score."""
        if self.judged:
            return self
        raise UserError(
            f"{what}: none of {self.asked} items could be judged ({self.causes() or 'no items'}),"
            " so there is no score. Run again when the judge can be reached"
        )

    def causes(self) -> str:
        """The causes of unjudged items as text; "" if all were judged."""
        return ", ".join(f"{cause} {count}" for cause, count in self.unjudged.items())

    def line(self) -> str:
        """Return the score and its counts as one line."""
        if self.score is None:
            return f"no score: 0 of {self.asked} judged ({self.causes() or 'no items'})"
        text = (
            f"{self.score.mean:.4f} [{self.score.low:.4f}, {self.score.high:.4f}],"
            f" {self.judged} of {self.asked} judged, coverage {self.coverage:.4g}"
        )
        if self.unjudged:
            text += f"; unjudged: {self.causes()}"
        if self.disagreement is not None:
            text += f"; votes differ in {self.disagreement:.4g} of {self.voted}"
        return text

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        return {**asdict(self), "coverage": self.coverage}


def rate(
    verdicts: Sequence[Verdict[Any]],
    value: Callable[[Any], float] | None = float,
    clusters: Sequence[str] | None = None,
    seed: int = 0,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> JudgeSummary:
    """Return the mean of `value` over the judged verdicts, with its 95 % interval, and all counts.

    `value` maps a verdict's value to a number within `bounds`, such as `lambda grades:
    grades.mean`; a yes is 1 by default, and None leaves the score out. `clusters` names the row of
    each verdict if several belong to one row; the interval then draws whole rows
    (`analysis.statistics.Bootstrap`).
    """
    names = list(clusters) if clusters is not None else [str(i) for i in range(len(verdicts))]
    if len(names) != len(verdicts):
        raise ValueError(f"{len(names)} clusters for {len(verdicts)} verdicts")
    kept = [(name, v) for name, v in zip(names, verdicts, strict=True) if isinstance(v, Judged)]
    causes = Failures(v.cause for v in verdicts if isinstance(v, Unjudged)).counts
    differ = [one for one in map(disagreed, verdicts) if one is not None]
    repairs = sum((Counter(v.repairs) for _, v in kept), Counter[str]())
    score = None
    if kept and value is not None:
        values = np.array([value(v.value) for _, v in kept], float)
        score = Bootstrap([name for name, _ in kept], seed).interval(values, bounds)
    return JudgeSummary(
        asked=len(verdicts),
        judged=len(kept),
        unjudged=dict(sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))),
        score=score,
        voted=len(differ),
        disagreement=sum(differ) / len(differ) if differ else None,
        repairs=dict(sorted(repairs.items())),
    )


def cohen_kappa(table: Floats) -> Floats:
    """Return agreement beyond chance, (observed - expected) / (1 - expected) (Cohen 1960).

    Expected is that of two independent raters with these marginals. Not defined if both give
    only one and the same level.
    """
    levels = table.shape[-1]
    return _weighted(table, 1 - np.eye(levels))


def margin_kappa(agreed: Floats, first: Floats, second: Floats) -> Floats:
    """Return kappa from `agreed`, (...,), the share of equal ratings, and margins (..., levels).

    Expected agreement is the sum over levels of the product of both raters' shares. If the margins
    are over the items that both rated, this is Cohen's kappa; if they are over all that each rated,
    Gwet's for missing ratings (De Raadt et al. 2019). Not defined if both give only one level.
    """
    totals = first.sum(-1) * second.sum(-1)
    expected = _divided((first * second).sum(-1), totals)
    return _divided(agreed - expected, 1 - expected)


def krippendorff_alpha(disagreed: Floats, values: Floats) -> Floats:
    """Return the nominal alpha, 1 - observed / expected disagreement (Krippendorff 2004).

    Items with at least two ratings count. `disagreed`, (...,), sums over them the number of ordered
    pairs of unequal ratings, divided by ratings - 1; `values`, (..., levels), counts their ratings.
    Not defined if all ratings are equal.
    """
    n = values.sum(-1)
    expected = _divided(n**2 - (values**2).sum(-1), n - 1)
    found: Floats = 1 - _divided(disagreed, expected)
    return found


def quadratic_kappa(table: Floats, levels: Sequence[float]) -> Floats:
    """Return kappa, disagreement weighted by the squared distance of the levels (Cohen 1968)."""
    steps = np.asarray(levels, float)
    return _weighted(table, (steps[:, None] - steps[None, :]) ** 2)


def _weighted(table: Floats, weights: Floats) -> Floats:
    """Return 1 - observed / expected disagreement; with 0/1 weights that is Cohen's kappa."""
    n = table.sum((-2, -1))
    expected = table.sum(-1)[..., :, None] * table.sum(-2)[..., None, :]
    wanted = (expected * weights).sum((-2, -1)) / n
    found: Floats = 1 - _divided((table * weights).sum((-2, -1)), wanted)
    return found


def spearman(table: Floats) -> Floats:
    """Return Spearman's rank correlation with mid-ranks for ties; levels ascend.

    It is Pearson's over the ranks, which for ratings are determined by the marginals. Not
    defined if a rater gives only one level.
    """
    n = table.sum((-2, -1))[..., None]
    # A level's mid-rank, as a deviation from the mean rank (n + 1) / 2.
    rows, columns = table.sum(-1), table.sum(-2)
    a = np.cumsum(rows, -1) - rows / 2 - n / 2
    b = np.cumsum(columns, -1) - columns / 2 - n / 2
    both = (table * a[..., :, None] * b[..., None, :]).sum((-2, -1))
    spread = np.sqrt((rows * a**2).sum(-1) * (columns * b**2).sum(-1))
    return _divided(both, spread)


def f1(table: Floats, positive: int) -> Floats:
    """Return 2 tp / (2 tp + fp + fn) for the level at `positive`, whichever rater is the truth.

    Not defined if neither ever gives it.
    """
    given = table[..., positive, :].sum(-1) + table[..., :, positive].sum(-1)
    return _divided(2 * table[..., positive, positive], given)


def pair_f1(both: Floats, first: Floats, second: Floats) -> Floats:
    """Return 2 `both` / (`first` + `second`), for two sets and their intersection.

    Not defined if both are empty.
    """
    return _divided(2 * both, first + second)


def _divided(above: Floats, below: Floats) -> Floats:
    found: Floats = np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)
    return found
