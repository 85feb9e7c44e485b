"""Tests of paired differences and their correction for many of them. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from analysis.statistics import BLOCK, Floats

FLIPS = 10_000
"""Sign patterns of a randomisation test, and the fewest of a family."""
_FLIPS_PER_TEST = 100


def flips_of(tests: int) -> int:
    """Return how many sign patterns a family of tests needs: the least Holm p is then about 0.01.

    The p-value of one test is at least 1 / (patterns + 1), and Holm multiplies the smallest by the
    size of the family.
    """
    return max(FLIPS, _FLIPS_PER_TEST * tests)


def sign_flip_tests(gaps: Floats, seed: int = 0, flips: int = FLIPS) -> Floats:
    """Two-sided randomisation tests of mean difference 0 (Fisher 1935; Smucker et al. 2007).

    `gaps`, (tests, clusters), holds one sum of differences per cluster; each pattern turns the
    signs of whole clusters at random, the same for all tests. p = (b + 1) / (flips + 1), where b
    counts the patterns with a larger absolute sum, and one half of those with an equal one (mid-p,
    Lancaster 1961): hits have few distinct sums, and counting equal ones in full rejects too
    rarely. A test without any difference has p = 1.
    """
    observed = abs(gaps.sum(axis=1))
    equal = 1e-12 * abs(gaps).sum(axis=1)
    rng = np.random.default_rng(seed)
    height = max(1, BLOCK // max(gaps.shape))
    twice = np.zeros(len(gaps), np.int64)
    for start in range(0, flips, height):
        signs = rng.integers(0, 2, (min(height, flips - start), gaps.shape[1])) * 2.0 - 1.0
        sums = abs(signs @ gaps.T)
        twice += (sums > observed + equal).sum(axis=0) + (sums >= observed - equal).sum(axis=0)
    found: Floats = np.where(gaps.any(axis=1), (twice / 2 + 1) / (flips + 1), 1.0)
    return found


@lru_cache(maxsize=4096)  # pairs of a family often have the same counts
def mcnemar(wins: int, losses: int) -> float:
    """Two-sided exact McNemar test of hits (McNemar 1947): a binomial test of wins and losses.

    1.0 without either.
    """
    if not wins + losses:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(wins, wins + losses).pvalue)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Return p-values adjusted for their number (Holm 1979), in the order given.

    The i-th smallest of m is multiplied by m - i + 1, is at least the one before it, and at most 1.
    None, a test that was not made, does not count and stays None.
    """
    order = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    found: list[float | None] = [None] * len(ps)
    least = 0.0
    for rank, (p, place) in enumerate(order):
        least = max(least, min(p * (len(order) - rank), 1.0))
        found[place] = least
    return found


def p_text(p: float | None) -> str:
    """Return a p-value for a table: three digits, `<0.001` below these, `-` for none."""
    return "-" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"
