"""Fusion as pure functions: scales, ranks, masks, and the laws they must keep."""

import math
from statistics import fmean, pstdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.hybrid import (
    Leg,
    as_leg,
    minmax,
    ranks,
    reciprocal_rank_fusion,
    weighted_sum,
    zscore,
)

SINGLE = st.floats(-1e6, 1e6, width=32)


@st.composite
def legs(draw: st.DrawFn, size: int) -> Leg:
    return as_leg(
        draw(st.lists(SINGLE, min_size=size, max_size=size)),
        draw(st.lists(st.booleans(), min_size=size, max_size=size)),
    )


PAIR = st.integers(1, 12).flatmap(lambda size: st.tuples(legs(size), legs(size)))


def fuse(pair: tuple[Leg, Leg], how: str) -> np.ndarray:
    if how == "rrf":
        return reciprocal_rank_fusion(pair, (0.3, 0.7))
    return weighted_sum(pair, (0.3, 0.7), how)


HOW = pytest.mark.parametrize("how", ["minmax", "zscore", "rrf"])


def test_minmax_by_hand() -> None:
    assert minmax(as_leg([2, 4, 3, 2])).tolist() == [0, 1, 0.5, 0]


def test_an_unmatched_position_gets_nothing_whatever_its_score() -> None:
    """BM25+ gives its delta to all, so an unmatched score need not be the least."""
    one = as_leg([5, 1, 3], [False, True, True])
    assert minmax(one).tolist() == [0, 0, 0.5]
    assert zscore(one)[0] == 0
    assert reciprocal_rank_fusion([one], [1]).tolist() == [0, 1 / 62, 1 / 61]


def test_zscore_is_the_standard_score_up_to_a_constant() -> None:
    values = [0.5, 2.0, 3.25, -1.0]
    found = zscore(as_leg(values))
    expected = [(v - fmean(values)) / pstdev(values) for v in values]
    assert np.ptp(found - expected) < 1e-12
    assert found.min() == 0


def test_ties_share_the_mean_of_their_ranks() -> None:
    assert ranks(as_leg([9, 5, 5, 1])).tolist() == [1, 2.5, 2.5, 4]
    assert ranks(as_leg([1, 1, 1])).tolist() == [2, 2, 2]


def test_ties_are_those_of_the_ranking_in_float32() -> None:
    assert ranks(as_leg([1.0, 1.0 + 1e-9])).tolist() == [1.5, 1.5]


def test_ranks_count_the_matched_alone() -> None:
    assert ranks(as_leg([9, 5, 7], [False, True, True])).tolist() == [math.inf, 2, 1]


def test_weights_weigh() -> None:
    pair = (as_leg([1, 0]), as_leg([0, 1]))
    assert weighted_sum(pair, (0.1, 0.9)).tolist() == [0.1, 0.9]
    assert reciprocal_rank_fusion(pair, (1, 0)).tolist() == [1 / 61, 1 / 62]


@pytest.mark.parametrize(
    ("scores", "matched", "message"),
    [
        ([1, math.nan], None, "not finite at position 1"),
        ([1, 2], [True], "mask of shape"),
        ([[1], [2]], None, "shape"),
    ],
)
def test_a_leg_is_checked(scores: list[float], matched: list[bool] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_leg(scores, matched)


@HOW
def test_an_empty_pool_has_no_scores(how: str) -> None:
    assert fuse((as_leg([]), as_leg([])), how).shape == (0,)


@HOW
@given(pair=PAIR)
def test_always_finite_and_0_where_no_leg_matches(how: str, pair: tuple[Leg, Leg]) -> None:
    fused = fuse(pair, how)
    assert np.isfinite(fused).all()
    assert (fused >= 0).all()
    assert not fused[~(pair[0].matched | pair[1].matched)].any()


@HOW
@given(pair=PAIR, data=st.data())
def test_the_order_of_the_pool_changes_not_a_bit(
    how: str, pair: tuple[Leg, Leg], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(pair[0].scores))))
    shuffled = (Leg(one.scores[order], one.matched[order]) for one in pair)
    assert fuse(tuple(shuffled), how).tolist() == fuse(pair, how)[order].tolist()


@HOW
@given(pair=PAIR)
def test_a_leg_alone_keeps_its_order_among_the_matched(how: str, pair: tuple[Leg, Leg]) -> None:
    one = pair[0]
    alone = fuse((one, Leg(one.scores, np.zeros_like(one.matched))), how)[one.matched]
    scores = one.scores[one.matched].astype(float)
    assert (np.diff(alone[np.argsort(scores, kind="stable")]) >= 0).all()


# Two rankings of one pool

EQUAL = (1.0, 1.0)


def found(pool: str, order: str) -> Leg:
    """A leg that returned the memories of `order`, best first, and nothing else of the pool."""
    return as_leg(
        [len(order) - order.index(m) if m in order else 0 for m in pool], [m in order for m in pool]
    )


def rrf(pool: str, first: str, second: str, rrf_k: float = 60) -> dict[str, float]:
    scores = reciprocal_rank_fusion([found(pool, first), found(pool, second)], EQUAL, rrf_k)
    return dict(zip(pool, scores.tolist(), strict=True))


def test_ranks_start_at_1_and_a_missing_memory_gets_no_share() -> None:
    """Dense [X, a, Y], sparse [b, c, Y], k = 60."""
    scores = rrf("XYabc", "XaY", "bcY")
    assert scores["Y"] == pytest.approx(2 / 63, abs=1e-15)
    assert scores["X"] == scores["b"] == pytest.approx(1 / 61, abs=1e-15)
    assert scores["a"] == scores["c"] == pytest.approx(1 / 62, abs=1e-15)
    assert max(scores, key=scores.__getitem__) == "Y"


def test_the_constant_decides_between_agreement_and_one_first_place() -> None:
    """Vector [Y, p, q, X], bm25 [r, s, t, X]."""
    agreement = rrf("XYpqrst", "YpqX", "rstX", 60)
    assert agreement["X"] == pytest.approx(2 / 64, abs=1e-15) == max(agreement.values())
    alone = rrf("XYpqrst", "YpqX", "rstX", 1)
    assert alone["Y"] == pytest.approx(0.5)
    assert alone["X"] == pytest.approx(0.4)


@pytest.mark.parametrize("pool", ["X", "XYZ"])
def test_one_memory_found_first_by_both_legs_is_one_position(pool: str) -> None:
    """2 / 61 once, not 1 / 61 twice; identity is the position in the pool."""
    scores = reciprocal_rank_fusion([found(pool, "X"), found(pool, "X")], EQUAL)
    assert scores.shape == (len(pool),)
    assert scores[0] == pytest.approx(2 / 61, abs=1e-15)
    assert not scores[1:].any()


def test_a_flat_leg_adds_nothing() -> None:
    """BM25 [0, 0, 0, 0], dense [0.1, 0.9, 0.2, 0.3], weights a half each."""
    flat, dense = as_leg([0, 0, 0, 0]), as_leg([0.1, 0.9, 0.2, 0.3])
    fused = weighted_sum([flat, dense], [0.5, 0.5])
    assert fused == pytest.approx([0, 0.5, 0.0625, 0.125], abs=1e-7)  # scores are float32
    assert np.argsort(-fused).tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("scale", ["minmax", "zscore"])
@pytest.mark.parametrize("value", [0.0, 7.0, -3.0])
def test_whatever_the_one_score_is(scale: str, value: float) -> None:
    dense = as_leg([0.1, 0.9, 0.2, 0.3])
    alone = weighted_sum([dense], [0.5], scale)
    both = weighted_sum([as_leg([value] * 4), dense], [0.5, 0.5], scale)
    assert both.tolist() == alone.tolist()


def test_one_hit_gets_all_of_its_leg() -> None:
    """With one hit, max = min over the hits; over the pool they differ."""
    assert minmax(as_leg([0, 4, 0], [False, True, False])).tolist() == [0, 1, 0]
