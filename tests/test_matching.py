"""Pairs of memories: equality, likeness, assignment, and the figures made of pairs."""

import difflib
import itertools
import random
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_scoring import (
    Pair,
    SessionPairs,
    coverage,
    exact_pairs,
    figures,
    figures_by_group,
    greedy,
    hungarian,
    pair_scores,
    similar_pairs,
)
from memory_scoring.similarity import (
    confidence_similarity,
    label_similarity,
    normalised,
    value_similarity,
)
from recallbed.corpus.records import MemoryItem

TEA = MemoryItem(
    "Likes green tea", "m1", "Preferences/Food", "direct", 0.9, "long_term", "like", "happy"
)


def like(**changes: object) -> MemoryItem:
    return replace(TEA, **changes)  # type: ignore[arg-type]


# --- coverage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matched", "predicted", "gold", "expected"),
    [
        (0, 0, 0, (1, 1, 1)),
        (0, 0, 3, (0, 0, 0)),
        (0, 3, 0, (0, 0, 0)),
        (0, 2, 3, (0, 0, 0)),
        (2, 4, 3, (1 / 2, 2 / 3, 4 / 7)),
        (3, 3, 3, (1, 1, 1)),
    ],
)
def test_coverage(
    matched: int, predicted: int, gold: int, expected: tuple[float, float, float]
) -> None:
    assert coverage(matched, predicted, gold) == pytest.approx(expected)


# --- exact ----------------------------------------------------------------------------------------


def exact(gold: list[MemoryItem], predicted: list[MemoryItem]) -> tuple[float, float, float]:
    pairs = exact_pairs(gold, predicted)
    assert len({pair.gold for pair in pairs}) == len({p.predicted for p in pairs}) == len(pairs)
    return coverage(len(pairs), len(predicted), len(gold))


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        ([], [], (1, 1, 1)),
        ([TEA], [], (0, 0, 0)),
        ([], [TEA], (0, 0, 0)),
        ([TEA] * 3, [TEA] * 2, (1, 2 / 3, 0.8)),
        ([TEA] * 2, [TEA] * 3, (2 / 3, 1, 0.8)),
        ([TEA], [TEA, like(text="Likes coffee"), TEA], (1 / 3, 1, 0.5)),
    ],
)
def test_exact_pairs_are_the_intersection_of_multisets(
    gold: list[MemoryItem], predicted: list[MemoryItem], expected: tuple[float, float, float]
) -> None:
    """Three against two make two pairs, never three and never one."""
    assert exact(gold, predicted) == pytest.approx(expected)


@pytest.mark.parametrize("field", ["text", "label", "type", "attitude", "time_scope", "emotion"])
def test_exact_needs_all_six_fields(field: str) -> None:
    assert exact([TEA], [like(**{field: "something else"})]) == (0, 0, 0)
    empty = like(**{field: "" if field == "text" else None})
    assert exact([TEA], [empty]) == (0, 0, 0)
    if field != "text":  # missing on both sides, and missing against empty, are equal
        assert exact([empty], [empty]) == (1, 1, 1)
        assert exact([empty], [like(**{field: " "})]) == (1, 1, 1)


def test_exact_ignores_case_white_space_and_all_other_fields() -> None:
    other = MemoryItem(
        "  likes\tGREEN \n tea ", "m77", "preferences/food", "Direct", 0.1, "LONG_TERM", "Like",
        "happy ",
    )  # fmt: skip
    assert exact([TEA], [other]) == (1, 1, 1)
    assert exact([TEA], [like(text="Likes green tea.")]) == (0, 0, 0)  # punctuation counts
    odd = like(type="implied")  # not in the taxonomy
    assert exact([odd], [odd]) == (1, 1, 1)
    assert exact([odd], [like(type="indirect")]) == (0, 0, 0)


# --- similarity -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Preferences/Food", "Preferences/Food", 1.0),
        ("Preferences/Food", "Preferences/Music", 2 * 1 / 4),
        ("Preferences/Food", "Preferences", 2 * 1 / 3),
        ("Thoughts/Goals/Long_Term", "Thoughts/Goals", 2 * 2 / 5),
        ("Preferences/Food", "Food/Preferences", 0.0),  # a prefix, not a set
        ("Preferences/Food", "preferences/Food", 0.0),
        ("/Preferences//Food/", "Preferences/Food", 1.0),
        (None, "Preferences", 0.0),
        (None, None, 0.0),
        ("", "", 0.0),
    ],
)
def test_label_similarity(one: str | None, other: str | None, expected: float) -> None:
    assert label_similarity(one, other) == pytest.approx(expected)
    assert label_similarity(other, one) == pytest.approx(expected)


def test_normalised_text_keeps_slash_dot_and_hyphen() -> None:
    assert normalised("  Owns a BMW-3, (2.0/TDI)!  It's «red» ") == "owns a bmw-3 2.0/tdi it s red"
    assert normalised("喜欢喝绿茶。") == "喜欢喝绿茶"
    assert normalised("?!") == ""


def test_value_similarity_is_jaccard_and_ratio_and_says_which_comes_first() -> None:
    one, other = "likes green tea a lot", "likes tea"
    ratio = difflib.SequenceMatcher(None, one, other).ratio()
    assert value_similarity(one, other) == pytest.approx(0.6 * 2 / 5 + 0.4 * ratio)
    assert value_similarity(one, one) == 1
    assert value_similarity("", "") == value_similarity(one, "") == 0
    # Without spaces there is one token each, and characters alone tell.
    assert value_similarity("喜欢喝绿茶", "喜欢喝红茶") == pytest.approx(0.4 * 0.8)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (0.9, 0.9, 1.0),
        (0.9, 0.7, 1.0),
        (0.8, 0.5, 1 - 0.1 / 0.8),
        (1.0, 0.0, 0.0),
        (None, None, 1.0),
        (None, 0.6, 1 - 0.2 / 0.8),  # a missing one counts as 1
        (7.0, 1.0, 1.0),  # and all are clipped to 0..1
        (-3.0, 0.0, 1.0),
    ],
)
def test_confidence_similarity(one: float | None, other: float | None, expected: float) -> None:
    assert confidence_similarity(one, other) == pytest.approx(expected)
    assert confidence_similarity(other, one) == pytest.approx(expected)


def pair_score(gold: MemoryItem, predicted: MemoryItem) -> float:
    return float(pair_scores([gold], [predicted])[0, 0])


def test_pair_score_is_the_weighted_sum() -> None:
    assert pair_score(TEA, TEA) == pytest.approx(1.0)
    assert pair_score(TEA, like(label=None)) == pytest.approx(0.6)
    assert pair_score(TEA, like(text="?")) == pytest.approx(0.6)
    assert pair_score(TEA, like(type="indirect")) == pytest.approx(0.9)
    assert pair_score(TEA, like(confidence=0.5)) == pytest.approx(0.9 + 0.1 * (1 - 0.2 / 0.8))
    assert pair_score(TEA, like(id="x", emotion=None, attitude=None)) == pytest.approx(1.0)
    assert pair_scores([TEA], []).shape == (1, 0)


# --- assignment -----------------------------------------------------------------------------------


def test_hungarian_takes_the_best_sum_where_greedy_takes_the_best_pair() -> None:
    scores = np.array([[0.9, 0.8], [0.8, 0.1]])
    assert greedy(scores) == [(0, 0), (1, 1)]
    assert hungarian(scores) == [(0, 1), (1, 0)]


@given(st.integers(1, 4), st.integers(1, 5), st.randoms(use_true_random=False))
def test_assignments_against_enumeration(rows: int, columns: int, draw: random.Random) -> None:
    scores = np.array([[round(draw.random(), 1) for _ in range(columns)] for _ in range(rows)])
    size = min(rows, columns)
    best = max(
        sum(scores[row, column] for row, column in zip(some, others, strict=True))
        for some in itertools.combinations(range(rows), size)
        for others in itertools.permutations(range(columns), size)
    )
    for assign in (hungarian, greedy):
        pairs = assign(scores)
        assert len(pairs) == size == len({r for r, _ in pairs}) == len({c for _, c in pairs})
        total = sum(scores[row, column] for row, column in pairs)
        assert total == pytest.approx(best) if assign is hungarian else total <= best + 1e-9


def test_without_scipy_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ModuleNotFoundError, match="pip install scipy, or pass --assign greedy"):
        hungarian(np.ones((1, 1)))


def test_pairs_are_accepted_from_030() -> None:
    # Label 0.5, text and type differ, confidence equal: 0.20 + 0.10, a sum that floats may miss.
    other = MemoryItem("?", label="Preferences/Music", type="indirect", confidence=0.9)
    assert pair_score(TEA, other) == pytest.approx(0.30)
    assert len(similar_pairs([TEA], [other])) == 1
    assert similar_pairs([TEA], [replace(other, confidence=0.6)]) == ()
    assert similar_pairs([], [TEA]) == similar_pairs([TEA], []) == ()


# --- figures --------------------------------------------------------------------------------------


def test_figures_are_means_over_sessions_and_pooled_counts_stand_beside_them() -> None:
    """1 of 1 and 1 of 4 are 0.625 over sessions and 0.4 over memories."""
    sessions = [
        SessionPairs("a", (TEA,), (TEA,), (Pair(0, 0, 1.0),)),
        SessionPairs("b", (TEA,) * 4, (TEA,), (Pair(2, 0, 0.5),)),
    ]
    found = figures(sessions, graded=True).to_json()
    assert (found["precision"], found["recall"]) == (1.0, 0.625)
    assert found["pooled"]["recall"] == pytest.approx(0.4)
    assert found["f1"] == pytest.approx((1 + 0.4) / 2)
    assert found["pair_score"] == pytest.approx(0.75)
    assert found["algorithmic_score"] == pytest.approx((100 + 100 * (0.6 * 0.5 + 0.4 * 0.4)) / 2)
    low, high = (found["intervals"]["recall"][side] for side in ("low", "high"))
    assert low <= 0.625 <= high
    assert found["intervals"]["algorithmic_score"]["high"] == pytest.approx(100)


def test_empty_lists_are_perfect_in_every_figure_and_no_session_has_none() -> None:
    found = figures([SessionPairs("a", (), (), ())], graded=True).to_json()
    assert [found[k] for k in ("precision", "recall", "f1", "pair_score")] == [1, 1, 1, 1]
    assert found["algorithmic_score"] == 100
    found = figures([], graded=True).to_json()
    assert found["sessions"] == 0
    assert found["precision"] is found["f1"] is found["algorithmic_score"] is None


def test_breakdown_tells_a_gold_found_from_one_found_as_such() -> None:
    direct, indirect = like(), like(type="indirect")
    sessions = [
        SessionPairs(
            "a", (direct, indirect), (direct, direct, indirect), (Pair(0, 0, 1), Pair(1, 1, 1))
        )
    ]
    found = {name: group.to_json() for name, group in figures_by_group(sessions, kind).items()}
    assert list(found) == ["direct", "indirect"]
    assert found["indirect"]["recall"]["mean"] == 1  # by a memory that calls itself direct
    assert found["indirect"]["recall_as_such"]["mean"] == 0
    assert found["direct"]["precision"]["mean"] == 1
    assert found["indirect"]["precision"]["mean"] == 0
    alone = figures_by_group([SessionPairs("a", (), (direct,), ())], kind)["direct"]
    assert (alone.gold, alone.predicted, alone.recall, alone.recall_as_such) == (0, 1, None, None)


def kind(item: MemoryItem) -> str:
    return item.type or "(none)"
