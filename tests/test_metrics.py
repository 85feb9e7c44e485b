"""Scores to ranks to figures, against brute force over every order of the tied."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.metrics import (
    above_tied,
    ceiling,
    chance_recall,
    display_order,
    harmonic,
    mean_recall,
    ranked,
    recall_at,
    recall_bounds,
    recall_of_ranking,
    reciprocal_rank,
)


def ranks_in_every_order(scores: list[int], gold: int) -> list[int]:
    """The gold's rank (from 1) in each permutation of the positions that sorts the scores."""
    found = []
    for order in permutations(range(len(scores))):
        values = [scores[i] for i in order]
        if values == sorted(values, reverse=True):
            found.append(order.index(gold) + 1)
    return found


TIES = [
    ([3, 2, 1, 0], 2),
    ([1, 1, 1, 1], 0),
    ([1, 1, 1, 1], 3),
    ([2, 1, 1, 0, 1], 4),
    ([0, 5, 5, 5, 7, 0], 2),
    ([0, 5, 5, 5, 7, 0], 0),
    ([4], 0),
]


@pytest.mark.parametrize(("scores", "gold"), TIES)
@pytest.mark.parametrize("k", range(1, 9))
def test_recall_is_the_mean_over_all_orders_of_the_tied(
    scores: list[int], gold: int, k: int
) -> None:
    ranks = ranks_in_every_order(scores, gold)
    above, tied = above_tied(ranked(scores, len(scores)), gold)
    expected = Fraction(sum(rank <= k for rank in ranks), len(ranks))
    assert recall_at(k, above, tied) == pytest.approx(float(expected), abs=1e-15)
    assert recall_bounds(k, above, tied) == (max(ranks) <= k, min(ranks) <= k)


@pytest.mark.parametrize(("scores", "gold"), TIES)
def test_reciprocal_rank_is_the_mean_over_all_orders_of_the_tied(
    scores: list[int], gold: int
) -> None:
    ranks = ranks_in_every_order(scores, gold)
    expected = sum(Fraction(1, rank) for rank in ranks) / len(ranks)
    got = reciprocal_rank(*above_tied(ranked(scores, len(scores)), gold))
    assert got == pytest.approx(float(expected), abs=1e-15)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.data())
def test_permuting_a_pool_changes_nothing(scores: list[int], data: st.DataObject) -> None:
    gold = data.draw(st.integers(0, len(scores) - 1))
    order = data.draw(st.permutations(range(len(scores))))
    shuffled = [scores[i] for i in order]
    assert above_tied(ranked(scores, len(scores)), gold) == above_tied(
        ranked(shuffled, len(scores)), order.index(gold)
    )


@given(st.integers(1, 30), st.integers(0, 200), st.integers(1, 200))
def test_the_expectation_lies_between_its_bounds(k: int, above: int, tied: int) -> None:
    worst, best = recall_bounds(k, above, tied)
    assert 0 <= worst <= recall_at(k, above, tied) <= best <= 1
    low, high = 1 / (above + tied), 1 / (above + 1)
    assert low - 1e-12 <= reciprocal_rank(above, tied) <= high + 1e-12


@pytest.mark.parametrize("n", [9_998, 9_999, 10_000, 10_001, 12_345, 60_000])
def test_harmonic_numbers_on_both_sides_of_the_switch_over(n: int) -> None:
    exact = sum(Fraction(1, i) for i in range(1, 200)) + Fraction(
        sum(10**40 // i for i in range(200, n + 1)), 10**40
    )
    assert harmonic(n) == pytest.approx(float(exact), rel=1e-15)


def test_small_harmonic_numbers() -> None:
    assert [harmonic(n) for n in range(5)] == pytest.approx([0, 1, 1.5, 11 / 6, 25 / 12])


@pytest.mark.parametrize("rank", [1, 2, 9_999, 10_000, 10_001, 50_000])
def test_without_ties_reciprocal_rank_is_one_over_the_rank(rank: int) -> None:
    assert reciprocal_rank(rank - 1, 1) == pytest.approx(1 / rank, rel=1e-9)


def test_a_tie_across_the_switch_over() -> None:
    expected = sum(1 / i for i in range(9_991, 10_011)) / 20
    assert reciprocal_rank(9_990, 20) == pytest.approx(expected, rel=1e-10)


def test_scores_that_differ_only_past_float32_are_tied() -> None:
    scores = ranked([1.0, 1.0 + 2e-9, 1.0 - 2e-9], 3)
    assert scores.dtype == np.float32
    assert [above_tied(scores, gold) for gold in range(3)] == [(0, 3)] * 3


def test_scores_that_differ_within_float32_are_not_tied() -> None:
    scores = ranked([0.8012, 0.8021], 2)
    assert above_tied(scores, 0) == (1, 1)
    assert above_tied(scores, 1) == (0, 1)


def test_minus_zero_equals_zero() -> None:
    assert above_tied(ranked([-0.0, 0.0, 1.0], 3), 0) == (1, 2)


@pytest.mark.parametrize(
    ("bad", "position"),
    [
        ([0.0, float("nan"), 1.0], 1),
        ([float("inf"), 0.0, 0.0], 0),
        ([0.0, 0.0, float("-inf")], 2),
        ([0.0, 1e39, 0.0], 1),  # finite in float64, infinite where scores are compared
        ([0.0, 1.0, None], 2),
    ],
)
def test_a_score_that_is_not_finite_is_named_by_position(bad: list[float], position: int) -> None:
    with pytest.raises(ValueError, match=f"not finite at position {position}$"):
        ranked(bad, 3)


@pytest.mark.parametrize(
    "bad", [[1.0, 2.0], [1.0] * 4, [[1.0, 2.0, 3.0]], [[1.0], [2.0], [3.0]], 1.0, []]
)
def test_a_wrong_shape_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="for a pool of 3"):
        ranked(bad, 3)


@pytest.mark.parametrize("bad", [["a", "b", "c"], [1j, 2j, 3j], [[1], [2, 3], []], [{}, {}, {}]])
def test_what_is_no_number_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="not numbers"):
        ranked(bad, 3)


def test_display_order_breaks_ties_by_position() -> None:
    scores = ranked([0.0, 0.336, 0.0, 0.336, 0.0], 5)
    assert display_order(scores, 10) == [1, 3, 0, 2, 4]
    assert display_order(scores, 3) == [1, 3, 0]


def test_display_order_of_many_ties_is_stable() -> None:
    assert display_order(ranked(np.zeros(2000), 2000), 1000) == list(range(1000))


def test_display_order_is_plain_integers() -> None:
    assert all(type(i) is int for i in display_order(ranked([1.0, 2.0], 2), 2))


def test_chance_never_passes_one() -> None:
    assert chance_recall(10, 101) == 10 / 101
    assert chance_recall(50, 19) == 1.0


@pytest.mark.parametrize("size", [1, 2, 19, 101, 1001])
@pytest.mark.parametrize("k", [1, 5, 10, 50])
def test_everything_tied_is_chance_exactly(size: int, k: int) -> None:
    above, tied = above_tied(ranked(np.zeros(size), size), size // 2)
    assert recall_at(k, above, tied) == chance_recall(k, size)


@pytest.mark.parametrize("golds", [1, 2, 3, 5])
def test_ceiling_is_what_the_best_fixed_ranking_gets_on_average(golds: int) -> None:
    # Rivals must be given one ranking, so each gold stands at another of the first ranks.
    for k in range(1, 7):
        recall, rr = ceiling(golds, k)
        assert recall == pytest.approx(sum(rank <= k for rank in range(1, golds + 1)) / golds)
        assert rr == pytest.approx(sum(1 / rank for rank in range(1, golds + 1)) / golds)


def test_agrees_with_ir_measures_where_nothing_is_tied() -> None:
    ir_measures = pytest.importorskip("ir_measures")
    rng = np.random.default_rng(7)
    runs, golds, mine = {}, {}, {}
    for number in range(40):
        scores, gold = rng.permutation(30).astype(float), int(rng.integers(30))
        runs[f"q{number}"] = {f"d{i}": float(s) for i, s in enumerate(scores)}
        golds[f"q{number}"] = {f"d{gold}": 1}
        tie = above_tied(ranked(scores, 30), gold)
        mine[f"q{number}"] = (recall_at(5, *tie), reciprocal_rank(*tie))
    recall, rr = ir_measures.R @ 5, ir_measures.RR
    for metric in ir_measures.iter_calc([recall, rr], golds, runs):
        expected = mine[metric.query_id][metric.measure == rr]
        assert metric.value == pytest.approx(expected, abs=1e-9)


def test_recall_of_a_ranking_with_several_golds() -> None:
    assert recall_of_ranking(["a", "x", "b", "y"], ["a", "b"], 1) == 0.5
    assert recall_of_ranking(["a", "x", "b", "y"], ["a", "b"], 3) == 1.0
    assert recall_of_ranking([], ["a"], 3) == 0.0


def test_recall_without_gold_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="at least one gold"):
        recall_of_ranking(["a"], [], 1)


def test_a_ranking_for_a_query_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown query: q9"):
        mean_recall({"q1": ["a"]}, {"q1": ["a"], "q9": ["a"]}, 1)


def test_no_query_with_gold_is_an_error() -> None:
    with pytest.raises(ValueError, match="no query has a gold"):
        mean_recall({"q1": []}, {"q1": ["a"]}, 1)
