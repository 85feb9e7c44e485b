"""By simulation: intervals hold the true value as often as they say, and so do tests reject."""

import math

import numpy as np
import pytest

from benchmarks.interval_coverage import (
    SCENARIOS,
    Scenario,
    expected,
    family,
    latent,
    measure,
    value,
)

LEVELS = (0.1, 0.35, 0.85)


def within(share: float, wanted: float, runs: int) -> bool:
    """Whether a share of so many runs is one that chance gives, up to four standard errors."""
    return abs(share - wanted) <= 4 * math.sqrt(wanted * (1 - wanted) / runs)


@pytest.mark.parametrize(
    "scenario", [SCENARIOS[i] for i in (0, 3, 8)], ids=lambda scenario: scenario.name
)
def test_intervals_and_tests_are_near_their_level(scenario: Scenario) -> None:
    runs = 400
    found = measure(scenario, runs, resamples=500)
    for share in (found.mean, found.difference, found.area):
        assert within(share, 0.95, runs)
    assert within(found.randomisation, 0.05, runs)
    if scenario.several and scenario.kind == "ndcg":
        assert not within(found.by_query, 0.05, runs)  # sessions are what makes it right
    if scenario.several:
        assert found.mcnemar is None
    elif scenario.kind == "hits":
        assert found.mcnemar is not None
        assert found.mcnemar <= found.randomisation


def test_holm_keeps_the_level_of_a_family() -> None:
    plain, corrected = family(SCENARIOS[8], 300, resamples=1000)
    assert plain > 0.15  # of ten comparisons
    assert corrected <= 0.05 or within(corrected, 0.05, 300)


@pytest.mark.large
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_intervals_cover_93_to_97_and_tests_reject_4_to_6_percent(scenario: Scenario) -> None:
    found = measure(scenario, 4000, resamples=1000)
    for share in (found.mean, found.difference, found.area):
        assert 0.93 <= share <= 0.97
    assert 0.04 <= found.randomisation <= 0.06
    if found.mcnemar is not None:
        assert 0.02 <= found.mcnemar <= 0.05


@pytest.mark.parametrize("kind", ["hits", "tied", "ndcg"])
def test_the_true_means_of_the_simulation_are_true(kind: str) -> None:
    rng = np.random.default_rng(0)
    scores, _ = latent(rng, range(2000), 20)
    for level in LEVELS:
        drawn = value(kind, scores, level, rng)
        spread = drawn.std() / math.sqrt(drawn.size)
        assert abs(drawn.mean() - expected(kind, level)) < 5 * spread
