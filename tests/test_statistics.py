"""Intervals and paired comparisons, against scipy and against enumeration."""

import json
import math
import tracemalloc
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import statistics
from analysis.statistics import (
    RESAMPLES,
    Bootstrap,
    Floats,
    p_text,
    paired,
    sign_flip_test,
    sign_test,
    wilson,
)


@pytest.mark.parametrize(("hits", "n"), [(0, 5), (5, 5), (1, 2), (0, 1), (37, 410), (410, 410)])
def test_wilson_equals_scipy(hits: int, n: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(hits, n).proportion_ci(method="wilson")
    found = wilson(hits / n, n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert (found.mean, found.method) == (hits / n, "wilson")


@given(st.floats(0, 1), st.integers(1, 5000))
def test_wilson_stays_within_zero_and_one_and_around_the_mean(mean: float, n: int) -> None:
    found = wilson(mean, n)
    assert 0 <= found.low <= mean + 1e-12
    assert mean - 1e-12 <= found.high <= 1


@pytest.mark.parametrize("value", [0.0, 1.0, 10 / 101])
def test_equal_values_get_wilson_over_sessions_not_an_empty_interval(value: float) -> None:
    clusters = ["a", "a", "a", "b", "c"]
    found = Bootstrap(clusters).interval(np.full(5, value))
    assert found == wilson(value, 3)
    assert found.low < found.high


def test_interval_equals_scipys_percentile_bootstrap() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(1).random(60)
    found = Bootstrap([str(i) for i in range(60)]).interval(values)
    how = {"method": "percentile", "n_resamples": 5_000, "rng": np.random.default_rng(2)}
    theirs = stats.bootstrap((values,), np.mean, **how).confidence_interval
    assert found.method == "bootstrap"
    assert found.mean == pytest.approx(values.mean())
    # Two Monte Carlo estimates: the width is about 0.15, they agree to a few thousandths.
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.006)


def test_whole_sessions_are_drawn() -> None:
    # Four sessions of unequal size: every resample's mean must be one of the 4^4 draws' means,
    # and come about as often. Drawing rows instead would give other means.
    groups = [[1.0], [0.0, 0.0, 0.5], [0.25, 1.0], [0.0]]
    names = [f"s{i}" for i, group in enumerate(groups) for _ in group]
    values = np.array(sum(groups, []))
    exact: dict[float, float] = {}
    for draw in product(range(4), repeat=4):
        rows = sum((groups[i] for i in draw), [])
        mean = round(sum(rows) / len(rows), 9)
        exact[mean] = exact.get(mean, 0) + 1 / 4**4
    means = np.round(Bootstrap(names).means(values), 9)
    assert len(means) == RESAMPLES
    found = {float(mean): float(np.mean(means == mean)) for mean in np.unique(means)}
    assert set(found) <= set(exact)
    for mean, probability in exact.items():
        spread = math.sqrt(probability * (1 - probability) / RESAMPLES)
        assert abs(found.get(mean, 0.0) - probability) < 5 * spread + 1e-9


def test_clustered_rows_widen_the_interval() -> None:
    # 100 rows in 5 sessions that are all right or all wrong hold the evidence of 5, not of 100.
    values = np.repeat([1.0, 0.0, 1.0, 0.0, 1.0], 20)
    one = Bootstrap([str(i) for i in range(100)]).interval(values)
    five = Bootstrap([str(i // 20) for i in range(100)]).interval(values)
    assert five.high - five.low > 3 * (one.high - one.low)


def test_the_order_of_rows_does_not_move_the_interval() -> None:
    rng = np.random.default_rng(3)
    values, names = rng.random(30), [f"s{i % 7}" for i in range(30)]
    order = rng.permutation(30)
    straight = Bootstrap(names).interval(values)
    shuffled = Bootstrap([names[i] for i in order]).interval(values[order])
    assert (straight.low, straight.high) == pytest.approx((shuffled.low, shuffled.high))


def test_the_seed_decides_the_draws() -> None:
    values, names = np.random.default_rng(4).random(30), [str(i) for i in range(30)]
    assert Bootstrap(names, 5).interval(values) == Bootstrap(names, 5).interval(values)
    assert Bootstrap(names, 5).interval(values) != Bootstrap(names, 6).interval(values)


def test_one_bootstrap_pairs_its_metrics() -> None:
    values, names = np.random.default_rng(5).random(30), [str(i) for i in range(30)]
    bootstrap = Bootstrap(names)
    assert np.allclose(bootstrap.means(values + 0.25) - bootstrap.means(values), 0.25)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (5, 0), (7, 3), (3, 7), (200, 140)])
def test_sign_test_equals_scipys_exact_binomial(wins: int, losses: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(expected, rel=1e-9)


def test_sign_test_of_thousands_does_not_overflow() -> None:
    assert sign_test(600, 600) == pytest.approx(1.0)
    assert 0 <= sign_test(1200, 0) < 1e-300


def every_flip(gaps: list[float]) -> float:
    """The exact p of the sign-flip test, from all 2^n patterns of signs."""
    sums = [
        abs(sum(sign * gap for sign, gap in zip(signs, gaps, strict=True)))
        for signs in product((1, -1), repeat=len(gaps))
    ]
    return sum(total >= sums[0] - 1e-12 for total in sums) / len(sums)


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
    spread = math.sqrt(exact * (1 - exact) / RESAMPLES)
    assert abs(sign_flip_test(np.array(gaps)) - exact) < 5 * spread + 2 / RESAMPLES


def test_sign_flips_leave_out_zeros_and_never_claim_a_p_of_zero() -> None:
    gaps = np.array([0.5, -0.25, 0.75])
    assert sign_flip_test(np.concatenate([gaps, np.zeros(50)])) == sign_flip_test(gaps)
    assert sign_flip_test(np.zeros(5)) == 1.0
    assert sign_flip_test(np.full(60, 0.5)) == 1 / (RESAMPLES + 1)


def test_fractions_are_weighed_by_their_size_not_by_their_sign_alone() -> None:
    # Twelve hair-thin wins against one whole loss: a sign test would call that p = 0.003.
    a = {f"q{i}": 0.01 for i in range(12)} | {"q12": 0.0}
    b = {f"q{i}": 0.0 for i in range(12)} | {"q12": 1.0}
    assert sign_test(12, 1) < 0.01
    assert paired(a, b).p > 0.5


def test_queries_of_one_session_are_flipped_together() -> None:
    a = {f"q{i}": 1.0 for i in range(20)}
    b = {f"q{i}": 0.0 for i in range(20)}
    assert paired(a, b).p < 1e-5
    # Two sessions hold two signs: half of the four patterns are as extreme.
    assert paired(a, b, {q: f"s{int(q[1:]) // 10}" for q in a}).p == pytest.approx(0.5, abs=0.03)


def test_a_clear_difference_is_named_from_either_side() -> None:
    a = {f"q{i}": 1.0 for i in range(40)}
    b = {f"q{i}": float(i < 10) for i in range(40)}
    found = paired(a, b)
    assert (found.n, found.a, found.b, found.difference) == (40, 1.0, 0.25, 0.75)
    assert (found.wins, found.losses, found.verdict) == (30, 0, "a is better")
    assert found.low > 0
    assert found.p == pytest.approx(2 / 2**30)
    other = paired(b, a)
    assert (other.difference, other.verdict) == (-0.75, "b is better")
    assert (other.low, other.high) == pytest.approx((-found.high, -found.low), abs=0.03)


def test_pairs_go_by_query_not_by_place() -> None:
    a = {"q1": 1.0, "q2": 0.0, "q3": 0.5}
    b = {"q3": 0.5, "q1": 1.0, "q2": 0.0}
    found = paired(a, b)
    assert (found.verdict, found.reason) == (None, "no difference on any query")
    assert (found.wins, found.ties, found.losses, found.p) == (0, 3, 0, 1.0)


def test_a_difference_within_one_session_is_less_certain() -> None:
    a = {f"q{i}": 1.0 for i in range(20)}
    b = {f"q{i}": float(i >= 5) for i in range(20)}
    apart = paired(a, b)
    # The five losses share a session, the other fifteen queries have five more.
    together = paired(a, b, {f"q{i}": f"s{i // 5}" for i in range(20)})
    assert apart.verdict == "a is better"
    assert together.low == 0.0
    assert together.verdict == "not shown to differ"


def test_comparison_repeats_with_its_seed() -> None:
    rng = np.random.default_rng(6)
    a = {str(i): float(v) for i, v in enumerate(rng.random(50))}
    b = {str(i): float(v) for i, v in enumerate(rng.random(50))}
    assert paired(a, b, seed=1) == paired(a, b, seed=1)
    assert paired(a, b, seed=1) != paired(a, b, seed=2)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12))
def test_a_comparison_never_holds_nan(pairs: list[tuple[int, int]]) -> None:
    a = {str(i): x / 2 for i, (x, _) in enumerate(pairs)}
    b = {str(i): y / 2 for i, (_, y) in enumerate(pairs)}
    found = paired(a, b)
    json.dumps(asdict(found), allow_nan=False)
    if found.low is None or found.high is None:
        assert found.verdict is None
        assert found.reason
    else:
        assert found.low <= found.difference + 1e-12
        assert found.difference - 1e-12 <= found.high
    assert found.p is None or 0 <= found.p <= 1


def test_one_session_gives_no_interval_no_p_and_no_verdict() -> None:
    a = {f"q{i}": float(i < 3) for i in range(10)}
    b = {f"q{i}": 0.125 for i in range(10)}
    found = paired(a, b, dict.fromkeys(a, "s"))
    assert found.difference == pytest.approx(0.175)
    assert (found.low, found.high, found.p, found.verdict) == (None, None, None, None)
    assert (found.clusters, found.reason) == (1, "all queries are of one session")


def test_equal_differences_give_no_interval_and_no_verdict() -> None:
    a, b = dict.fromkeys("abcdefgh", 1.0), dict.fromkeys("abcdefgh", 0.75)
    found = paired(a, b)
    assert (found.low, found.high, found.verdict) == (None, None, None)
    assert (found.difference, found.reason) == (0.25, "the difference is the same on every query")
    assert found.p == pytest.approx(2 / 2**8, abs=0.003)
    assert found.interval_text == "(no interval: the difference is the same on every query)"


def test_fractions_that_differ_in_the_last_bits_are_ties() -> None:
    a = {"q1": 0.1 + 0.2, "q2": 1.0, "q3": 0.0}
    b = {"q1": 0.3, "q2": 0.0, "q3": 0.0}
    found = paired(a, b)
    assert (found.wins, found.ties, found.losses) == (1, 2, 0)
    assert found.p == 1.0  # of the sign test: all differences are 0 or 1


def old_draws(n: int, seed: int) -> Floats:
    """The draws as they were made at once, 160 kB per cluster."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(n, np.full(n, 1 / n), RESAMPLES).astype(float)


@pytest.mark.parametrize("block", [1, 7 * 40, 1 << 23])
def test_the_size_of_a_block_changes_no_draw(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "BLOCK", block)
    bootstrap = Bootstrap([str(i) for i in range(40)], 3)
    for _ in range(2):  # the draws are the same each time they are made
        assert (np.concatenate(list(bootstrap.draws())) == old_draws(40, 3)).all()


@pytest.mark.parametrize("block", [1, 333, 1 << 23])
def test_the_size_of_a_block_changes_no_flip(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = np.random.default_rng(1).normal(0.1, 1, 30)
    signs = np.random.default_rng(5).integers(0, 2, (RESAMPLES, 30)) * 2 - 1
    at_least = int((abs(signs @ gaps) >= abs(gaps.sum()) * (1 - 1e-12)).sum())
    monkeypatch.setattr(statistics, "BLOCK", block)
    assert sign_flip_test(gaps, 5) == (at_least + 1) / (RESAMPLES + 1)


def test_many_clusters_take_no_more_memory_than_a_block() -> None:
    # All draws of 5,000 clusters at once would be 400 MB.
    rng = np.random.default_rng(7)
    values = (rng.random((2, 5_000)) < 0.3).astype(float)
    bootstrap = Bootstrap([str(i) for i in range(5_000)])
    tracemalloc.start()
    try:
        found = bootstrap.intervals(values)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * 8 * statistics.BLOCK
    for row, one in zip(values, found, strict=True):
        half = 1.96 * row.std() / math.sqrt(5_000)
        expected = (row.mean() - half, row.mean() + half)
        assert (one.low, one.high) == pytest.approx(expected, abs=0.2 * half)


def test_several_metrics_at_once_are_each_alone() -> None:
    values = np.random.default_rng(8).random((3, 30))
    values[1] = 0.5
    bootstrap = Bootstrap([f"s{i % 9}" for i in range(30)])
    together = bootstrap.intervals(values)
    for row, one in zip(values, together, strict=True):
        alone = bootstrap.interval(row)
        assert (one.method, one.mean) == (alone.method, alone.mean)
        assert (one.low, one.high) == pytest.approx((alone.low, alone.high), abs=1e-12)
    assert [one.method for one in together] == ["bootstrap", "wilson", "bootstrap"]


def test_wilson_is_on_the_scale_of_the_values() -> None:
    # Ten sessions graded 3 of 1 to 5: the middle of the scale, Wilson's interval of 5 in 10.
    found = Bootstrap([str(i) for i in range(10)]).interval(np.full(10, 3.0), (1.0, 5.0))
    unit = wilson(0.5, 10)
    assert (found.low, found.high) == pytest.approx((1 + 4 * unit.low, 1 + 4 * unit.high))
    assert found.low < found.mean == 3.0 < found.high
    with pytest.raises(ValueError, match="not in"):
        Bootstrap(["a", "b"]).interval(np.full(2, 3.0))


def test_a_p_below_a_thousandth_is_printed_as_such() -> None:
    assert [p_text(p) for p in (None, 0.0, 0.00099, 0.001, 0.0504, 1.0)] == [
        *("-", "<0.001", "<0.001", "0.001", "0.050", "1.000")
    ]


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match="no queries"):
        paired({}, {})
