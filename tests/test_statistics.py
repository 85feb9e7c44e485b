"""Intervals, against scipy and against enumeration."""

import math
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import statistics
from analysis.statistics import RESAMPLES, Bootstrap, Floats, wilson


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
