"""Paired comparisons of figures over the same queries. Pure functions; draws come from a seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.p_values import FLIPS, mcnemar, sign_flip_tests
from analysis.statistics import RESAMPLES, Bootstrap, Floats

NOT_SHOWN = "not shown to differ"
QUERIES = ("query", "queries")
"""What is compared, one and several, unless a caller says otherwise."""
_EQUAL = 1e-12
_DECIMALS = 12


@dataclass(frozen=True, slots=True)
class Paired:
    """A paired comparison: mean of a - b with its 95 % interval, wins, ties, losses and tests.

    `p` is of the randomisation test over sessions, `mcnemar` of the exact test if all values are 0
    or 1 and every session has one query. `effect` is the standardised mean difference: the
    difference divided by the standard deviation of the sessions' contributions. Without two
    clusters nothing is known of the spread: `low`, `high`, `p` and `verdict` are None. If all
    differences are equal a resample holds nothing else, so `low`, `high` and `verdict` are None,
    too. What is None has its reason beside it.
    """

    n: int
    clusters: int
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    wins: int
    ties: int
    losses: int
    p: float | None
    verdict: str | None
    reason: str | None = None
    mcnemar: float | None = None
    mcnemar_reason: str | None = None
    effect: float | None = None
    effect_reason: str | None = None

    @property
    def interval_text(self) -> str:
        """The interval, or why there is none."""
        if self.low is None or self.high is None:
            return f"(no interval: {self.reason})"
        return f"[{self.low:+.4f}, {self.high:+.4f}]"

    @property
    def equal(self) -> bool:
        """Whether no value differs."""
        return not self.wins and not self.losses


def paired(
    a: Mapping[str, float],
    b: Mapping[str, float],
    clusters: Mapping[str, str] | None = None,
    seed: int = 0,
    *,
    units: tuple[str, str] = QUERIES,
    flips: int = FLIPS,
) -> Paired:
    """Compare two systems on the same queries, `a[query]` with `b[query]`.

    `units` names what is compared, one and several. Raises ValueError if the query sets differ or
    are empty. No field is ever NaN.
    """
    if set(a) != set(b):
        odd = sorted(set(a) ^ set(b))
        raise ValueError(f"not the same {units[1]}: {len(odd)} are in one only, such as {odd[0]}")
    if not a:
        raise ValueError(f"no {units[1]} to compare")
    queries = sorted(a)
    first, second = (np.array([[side[query] for query in queries]], float) for side in (a, b))
    names = [clusters.get(query, query) if clusters else query for query in queries]
    return paired_figures(first, second, names, seed, units=units, flips=flips)[0]


def paired_figures(
    a: Floats,
    b: Floats,
    clusters: Sequence[str],
    seed: int = 0,
    *,
    units: tuple[str, str] = QUERIES,
    flips: int = FLIPS,
    resamples: int = RESAMPLES,
) -> list[Paired]:
    """Compare several figures of the same queries at once; both sides are (figures, queries).

    All are compared over the same resamples and sign patterns.
    """
    gaps = a - b
    gaps[abs(gaps) < _EQUAL] = 0.0  # a fraction summed in another order is a tie
    bootstrap = Bootstrap(clusters, seed, resamples)
    sums = np.array([np.bincount(bootstrap.of_row, gap, bootstrap.n) for gap in gaps])
    ps: list[float | None] = [None] * len(gaps)
    if bootstrap.n > 1:
        ps = [float(p) for p in sign_flip_tests(sums, seed, flips)]
    varies = [bool(bootstrap.n > 1 and gap.any() and np.ptp(gap) >= _EQUAL) for gap in gaps]
    ends: Iterator[Floats] = iter(())
    if any(varies):
        ends = iter(np.percentile(bootstrap.means(gaps[varies]), [2.5, 97.5], axis=1).T)
    found = []
    for i, gap in enumerate(gaps):
        low = high = verdict = None
        reason = None if varies[i] else _why_no_interval(gap, bootstrap.n, units)
        if varies[i]:
            # The last bits of a sum depend on how many threads make it.
            low, high = (round(float(end), _DECIMALS) for end in next(ends))
            verdict = NOT_SHOWN if low <= 0 <= high else "a is better" if low > 0 else "b is better"
        wins, losses = int((gap > 0).sum()), int((gap < 0).sum())
        why_inexact = _why_no_mcnemar(a[i], b[i], bootstrap.n, units)
        effect, why_no_effect = _effect(gap, sums[i], bootstrap, units)
        found.append(
            Paired(
                n=len(gap),
                clusters=bootstrap.n,
                a=float(a[i].mean()),
                b=float(b[i].mean()),
                difference=float(gap.mean()),
                low=low,
                high=high,
                wins=wins,
                ties=len(gap) - wins - losses,
                losses=losses,
                p=ps[i],
                verdict=verdict,
                reason=reason,
                mcnemar=None if why_inexact else mcnemar(wins, losses),
                mcnemar_reason=why_inexact,
                effect=effect,
                effect_reason=why_no_effect,
            )
        )
    return found


def _why_no_interval(gap: Floats, clusters: int, units: tuple[str, str]) -> str:
    if not gap.any():
        return f"no difference on any {units[0]}"
    if clusters < 2:
        return _one_session(len(gap), units)
    return f"the difference is the same on every {units[0]}"


def _one_session(n: int, units: tuple[str, str]) -> str:
    return f"there is one {units[0]} only" if n == 1 else f"all {units[1]} are of one session"


def _why_no_mcnemar(a: Floats, b: Floats, clusters: int, units: tuple[str, str]) -> str | None:
    if not (np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all()):
        return "the values are not all 0 or 1"
    if clusters < 2:
        return _one_session(len(a), units)
    return f"several {units[1]} are of one session" if clusters < len(a) else None


def _effect(
    gap: Floats, sums: Floats, bootstrap: Bootstrap, units: tuple[str, str]
) -> tuple[float | None, str | None]:
    """Cohen's d (1988) of paired values over sessions of any sizes, or why there is none.

    Sessions contribute (sum of differences - rows * mean difference) / mean rows around the mean:
    with sessions of equal size, d is the mean of their differences by its standard deviation.
    """
    if not gap.any() or bootstrap.n < 2:
        return None, _why_no_interval(gap, bootstrap.n, units)
    mean = float(gap.mean())
    spread = (sums - bootstrap.sizes * mean) / bootstrap.sizes.mean()
    deviation = math.sqrt(float((spread**2).sum()) / (bootstrap.n - 1))
    if deviation < _EQUAL:
        return None, "the difference is the same in every session"
    return mean / deviation, None
