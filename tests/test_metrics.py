"""Scores to ranks to metrics, against brute force over every order of the tied."""

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.metrics import (
    NDCG,
    AllGolds,
    Recall,
    ReciprocalRank,
    Success,
    above_tied,
    display_order,
    harmonic,
    ranked,
    recall_at,
    reciprocal_rank,
    tied_with_others,
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
    *(([3, 2, 1, 0], 2), ([1, 1, 1, 1], 0), ([1, 1, 1, 1], 3), ([2, 1, 1, 0, 1], 4)),
    *(([0, 5, 5, 5, 7, 0], 2), ([0, 5, 5, 5, 7, 0], 0), ([4], 0)),
]


@pytest.mark.parametrize(("scores", "gold"), TIES)
@pytest.mark.parametrize("k", range(1, 9))
def test_recall_is_the_mean_over_orders_of_ties(scores: list[int], gold: int, k: int) -> None:
    ranks = ranks_in_every_order(scores, gold)
    above, tied = above_tied(ranked(scores, len(scores)), gold)
    expected = Fraction(sum(rank <= k for rank in ranks), len(ranks))
    assert recall_at(k, above, tied) == pytest.approx(float(expected), abs=1e-15)
    assert Recall(k).bounds([(above, tied)]) == (max(ranks) <= k, min(ranks) <= k)


@pytest.mark.parametrize(("scores", "gold"), TIES)
def test_reciprocal_rank_is_the_mean_over_orders_of_ties(scores: list[int], gold: int) -> None:
    ranks = ranks_in_every_order(scores, gold)
    expected = sum(Fraction(1, rank) for rank in ranks) / len(ranks)
    got = reciprocal_rank(*above_tied(ranked(scores, len(scores)), gold))
    assert got == pytest.approx(float(expected), abs=1e-15)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.data())
def test_permuting_a_pool_changes_nothing(scores: list[int], data: st.DataObject) -> None:
    gold = data.draw(st.integers(0, len(scores) - 1))
    order = data.draw(st.permutations(range(len(scores))))
    shuffled = [scores[i] for i in order]
    straight, turned = (ranked(values, len(scores)) for values in (scores, shuffled))
    assert above_tied(straight, gold) == above_tied(turned, order.index(gold))


@given(st.integers(1, 30), st.integers(0, 200), st.integers(1, 200))
def test_the_expectation_lies_between_its_bounds(k: int, above: int, tied: int) -> None:
    worst, best = Recall(k).bounds([(above, tied)])
    assert 0 <= worst <= recall_at(k, above, tied) <= best <= 1
    low, high = 1 / (above + tied), 1 / (above + 1)
    assert low - 1e-12 <= reciprocal_rank(above, tied) <= high + 1e-12


@pytest.mark.parametrize("n", [9_998, 9_999, 10_000, 10_001, 12_345, 60_000])
def test_harmonic_numbers_on_both_sides_of_the_switch_over(n: int) -> None:
    rest = Fraction(sum(10**40 // i for i in range(200, n + 1)), 10**40)
    exact = sum(Fraction(1, i) for i in range(1, 200)) + rest
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

    assert display_order(ranked(np.zeros(2000), 2000), 1000) == list(range(1000))
    assert all(type(i) is int for i in display_order(ranked([1.0, 2.0], 2), 2))


def test_chance_never_passes_one() -> None:
    assert Recall(10).chance(1, 101) == 10 / 101
    assert Recall(50).chance(1, 19) == 1.0


@pytest.mark.parametrize("size", [1, 2, 19, 101, 1001])
@pytest.mark.parametrize("k", [1, 5, 10, 50])
def test_everything_tied_is_chance_exactly(size: int, k: int) -> None:
    above, tied = above_tied(ranked(np.zeros(size), size), size // 2)
    assert recall_at(k, above, tied) == Recall(k).chance(1, size)


@pytest.mark.parametrize("golds", [1, 2, 3, 5])
def test_ceiling_is_what_the_best_fixed_ranking_gets_on_average(golds: int) -> None:
    # Rivals must be given one ranking, so each gold stands at another of the first ranks.
    for k in range(1, 7):
        recall, rr = Recall(k).ceiling(1, golds), ReciprocalRank().ceiling(1, golds)
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


# --- several golds per query


def ties_in(scores: Sequence[int], gold: Sequence[int]) -> list[tuple[int, int]]:
    return [(sum(s > scores[g] for s in scores), scores.count(scores[g])) for g in gold]


def by_all_orders(scores: Sequence[int], gold: Sequence[int], k: int) -> dict[str, float]:
    """Every figure as the mean (or the extremes) over all ways to break ties."""
    sums: dict[str, float] = {}
    shares, ties = [], ties_in(scores, gold)
    orders = list(itertools.permutations(range(len(scores))))
    for tiebreak in orders:
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], tiebreak[i]))
        rank = {place: at + 1 for at, place in enumerate(order)}
        found = [rank[g] <= k for g in gold]
        gain = sum(1 / math.log2(rank[g] + 1) for g in gold if rank[g] <= k)
        ideal = sum(1 / math.log2(i + 1) for i in range(1, min(k, len(gold)) + 1))
        figures = {
            "recall": sum(found) / len(found),
            "any": any(found),
            "all": all(found),
            "first": 1 / min(rank[g] for g in gold),
            "ndcg": gain / ideal,
            "tied": any(count > ties.count((above, count)) for above, count in ties),
        }
        shares.append(figures["recall"])
        for name, value in figures.items():
            sums[name] = sums.get(name, 0) + value
    means = {name: total / len(orders) for name, total in sums.items()}
    return {**means, "worst": min(shares), "best": max(shares)}


def closed(ties: Sequence[tuple[int, int]], k: int) -> dict[str, float]:
    worst, best = Recall(k).bounds(ties)
    return {
        "recall": Recall(k).value(ties),
        "any": Success(k).value(ties),
        "all": AllGolds(k).value(ties),
        "first": ReciprocalRank().value(ties),
        "ndcg": NDCG(k).value(ties),
        "tied": tied_with_others(ties),
        "worst": worst,
        "best": best,
    }


@pytest.mark.parametrize("seed", range(120))
def test_closed_forms_equal_the_mean_over_all_orders(seed: int) -> None:
    rng = random.Random(seed)
    size = rng.randint(1, 6)
    scores = [rng.randint(0, 2) for _ in range(size)]
    gold, k = rng.sample(range(size), rng.randint(1, size)), rng.randint(1, 7)
    expected = by_all_orders(scores, gold, k)
    assert closed(ties_in(scores, gold), k) == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 2000), st.integers(1, 2000), st.integers(1, 50))
def test_one_gold_is_the_metric_of_one_gold(above: int, tied: int, k: int) -> None:
    ties = [(above, tied)]
    recall = recall_at(k, above, tied)
    for metric in (Recall(k), Success(k), AllGolds(k)):
        assert metric.value(ties) == pytest.approx(recall, abs=1e-12)
    assert ReciprocalRank().value(ties) == reciprocal_rank(above, tied)
    assert Recall(k).bounds(ties) == (above + tied <= k, above + 1 <= k)


@given(st.data())
def test_laws(data: st.DataObject) -> None:
    scores = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=60))
    gold = data.draw(st.lists(st.sampled_from(range(len(scores))), unique=True, min_size=1))
    ties, before = ties_in(scores, gold), dict.fromkeys(("any", "recall", "all"), 0.0)
    for k in range(1, len(scores) + 3):
        now = closed(ties, k)
        assert now["any"] + 1e-12 >= now["recall"] >= now["all"] - 1e-12
        assert now["worst"] - 1e-12 <= now["recall"] <= now["best"] + 1e-12
        assert all(now[name] >= before[name] - 1e-12 for name in before)
        before = {name: now[name] for name in before}
    assert before == pytest.approx({"any": 1, "recall": 1, "all": 1})


def test_a_large_pool_of_equal_scores() -> None:
    ties = [(0, 1000)] * 20
    assert Recall(10).value(ties) == pytest.approx(0.01)
    none = math.prod((980 - i) / (1000 - i) for i in range(10))
    assert Success(10).value(ties) == pytest.approx(1 - none)
    assert AllGolds(10).value(ties) == 0
    assert AllGolds(999).value(ties) == pytest.approx(1 - 20 / 1000)
    # The mean of the smallest of 20 among 1,000 places is 1001 / 21; its inverse is larger.
    assert 21 / 1001 < ReciprocalRank().value(ties) < 0.1
    assert 0 < NDCG(10).value(ties) < 0.05


def test_the_first_of_twenty_golds_among_a_thousand() -> None:
    # By the survival function: P(R >= j) = C(1000 - j + 1, 20) / C(1000, 20).
    later = [math.comb(1001 - j, 20) / math.comb(1000, 20) for j in range(1, 983)]
    wanted = math.fsum((later[j - 1] - later[j]) / j for j in range(1, 982))
    assert ReciprocalRank().value([(0, 1000)] * 20) == pytest.approx(wanted, rel=1e-9)


def test_pools_far_larger_do_not_overflow() -> None:
    ties = [(0, 100_000)] * 50
    none = math.prod((99_950 - i) / (100_000 - i) for i in range(1000))
    assert Success(1000).value(ties) == pytest.approx(1 - none, rel=1e-9)
    assert 0 < AllGolds(50_000).value(ties) < 1e-10
    assert 0 < ReciprocalRank().value(ties) < 1


def test_values_worked_out_by_hand() -> None:
    # Six memories score 3, 2, 2, 2, 1, 1; the golds are the first, one of the 2s, one of the 1s.
    ties = [(0, 1), (1, 3), (4, 2)]
    assert Recall(2).value(ties) == pytest.approx(4 / 9)
    assert (Success(1).value(ties), AllGolds(5).value(ties)) == (1, 0.5)
    assert Recall(2).bounds(ties) == pytest.approx((1 / 3, 2 / 3))
    # Two golds among three equal: they have the first two places with probability 1/3.
    pair = [(0, 3), (0, 3)]
    assert AllGolds(2).value(pair) == pytest.approx(1 / 3)
    assert ReciprocalRank().value(pair) == pytest.approx(5 / 6)
