"""Rows 35 to 38 of the hard cases: fusing two rankings of one pool."""

import numpy as np
import pytest

from retrievers.fusion import Leg, as_leg, minmax, reciprocal_rank_fusion, weighted_sum

EQUAL = (1.0, 1.0)


def found(pool: str, order: str) -> Leg:
    """A leg that returned the memories of `order`, best first, and nothing else of the pool."""
    return as_leg(
        [len(order) - order.index(m) if m in order else 0 for m in pool], [m in order for m in pool]
    )


def rrf(pool: str, first: str, second: str, rrf_k: float = 60) -> dict[str, float]:
    scores = reciprocal_rank_fusion([found(pool, first), found(pool, second)], EQUAL, rrf_k)
    return dict(zip(pool, scores.tolist(), strict=True))


def test_row_35_ranks_start_at_1_and_a_missing_memory_gets_no_share() -> None:
    """Row 35: dense [X, a, Y], sparse [b, c, Y], k = 60."""
    scores = rrf("XYabc", "XaY", "bcY")
    assert scores["Y"] == pytest.approx(2 / 63, abs=1e-15)
    assert scores["X"] == scores["b"] == pytest.approx(1 / 61, abs=1e-15)
    assert scores["a"] == scores["c"] == pytest.approx(1 / 62, abs=1e-15)
    assert max(scores, key=scores.__getitem__) == "Y"


def test_row_36_the_constant_decides_between_agreement_and_one_first_place() -> None:
    """Row 36: vector [Y, p, q, X], bm25 [r, s, t, X]."""
    agreement = rrf("XYpqrst", "YpqX", "rstX", 60)
    assert agreement["X"] == pytest.approx(2 / 64, abs=1e-15) == max(agreement.values())
    alone = rrf("XYpqrst", "YpqX", "rstX", 1)
    assert alone["Y"] == pytest.approx(0.5)
    assert alone["X"] == pytest.approx(0.4)


@pytest.mark.parametrize("pool", ["X", "XYZ"])
def test_row_37_one_memory_found_first_by_both_legs_is_one_position(pool: str) -> None:
    """Row 37: 2 / 61 once, not 1 / 61 twice; identity is the position in the pool."""
    scores = reciprocal_rank_fusion([found(pool, "X"), found(pool, "X")], EQUAL)
    assert scores.shape == (len(pool),)
    assert scores[0] == pytest.approx(2 / 61, abs=1e-15)
    assert not scores[1:].any()


def test_row_38_a_flat_leg_adds_nothing() -> None:
    """Row 38: BM25 [0, 0, 0, 0], dense [0.1, 0.9, 0.2, 0.3], weights a half each."""
    flat, dense = as_leg([0, 0, 0, 0]), as_leg([0.1, 0.9, 0.2, 0.3])
    fused = weighted_sum([flat, dense], [0.5, 0.5])
    assert fused == pytest.approx([0, 0.5, 0.0625, 0.125], abs=1e-7)  # scores are float32
    assert np.argsort(-fused).tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("scale", ["minmax", "zscore"])
@pytest.mark.parametrize("value", [0.0, 7.0, -3.0])
def test_row_38_whatever_the_one_score_is(scale: str, value: float) -> None:
    dense = as_leg([0.1, 0.9, 0.2, 0.3])
    alone = weighted_sum([dense], [0.5], scale)  # type: ignore[arg-type]
    both = weighted_sum([as_leg([value] * 4), dense], [0.5, 0.5], scale)  # type: ignore[arg-type]
    assert both.tolist() == alone.tolist()


def test_row_38_one_hit_gets_all_of_its_leg() -> None:
    """Row 38: with one hit, max = min over the hits; over the pool they differ."""
    assert minmax(as_leg([0, 4, 0], [False, True, False])).tolist() == [0, 1, 0]
