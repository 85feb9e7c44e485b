"""Tests and their correction, against scipy, statsmodels and enumeration."""

import math
from itertools import product

import numpy as np
import pytest

from analysis import p_values
from analysis.p_values import FLIPS, flips_of, holm, mcnemar, p_text, sign_flip_tests
from analysis.statistics import wilson


def one_test(gaps: object, seed: int = 0, flips: int = FLIPS) -> float:
    return float(sign_flip_tests(np.array([gaps], float), seed, flips)[0])


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (5, 0), (7, 3), (3, 7), (200, 140)])
def test_mcnemar_equals_scipy_and_statsmodels(wins: int, losses: int) -> None:
    from scipy.stats import binomtest
    from statsmodels.stats.contingency_tables import mcnemar as of_table

    table = [[11, wins], [losses, 4]]
    assert mcnemar(wins, losses) == pytest.approx(of_table(table, exact=True).pvalue, rel=1e-9)
    if wins + losses:
        assert mcnemar(wins, losses) == binomtest(wins, wins + losses).pvalue


def test_mcnemar_of_thousands_does_not_overflow() -> None:
    assert mcnemar(600, 600) == pytest.approx(1.0)
    assert 0 <= mcnemar(1200, 0) < 1e-300


@pytest.mark.parametrize("count", [1, 2, 3, 30, 225])
def test_holm_equals_statsmodels(count: int) -> None:
    from statsmodels.stats.multitest import multipletests

    rng = np.random.default_rng(count)
    for ps in (rng.random(count), rng.random(count) / count, rng.integers(0, 3, count) / 50):
        theirs = multipletests(ps, method="holm")[1]
        assert holm(ps.tolist()) == pytest.approx(theirs.tolist(), abs=1e-12)


def test_holm_leaves_out_tests_that_were_not_made() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == [0.03, None, 0.06, 0.06]
    assert holm([None, None]) == [None, None]
    assert holm([]) == []
    assert holm([0.6, 0.7]) == [1.0, 1.0]


@pytest.mark.parametrize(("hits", "n"), [(0, 5), (5, 5), (1, 2), (37, 410), (410, 410)])
def test_wilson_equals_statsmodels(hits: int, n: int) -> None:
    from statsmodels.stats.proportion import proportion_confint

    found = wilson(hits / n, n)
    theirs = proportion_confint(hits, n, method="wilson")
    assert (found.low, found.high) == pytest.approx(theirs, abs=1e-9)


def every_flip(gaps: list[float]) -> float:
    """The exact mid-p of the randomisation test, from all 2^n patterns of signs."""
    sums = [
        abs(sum(sign * gap for sign, gap in zip(signs, gaps, strict=True)))
        for signs in product((1, -1), repeat=len(gaps))
    ]
    above = sum(total > sums[0] + 1e-12 for total in sums)
    return (above + sum(total >= sums[0] - 1e-12 for total in sums)) / 2 / len(sums)


@pytest.mark.parametrize(
    "gaps",
    [
        [0.5, -0.25, 0.75, 0.1, 0.9],
        [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, -0.25],
        [0.01, -1.0],
        [-0.3, -0.6, -0.2, -0.8, -0.1, -0.9, -0.4],
    ],
)
def test_sign_flips_come_near_the_exact_test(gaps: list[float]) -> None:
    exact = every_flip(gaps)
    spread = math.sqrt(exact * (1 - exact) / FLIPS)
    assert abs(one_test(gaps) - exact) < 5 * spread + 2 / FLIPS


def test_sums_of_which_none_are_equal_are_tested_as_by_scipy() -> None:
    from scipy.stats import permutation_test

    gaps = np.random.default_rng(3).normal(0.25, 1, 60)
    how = {"permutation_type": "samples", "n_resamples": FLIPS, "rng": np.random.default_rng(4)}
    theirs = permutation_test((gaps, np.zeros(60)), lambda x, y: np.mean(x - y), **how)
    spread = math.sqrt(theirs.pvalue * (1 - theirs.pvalue) / FLIPS)
    assert 0.01 < theirs.pvalue < 0.2
    assert abs(one_test(gaps) - theirs.pvalue) < 5 * spread


def test_a_test_does_not_depend_on_those_beside_it() -> None:
    gaps = np.random.default_rng(5).normal(0.1, 1, (5, 40))
    gaps[2] = 0
    together = sign_flip_tests(gaps, 7)
    assert together.tolist() == [one_test(row, 7) for row in gaps]
    assert together[2] == 1.0


def test_a_p_is_never_zero_and_is_one_without_a_difference() -> None:
    assert one_test(np.zeros(5)) == 1.0
    assert one_test(np.full(60, 0.5)) == 1 / (FLIPS + 1)
    zeros = np.concatenate([[0.5, -0.25, 0.75], np.zeros(50)])
    assert one_test(zeros) == pytest.approx(one_test(zeros[:3]), abs=0.03)


def test_a_family_of_any_size_can_be_significant() -> None:
    for tests in (1, 100, 1000):
        assert tests / (flips_of(tests) + 1) <= 0.01
    assert flips_of(50) == FLIPS


@pytest.mark.parametrize("block", [1, 333, 1 << 23])
def test_the_size_of_a_block_changes_no_flip(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = np.random.default_rng(1).normal(0.1, 1, 30)
    signs = np.random.default_rng(5).integers(0, 2, (2_000, 30)) * 2 - 1
    at_least = int((abs(signs @ gaps) >= abs(gaps.sum()) * (1 - 1e-12)).sum())
    monkeypatch.setattr(p_values, "BLOCK", block)
    assert one_test(gaps, 5, 2_000) == (at_least + 1) / 2_001


def test_a_p_below_a_thousandth_is_printed_as_such() -> None:
    assert [p_text(p) for p in (None, 0.0, 0.00099, 0.001, 0.0504, 1.0)] == [
        *("-", "<0.001", "<0.001", "0.001", "0.050", "1.000")
    ]
