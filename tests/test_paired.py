"""Paired comparisons: what is counted, over what, and what is said if there is no figure."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.p_values import FLIPS, mcnemar
from analysis.paired import paired, paired_figures
from analysis.statistics import Bootstrap


def test_fractions_are_weighed_by_their_size_not_by_their_sign_alone() -> None:
    # Twelve hair-thin wins against one whole loss: a sign test would call that p = 0.003.
    a = {f"q{i}": 0.01 for i in range(12)} | {"q12": 0.0}
    b = {f"q{i}": 0.0 for i in range(12)} | {"q12": 1.0}
    assert mcnemar(12, 1) < 0.01
    assert paired(a, b).p > 0.5


def test_queries_of_one_session_are_flipped_together() -> None:
    a = {f"q{i}": 1.0 for i in range(20)}
    b = {f"q{i}": 0.0 for i in range(20)}
    assert paired(a, b).p == 1 / (FLIPS + 1)
    # Two sessions hold two signs: half of the four patterns are as extreme, and count one half.
    found = paired(a, b, {q: f"s{int(q[1:]) // 10}" for q in a})
    assert found.p == pytest.approx(0.25, abs=0.02)
    assert found.mcnemar is None
    assert found.mcnemar_reason == "several queries are of one session"


def test_a_clear_difference_is_named_from_either_side() -> None:
    a = {f"q{i}": 1.0 for i in range(40)}
    b = {f"q{i}": float(i < 10) for i in range(40)}
    found = paired(a, b)
    assert (found.n, found.a, found.b, found.difference) == (40, 1.0, 0.25, 0.75)
    assert (found.wins, found.losses, found.verdict) == (30, 0, "a is better")
    assert found.low > 0
    assert (found.p, found.mcnemar) == (1 / (FLIPS + 1), pytest.approx(2 / 2**30))
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
    assert found.p == pytest.approx(1 / 2**8, abs=0.003)
    assert found.effect is None
    assert found.effect_reason == "the difference is the same in every session"
    assert found.interval_text == "(no interval: the difference is the same on every query)"


def test_fractions_that_differ_in_the_last_bits_are_ties() -> None:
    a = {"q1": 0.1 + 0.2, "q2": 1.0, "q3": 0.0}
    b = {"q1": 0.3, "q2": 0.0, "q3": 0.0}
    found = paired(a, b)
    assert (found.wins, found.ties, found.losses) == (1, 2, 0)
    assert found.p == pytest.approx(0.5, abs=0.03)  # one difference: both signs are as extreme


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(ValueError, match="no queries"):
        paired({}, {})


def test_the_effect_is_that_of_a_paired_t_test() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    a, b = rng.random(40), rng.random(40)
    found = paired(*({str(i): float(v) for i, v in enumerate(side)} for side in (a, b)))
    assert found.effect == pytest.approx(stats.ttest_rel(a, b).statistic / math.sqrt(40))


def test_the_effect_is_over_sessions() -> None:
    # Asking every query twice in its session changes nothing.
    rng = np.random.default_rng(1)
    values = {f"q{i}": float(v) for i, v in enumerate(rng.random(20))}
    zeros = dict.fromkeys(values, 0.0)
    once = paired(values, zeros)
    doubled = {f"{q}.{i}": v for q, v in values.items() for i in range(2)}
    sessions = {q: q.partition(".")[0] for q in doubled}
    twice = paired(doubled, dict.fromkeys(doubled, 0.0), sessions)
    assert twice.effect == pytest.approx(once.effect)
    assert paired(doubled, dict.fromkeys(doubled, 0.0)).effect == pytest.approx(
        once.effect, rel=0.02
    )
    # Sessions of unequal size: the deviation is that of the bootstrap, but for the root of n.
    names = [f"s{i % 7 % 5}" for i in range(20)]
    found = paired(values, zeros, dict(zip(values, names, strict=True)))
    drawn = Bootstrap(names).means(np.array([values[q] for q in values]))
    assert found.effect is not None
    assert found.difference / found.effect / math.sqrt(5) == pytest.approx(drawn.std(), rel=0.2)


def test_mcnemar_needs_hits() -> None:
    hits = {f"q{i}": float(i % 3 == 0) for i in range(30)}
    misses = dict.fromkeys(hits, 0.0)
    assert paired(hits, misses).mcnemar == mcnemar(10, 0)
    tied = misses | {"q1": 0.5}
    found = paired(hits, tied)
    assert (found.mcnemar, found.mcnemar_reason) == (None, "the values are not all 0 or 1")
    # One query without a difference is enough to show that a run is not free of ties.
    assert paired(hits | {"q1": 0.5}, tied).mcnemar is None


def test_sessions_that_cancel_out_hold_no_evidence() -> None:
    a = {"q0": 1.0, "q1": 0.0, "q2": 1.0, "q3": 0.0}
    b = {"q0": 0.0, "q1": 1.0, "q2": 0.0, "q3": 1.0}
    found = paired(a, b, {"q0": "s", "q1": "s", "q2": "t", "q3": "t"})
    assert (found.wins, found.losses, found.p) == (2, 2, 1.0)
    assert not found.equal
    assert found.effect_reason == "the difference is the same in every session"


def test_reasons_name_what_is_compared() -> None:
    units = ("session", "sessions")
    same = {"a": 0.5, "b": 0.25}
    assert paired(same, same, units=units).reason == "no difference on any session"
    lone = paired({"a": 1.0}, {"a": 0.0}, units=units)
    assert lone.reason == "there is one session only"
    with pytest.raises(ValueError, match="not the same sessions"):
        paired(same, {"a": 0.5}, units=units)


def test_figures_together_are_each_alone() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((2, 4, 30))
    b[1] = a[1]
    b[2] = a[2] - 0.25
    names = [f"s{i % 11}" for i in range(30)]
    together = paired_figures(a, b, names, 3)
    for one, x, y in zip(together, a, b, strict=True):
        [alone] = paired_figures(x[np.newaxis], y[np.newaxis], names, 3)
        found, wanted = asdict(one), asdict(alone)
        for key in ("low", "high"):
            assert found.pop(key) == pytest.approx(wanted.pop(key), abs=1e-12)
        assert found == wanted
