"""How often 95 % intervals hold the true value, and how often tests reject where nothing differs.

    python benchmarks/interval_coverage.py [--runs 10000] [--resamples 10000] [--seed 0]

Each line is a simulated benchmark: sessions of one query or of one to six, of which the true mean
is known, with hits or with fractions (nDCG@10, hits among ties). Two systems find a query easy or
difficult together, and have strengths of their own that last for a session. `mean`, `difference`
and `area` are the shares of 95 % intervals that hold the true value; `randomisation` and `McNemar`
the shares of p <= 0.05 without a true difference; `by query` is that of a test that takes the
queries of a session for independent. Wanted are 0.93 to 0.97, and 0.04 to 0.06. Then, of all pairs
of five systems that do not differ: how often one has a p, and a Holm p, of at most 0.05.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from analysis.p_values import holm, sign_flip_tests
from analysis.paired import Paired, paired_figures
from analysis.statistics import Bootstrap, Floats

NORMAL = NormalDist()
PARTS = {"session": 0.25, "query": 0.35, "own session": 0.2, "own query": 0.2}
"""Shares of the variance of a system's latent score of a query."""
AT_ONCE = 1000
AREA = (0.25, 0.5, 0.25)
FALL = (0.25, 0.0, -0.25)
"""What larger pools take from the latent score, of which the area is made."""


@dataclass(frozen=True)
class Scenario:
    """A benchmark: its sessions, what a query is worth, and how good the systems are.

    `level` is the chance of a hit of both systems under the null; the other system's is `better`.
    """

    name: str
    sessions: int
    several: bool
    kind: str
    level: float
    better: float

    def clusters(self) -> list[str]:
        """The session of every query: one, or one to six, the same in every run."""
        rng = np.random.default_rng(self.sessions)
        sizes = [1] * self.sessions
        if self.several:
            sizes = [int(n) for n in 1 + rng.binomial(5, 0.3, self.sessions)]
        return [f"s{i:04d}" for i, size in enumerate(sizes) for _ in range(size)]


SCENARIOS = (
    Scenario("hits, one query", 164, False, "hits", 0.35, 0.45),
    Scenario("hits, one query, rare", 400, False, "hits", 0.10, 0.14),
    Scenario("hits, one query, frequent", 400, False, "hits", 0.85, 0.90),
    Scenario("hits, several queries", 150, True, "hits", 0.35, 0.45),
    Scenario("hits, several queries, rare", 300, True, "hits", 0.10, 0.14),
    Scenario("tied hits, one query", 164, False, "tied", 0.35, 0.45),
    Scenario("tied hits, several queries", 150, True, "tied", 0.35, 0.45),
    Scenario("nDCG@10, one query", 164, False, "ndcg", 0.35, 0.45),
    Scenario("nDCG@10, several queries", 150, True, "ndcg", 0.35, 0.45),
    Scenario("nDCG@10, several queries", 400, True, "ndcg", 0.10, 0.14),
)
EDGES = (
    Scenario("hits, one query", 20, False, "hits", 0.35, 0.60),
    Scenario("hits, one query", 50, False, "hits", 0.35, 0.50),
    Scenario("hits, several queries", 20, True, "hits", 0.35, 0.60),
    Scenario("hits, several queries", 50, True, "hits", 0.35, 0.50),
    Scenario("hits, one query, very rare", 150, False, "hits", 0.02, 0.06),
    Scenario("hits, one query, all but all", 150, False, "hits", 0.96, 0.99),
    Scenario("nDCG@10, one query", 20, False, "ndcg", 0.35, 0.60),
)
"""Fewer sessions, and hits rarer, than in the benchmarks that we know."""


def latent(
    rng: np.random.Generator, session: Sequence[int], runs: int, systems: int = 2
) -> list[Floats]:
    """Draw the standard normal scores of systems, (runs, queries) each."""
    count, queries = max(session) + 1, len(session)

    def part(name: str, by_session: bool) -> Floats:
        drawn = rng.standard_normal((runs, count if by_session else queries))
        return math.sqrt(PARTS[name]) * (drawn[:, session] if by_session else drawn)

    shared = part("session", True) + part("query", False)
    return [shared + part("own session", True) + part("own query", False) for _ in range(systems)]


def value(kind: str, scores: Floats, level: float, rng: np.random.Generator) -> Floats:
    """Return what queries are worth if hits have the chance `level`."""
    above = NORMAL.inv_cdf(1 - level)
    if kind == "ndcg":
        rank = 1 + np.floor(np.exp((above - scores) * 1.5).clip(0, 1e6))
        return np.where(rank <= 10, 1 / np.log2(rank + 1), 0.0)
    hits = (scores > above).astype(float)
    return hits / rng.integers(1, 4, scores.shape) if kind == "tied" else hits


def expected(kind: str, level: float) -> float:
    """Return the mean of `value`, exactly."""
    if kind == "ndcg":
        above = NORMAL.inv_cdf(1 - level)
        at_most = [0.0] + [NORMAL.cdf(math.log(r) / 1.5 - above) for r in range(1, 11)]
        steps = [at_most[r] - at_most[r - 1] for r in range(1, 11)]
        return sum(step / math.log2(r + 1) for r, step in enumerate(steps, 1))
    return level * ((1 + 1 / 2 + 1 / 3) / 3 if kind == "tied" else 1)


@dataclass(frozen=True)
class Measured:
    """Shares of runs: of intervals that hold the true value, and of tests that reject."""

    mean: float
    difference: float
    area: float
    randomisation: float
    mcnemar: float | None
    by_query: float


def measure(one: Scenario, runs: int, resamples: int, seed: int = 0) -> Measured:
    """Simulate a scenario `runs` times, with one seed for the intervals as a user has it."""
    rng = np.random.default_rng(seed)
    clusters = one.clusters()
    session = [int(name[1:]) for name in clusters]
    bootstrap = Bootstrap(clusters, 0, resamples)
    held: dict[str, list[bool]] = {name: [] for name in ("mean", "difference", "area")}
    nulls: list[Paired] = []
    by_query: list[bool] = []
    for part in _parts(runs):
        x, y = latent(rng, session, part)
        a, b = value(one.kind, x, one.level, rng), value(one.kind, y, one.level, rng)
        held["mean"] += _hold(bootstrap, a, expected(one.kind, one.level))
        nulls += paired_figures(a, b, clusters, flips=resamples, resamples=resamples)
        by_query += (sign_flip_tests(a - b, flips=resamples) <= 0.05).tolist()
        better = value(one.kind, y, one.better, rng)
        gap = expected(one.kind, one.level) - expected(one.kind, one.better)
        found = paired_figures(a, better, clusters, flips=1, resamples=resamples)
        held["difference"] += [
            p.low is not None and p.high is not None and p.low <= gap <= p.high for p in found
        ]
        levels = [NORMAL.cdf(NORMAL.inv_cdf(one.level) + fall) for fall in FALL]
        areas = sum(
            weight * value(one.kind, x, level, rng)
            for weight, level in zip(AREA, levels, strict=True)
        )
        true = sum(w * expected(one.kind, level) for w, level in zip(AREA, levels, strict=True))
        held["area"] += _hold(bootstrap, np.asarray(areas), true)
    exact = [p.mcnemar <= 0.05 for p in nulls if p.mcnemar is not None]
    return Measured(
        *(float(np.mean(held[name])) for name in ("mean", "difference", "area")),
        randomisation=float(np.mean([p.p is not None and p.p <= 0.05 for p in nulls])),
        mcnemar=float(np.mean(exact)) if exact else None,
        by_query=float(np.mean(by_query)),
    )


def family(
    one: Scenario, runs: int, resamples: int, systems: int = 5, seed: int = 0
) -> tuple[float, float]:
    """Return how often all pairs of systems that do not differ have a p, and a Holm p, <= 0.05."""
    rng = np.random.default_rng(seed)
    clusters = one.clusters()
    session = np.array([int(name[1:]) for name in clusters])
    pairs = list(combinations(range(systems), 2))
    found: list[tuple[bool, bool]] = []
    for part in _parts(runs):
        drawn = [value(one.kind, x, one.level, rng) for x in latent(rng, session, part, systems)]
        by_session = (np.arange(one.sessions)[:, None] == session).astype(float)
        gaps = np.concatenate([(drawn[a] - drawn[b]) @ by_session.T for a, b in pairs])
        ps = sign_flip_tests(gaps, flips=resamples).reshape(len(pairs), part).T
        for mine in ps.tolist():
            adjusted = [p for p in holm(mine) if p is not None]
            found.append((min(mine) <= 0.05, min(adjusted) <= 0.05))
    plain, corrected = np.mean(found, axis=0)
    return float(plain), float(corrected)


def _parts(runs: int) -> Iterator[int]:
    for start in range(0, runs, AT_ONCE):
        yield min(AT_ONCE, runs - start)


def _hold(bootstrap: Bootstrap, values: Floats, true: float) -> list[bool]:
    return [one.low <= true <= one.high for one in bootstrap.intervals(values)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--resamples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(f"{asked.runs} runs of each, {asked.resamples} resamples and sign patterns\n")
    print("| sessions | queries | mean | difference | area | randomisation | McNemar | by query |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for scenario in (*SCENARIOS, *EDGES):
        found = measure(scenario, asked.runs, asked.resamples, asked.seed)
        exact = "-" if found.mcnemar is None else f"{found.mcnemar:.3f}"
        print(
            f"| {scenario.sessions}: {scenario.name}, {scenario.level:.2f}"
            f" | {len(scenario.clusters())} | {found.mean:.3f} | {found.difference:.3f}"
            f" | {found.area:.3f} | {found.randomisation:.3f} | {exact} | {found.by_query:.3f} |",
            flush=True,
        )
    print("\n| five systems that do not differ | a p <= 0.05 | a Holm p <= 0.05 |")
    print("| --- | ---: | ---: |")
    for scenario in SCENARIOS:
        plain, corrected = family(scenario, asked.runs, asked.resamples, seed=asked.seed)
        name = f"{scenario.sessions}: {scenario.name}, {scenario.level:.2f}"
        print(f"| {name} | {plain:.3f} | {corrected:.3f} |", flush=True)


if __name__ == "__main__":
    main()
