"""Several golds a query: closed forms against every order of the ties."""

import itertools
import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import golds, metrics


def ties_of(scores: Sequence[int], gold: Sequence[int]) -> list[tuple[int, int]]:
    return [(sum(s > scores[g] for s in scores), scores.count(scores[g])) for g in gold]


def by_all_orders(scores: Sequence[int], gold: Sequence[int], k: int) -> dict[str, float]:
    """Every figure as the mean (or the extremes) over all ways to break ties."""
    sums: dict[str, float] = {}
    shares = []
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
            "tied": any(
                scores.count(scores[g]) > ties_of(scores, gold).count(t)
                for g, t in zip(gold, ties_of(scores, gold), strict=True)
            ),
        }
        shares.append(figures["recall"])
        for name, value in figures.items():
            sums[name] = sums.get(name, 0) + value
    return {name: total / len(orders) for name, total in sums.items()} | {
        "worst": min(shares),
        "best": max(shares),
    }


def closed(ties: Sequence[tuple[int, int]], k: int) -> dict[str, float]:
    worst, best = golds.recall_bounds(k, ties)
    return {
        "recall": golds.recall(k, ties),
        "any": golds.recall_any(k, ties),
        "all": golds.recall_all(k, ties),
        "first": golds.first_reciprocal_rank(ties),
        "ndcg": golds.ndcg(k, ties),
        "tied": golds.tied_with_others(ties),
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
    assert closed(ties_of(scores, gold), k) == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 2000), st.integers(1, 2000), st.integers(1, 50))
def test_one_gold_is_the_metric_of_one_gold(above: int, tied: int, k: int) -> None:
    ties = [(above, tied)]
    recall = metrics.recall_at(k, above, tied)
    for metric in (golds.recall, golds.recall_any, golds.recall_all):
        assert metric(k, ties) == pytest.approx(recall, abs=1e-12)
    assert golds.first_reciprocal_rank(ties) == metrics.reciprocal_rank(above, tied)
    assert golds.recall_bounds(k, ties) == metrics.recall_bounds(k, above, tied)


@given(st.data())
def test_laws(data: st.DataObject) -> None:
    scores = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=60))
    gold = data.draw(st.lists(st.sampled_from(range(len(scores))), unique=True, min_size=1))
    ties, before = ties_of(scores, gold), dict.fromkeys(("any", "recall", "all"), 0.0)
    for k in range(1, len(scores) + 3):
        now = closed(ties, k)
        assert now["any"] + 1e-12 >= now["recall"] >= now["all"] - 1e-12
        assert now["worst"] - 1e-12 <= now["recall"] <= now["best"] + 1e-12
        assert all(now[name] >= before[name] - 1e-12 for name in before)
        before = {name: now[name] for name in before}
    assert before == pytest.approx({"any": 1, "recall": 1, "all": 1})


def test_a_large_pool_of_equal_scores() -> None:
    ties = [(0, 1000)] * 20
    assert golds.recall(10, ties) == pytest.approx(0.01)
    assert golds.recall_any(10, ties) == pytest.approx(
        1 - math.prod((980 - i) / (1000 - i) for i in range(10))
    )
    assert golds.recall_all(10, ties) == 0
    assert golds.recall_all(999, ties) == pytest.approx(1 - 20 / 1000)
    # The mean of the smallest of 20 among 1,000 places is 1001 / 21; its inverse is larger.
    assert 21 / 1001 < golds.first_reciprocal_rank(ties) < 0.1
    assert 0 < golds.ndcg(10, ties) < 0.05


def test_the_first_of_twenty_golds_among_a_thousand() -> None:
    # By the survival function: P(R >= j) = C(1000 - j + 1, 20) / C(1000, 20).
    later = [math.comb(1001 - j, 20) / math.comb(1000, 20) for j in range(1, 983)]
    wanted = math.fsum((later[j - 1] - later[j]) / j for j in range(1, 982))
    assert golds.first_reciprocal_rank([(0, 1000)] * 20) == pytest.approx(wanted, rel=1e-9)


def test_pools_far_larger_do_not_overflow() -> None:
    ties = [(0, 100_000)] * 50
    assert golds.recall_any(1000, ties) == pytest.approx(
        1 - math.prod((99_950 - i) / (100_000 - i) for i in range(1000)), rel=1e-9
    )
    assert 0 < golds.recall_all(50_000, ties) < 1e-10
    assert 0 < golds.first_reciprocal_rank(ties) < 1


def test_values_worked_out_by_hand() -> None:
    # Six memories score 3, 2, 2, 2, 1, 1; the golds are the first, one of the 2s, one of the 1s.
    ties = [(0, 1), (1, 3), (4, 2)]
    assert golds.recall(2, ties) == pytest.approx(4 / 9)
    assert (golds.recall_any(1, ties), golds.recall_all(5, ties)) == (1, 0.5)
    assert golds.recall_bounds(2, ties) == pytest.approx((1 / 3, 2 / 3))
    # Two golds among three equal: they have the first two places with probability 1/3.
    pair = [(0, 3), (0, 3)]
    assert golds.recall_all(2, pair) == pytest.approx(1 / 3)
    assert golds.first_reciprocal_rank(pair) == pytest.approx(5 / 6)


@pytest.mark.parametrize(
    ("above", "tied", "ties"),
    [(3, 2, [(3, 2)]), ([3], [2], [(3, 2)]), ([0, 5], [1, 4], [(0, 1), (5, 4)])],
)
def test_a_row_keeps_its_ties_as_numbers_or_lists(
    above: int | list[int], tied: int | list[int], ties: list[tuple[int, int]]
) -> None:
    assert golds.ties_of({"above": above, "tied": tied}) == ties
