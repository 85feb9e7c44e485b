"""Intervals and paired comparisons. Pure functions, no room; every draw from a stored seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Z95 = 1.959963984540054
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval, and how the interval was made."""

    mean: float
    low: float
    high: float
    method: str


def wilson(mean: float, n: int) -> Interval:
    """Wilson's score interval for a proportion `mean` over `n` trials (Wilson 1927)."""
    z2 = Z95 * Z95
    middle = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(max(mean * (1 - mean), 0) / n + z2 / (4 * n * n))
    return Interval(mean, max(middle - half, 0.0), min(middle + half, 1.0), "wilson")


class Bootstrap:
    """Percentile bootstrap over clusters (sessions): whole clusters are drawn, with replacement.

    Made once for a list of cluster names and used for many metrics over the same rows, so that
    differences between them are paired.
    """

    def __init__(self, clusters: list[str], seed: int = 0, resamples: int = RESAMPLES) -> None:
        names = {name: i for i, name in enumerate(sorted(set(clusters)))}
        self.of_row = np.array([names[name] for name in clusters], np.int64)
        self.n = len(names)
        rng = np.random.default_rng(seed)
        self.draws = rng.multinomial(self.n, np.full(self.n, 1 / self.n), resamples).astype(float)
        self.sizes = np.bincount(self.of_row, minlength=self.n).astype(float)
        self.rows_drawn = self.draws @ self.sizes

    def means(self, values: Floats) -> Floats:
        """The mean over rows in each resample, (resamples,)."""
        sums = np.bincount(self.of_row, values, self.n)
        found: Floats = (self.draws @ sums) / self.rows_drawn
        return found

    def interval(self, values: Floats) -> Interval:
        """95 % interval of the mean; Wilson's over clusters where all their means are equal."""
        mean = float(values.mean())
        if np.ptp(np.bincount(self.of_row, values, self.n) / self.sizes) < 1e-12:
            return wilson(mean, self.n)
        low, high = np.percentile(self.means(values), [2.5, 97.5])
        return Interval(mean, float(low), float(high), "bootstrap")


@dataclass(frozen=True, slots=True)
class Paired:
    """A paired comparison: mean of a - b with its 95 % interval, wins, losses and p.

    `p` is of the exact sign test (McNemar's) where all differences are 0 or 1, and of a seeded
    sign-flip randomisation test otherwise.
    """

    n: int
    a: float
    b: float
    difference: float
    low: float
    high: float
    wins: int
    losses: int
    p: float
    verdict: str


def sign_test(wins: int, losses: int) -> float:
    """Two-sided exact sign test (McNemar's exact test for 0/1 values); 1.0 with no differences."""
    n = wins + losses
    tail = sum(math.comb(n, i) for i in range(min(wins, losses) + 1))
    return min(float(2 * tail / 2**n), 1.0)


def sign_flip_test(gaps: Floats, seed: int = 0, flips: int = RESAMPLES) -> float:
    """Two-sided paired randomisation test of mean difference 0, (flips + 1 in all; Fisher 1935).

    `gaps` holds one difference a cluster. Each flip turns the signs of all at random.
    """
    gaps = gaps[gaps != 0]
    if not len(gaps):
        return 1.0
    signs = np.random.default_rng(seed).integers(0, 2, (flips, len(gaps))) * 2 - 1
    observed = abs(gaps.sum())
    at_least = int((abs(signs @ gaps) >= observed * (1 - 1e-12)).sum())
    return (at_least + 1) / (flips + 1)


def paired(
    a: Mapping[str, float],
    b: Mapping[str, float],
    clusters: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Paired:
    """Compare two systems on the same queries, `a[query]` with `b[query]`.

    Raises ValueError where the query sets differ or are empty. Two equal systems give "no
    difference", an interval of [0, 0] and p = 1, never NaN.
    """
    if set(a) != set(b):
        odd = sorted(set(a) ^ set(b))
        raise ValueError(f"not the same queries: {len(odd)} are in one only, such as {odd[0]}")
    if not a:
        raise ValueError("no queries to compare")
    queries = sorted(a)
    first = np.array([a[query] for query in queries], float)
    second = np.array([b[query] for query in queries], float)
    gap = first - second
    names = [clusters.get(query, query) if clusters else query for query in queries]
    if np.ptp(gap) == 0 and gap[0] == 0:
        low = high = 0.0
    else:
        low, high = np.percentile(Bootstrap(names, seed).means(gap), [2.5, 97.5])
    wins, losses = int((gap > 0).sum()), int((gap < 0).sum())
    if np.isin(gap, (-1, 0, 1)).all() and len(set(names)) == len(names):
        p = sign_test(wins, losses)
    else:  # ties give fractions, and a count of signs would ignore how small they are
        of_cluster = np.unique(names, return_inverse=True)[1]
        p = sign_flip_test(np.bincount(of_cluster, gap).astype(float), seed)
    verdict = "no difference" if low <= 0 <= high else "a is better" if low > 0 else "b is better"
    return Paired(
        len(queries),
        float(first.mean()),
        float(second.mean()),
        float(gap.mean()),
        float(low),
        float(high),
        wins,
        losses,
        p,
        verdict,
    )
