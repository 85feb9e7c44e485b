"""Several retrievers as one family: who is compared with whom, over what, and what is refused."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.compare import app
from analysis.metrics import NDCG, Metric, Recall, parse_metric
from analysis.p_values import holm
from analysis.paired import paired
from analysis.rows import SweepRow
from analysis.runs import Run
from analysis.sides import Side, area_weights, query_value, side_names
from analysis.significance import (
    Pairing,
    area_pairings,
    pairings,
    recall_area,
    side_areas,
    side_letters,
    superscripts,
)
from analysis.statistics import Bootstrap
from recallbed.errors import UserError
from tests import kit
from tests.kit import one_line_error, swept, write_lines

SIZES = (9, 99, 999)
RANKS = {"good": 0.1, "fair": 0.5, "poor": 0.9}
"""How far down a retriever's golds are, as a share of a small pool."""


def run_of(
    above: Mapping[str, Mapping[int, Sequence[int | None]]],
    path: str = "runs/x",
    sessions: Mapping[str, str] | None = None,
    seed: int = 0,
    pool_sizes: Mapping[str, Mapping[str, int]] | None = None,
) -> Run:
    """A run of labels with the rank of each query's gold at each size; None for a failed row."""
    rows = [
        SweepRow(
            query=f"q{number}",
            retriever=label,
            distractors=size,
            pool=f"{size}/{number}",
            golds=(0,),
            ties=() if rank is None else ((rank, 1),),
            error="down" if rank is None else None,
        )
        for label, by_size in above.items()
        for size, ranks in by_size.items()
        for number, rank in enumerate(ranks)
    ]
    prints = {
        "retrievers": [{"label": label} for label in above],
        "pools": {"strategy": "nested", "seeds": [0], "distractors": list(SIZES)},
        "seed": seed,
    }
    manifest: dict[str, Any] = {"fingerprint": prints, "sessions": dict(sessions or {})}
    return Run(Path(path), manifest | {"pool_sizes": dict(pool_sizes or {})}, rows)


def drawn(labels: Mapping[str, float] = RANKS, queries: int = 40, seed: int = 0) -> Run:
    """A run whose golds lie deeper the larger the pool is."""
    rng = np.random.default_rng(seed)
    above = {
        label: {
            size: [int(v) for v in (rng.random(queries) * share * (size + 1)) ** 0.8]
            for size in SIZES
        }
        for label, share in labels.items()
    }
    return run_of(above, sessions={f"q{i}": f"s{i // 2}" for i in range(queries)})


@pytest.fixture(scope="module")
def run() -> Run:
    return drawn()


def sides_of(run: Run, *labels: str) -> list[Side]:
    return [Side(run, label) for label in labels or run.labels]


METRICS: list[Metric] = [Recall(1), Recall(5), NDCG(10), parse_metric("E[RR]")]


def values(run: Run, label: str, size: int, metric: Metric) -> dict[str, float]:
    return {q: query_value(metric, rows) for q, rows in Side(run, label).rows(size).items()}


def test_every_pair_is_compared_as_alone(run: Run) -> None:
    found = pairings(sides_of(run), METRICS, baseline=None)
    wanted = [
        (size, metric, a, b)
        for size in SIZES
        for metric in METRICS
        for a, b in combinations(RANKS, 2)
    ]
    assert [(one.distractors, one.metric, one.a, one.b) for one in found] == wanted
    sessions = run.manifest["sessions"]
    for one in found[::5]:
        a, b = (values(run, side, one.distractors, one.metric) for side in (one.a, one.b))
        alone = paired(a, b, sessions)
        assert replace(one.paired, low=alone.low, high=alone.high) == alone
        assert (one.paired.low, one.paired.high) == pytest.approx((alone.low, alone.high))
        assert (one.mcnemar, one.effect) == (alone.mcnemar, alone.effect)
    assert [one.holm for one in found] == holm([one.paired.p for one in found])
    assert all(one.unpaired == 0 for one in found)


def test_a_baseline_is_side_a_of_every_pair(run: Run) -> None:
    for place, label in enumerate(RANKS):
        found = pairings(sides_of(run), METRICS[:1], sizes=[99], baseline=place)
        assert [(one.a, one.b) for one in found] == [(label, o) for o in RANKS if o != label]
    first = pairings(sides_of(run), METRICS[:1], sizes=[99])
    assert [one.a for one in first] == ["good", "good"]
    assert [one.holm for one in first] == holm([one.paired.p for one in first])


def test_sides_of_several_runs(run: Run) -> None:
    other = replace(drawn(), path=Path("runs/y"))
    sides = [Side(run, "good"), Side(other, "good"), Side(other, "poor"), Side(run, "good")]
    names = ["runs/x:good", "runs/y:good", "poor", "runs/x:good (2)"]
    assert side_names(sides) == names
    found = pairings(sides, METRICS[:1], sizes=[9])
    assert [(one.a, one.b) for one in found] == [(names[0], name) for name in names[1:]]
    assert [one.paired.equal for one in found] == [True, False, True]
    assert found[0].paired.reason == "no difference on any query"
    assert (found[0].paired.p, found[0].holm, found[0].effect) == (1.0, 1.0, None)


def test_sizes_that_two_sides_share(run: Run) -> None:
    part = replace(run, path=Path("runs/part"), rows=[r for r in run.rows if r.distractors > 9])
    sides = [Side(run, "good"), Side(run, "fair"), Side(part, "poor")]
    found = pairings(sides, METRICS[:1])
    assert [(one.distractors, one.b) for one in found] == [
        *((9, "fair"), (99, "fair"), (99, "poor"), (999, "fair"), (999, "poor"))
    ]
    with pytest.raises(UserError, match=r"poor: no rows at 9 distractors \(it has 99, 999\)"):
        pairings(sides, METRICS, sizes=[9])
    least = replace(run, rows=[r for r in run.rows if r.distractors == 9])
    with pytest.raises(UserError, match="have no pool size in common"):
        pairings([Side(least, "good"), Side(part, "poor")], METRICS)


def test_failures_are_left_out_of_their_pairs_and_counted() -> None:
    one = run_of(
        {
            "a": {9: [0, 1, 0, None, 3, 0]},
            "b": {9: [1, None, 1, None, 3, 2]},
            "c": {9: [0, 5, 1, 1, 1, 1]},
        }
    )
    found = pairings(sides_of(one), [Recall(1)], baseline=None)
    assert [(p.a, p.b, p.paired.n, p.unpaired) for p in found] == [
        *(("a", "b", 4, 2), ("a", "c", 5, 1), ("b", "c", 4, 2))
    ]
    kept = pairings(sides_of(one), [Recall(1)], baseline=None, keep=lambda q: q in ("q1", "q2"))
    assert [(p.paired.n, p.unpaired) for p in kept] == [(1, 1), (2, 0), (1, 1)]
    with pytest.raises(UserError, match="no query is left to compare at 9 distractors"):
        pairings(sides_of(one), [Recall(1)], keep=lambda q: q == "q3")


def test_other_queries_and_other_pools_are_refused(run: Run) -> None:
    fewer = replace(run, rows=[r for r in run.rows if r.query != "q7"])
    with pytest.raises(UserError, match=r"not the same queries at 9 distractors: 1 are .* `q7`"):
        pairings([Side(run, "good"), Side(fewer, "fair")], METRICS)
    moved = [replace(r, pool="other") if r.query == "q3" else r for r in run.rows]
    with pytest.raises(UserError, match="not the same pools: `q3` at 9 distractors"):
        pairings([Side(run, "good"), Side(replace(run, rows=moved), "fair")], METRICS)


def test_json_has_everything_and_no_nan(run: Run) -> None:
    [found] = pairings(sides_of(run, "good", "poor"), [NDCG(10)], sizes=[99])
    shown = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert {"difference", "low", "high", "p", "mcnemar", "holm", "effect", "wins", "ties"} <= {
        *shown
    }
    assert (shown["sides"], shown["distractors"]) == (["good", "poor"], 99)
    assert (shown["k"], shown["metric"]) == (10, "nDCG@10")
    [area] = area_pairings(sides_of(run, "good", "poor"), [Recall(1)])
    shown = area.to_json()
    assert (shown["area"], shown["k"], "distractors" in shown) == ([9, 99, 999], 1, False)


# Superscripts


def test_letters_of_the_sides_that_one_is_better_than(run: Run) -> None:
    found = pairings(sides_of(run), METRICS, baseline=None)
    shown = superscripts(found, list(RANKS))
    assert list(shown) == [(size, metric) for size in SIZES for metric in METRICS]
    for key, cell in shown.items():
        assert list(cell) == list(RANKS)
        for one in found:
            if (one.distractors, one.metric) == key:
                better = one.holm is not None and one.holm <= 0.05
                letters = dict(zip(RANKS, "abc", strict=True))
                assert (letters[one.b] in cell[one.a]) == (better and one.paired.difference > 0)
                assert (letters[one.a] in cell[one.b]) == (better and one.paired.difference < 0)
    assert shown[99, METRICS[2]]["good"] == "bc"
    assert superscripts(found, list(RANKS), alpha=0.0)[99, METRICS[2]]["good"] == ""


def test_letters_do_not_run_out() -> None:
    letters = side_letters(60)
    assert letters[:3] == ["a", "b", "c"]
    assert (letters[26], letters[59]) == ("a1", "h2")
    assert len(set(letters)) == 60


# Area


def test_the_area_of_a_line_is_known() -> None:
    # Recall@1 falls by a third with each tenfold of the pool: a straight line against the log.
    hits = {size: [0 if i < count else 1 for i in range(30)]
            for size, count in zip(SIZES, (30, 20, 10), strict=True)}  # fmt: skip
    found = recall_area(run_of({"a": hits}), "a", 1)
    assert found.mean == pytest.approx((1 + 1 / 3) / 2)
    assert found.low < found.mean < found.high
    assert area_weights(run_of({"a": hits}), SIZES) == pytest.approx([0.25, 0.5, 0.25])
    assert area_weights(run_of({"a": hits}), [9, 999]) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(("rank", "area"), [(0, 1.0), (5, 0.0)])
def test_the_area_lies_between_0_and_1(rank: int, area: float) -> None:
    found = recall_area(run_of({"a": {size: [rank] * 20 for size in SIZES}}), "a", 1)
    assert (found.mean, found.method) == (area, "wilson")
    assert 0 <= found.low < found.high <= 1


def test_the_area_is_numpys_trapezoid(run: Run) -> None:
    for label in RANKS:
        curve = [np.mean([*values(run, label, size, Recall(5)).values()]) for size in SIZES]
        logs = [math.log10(size + 1) for size in SIZES]
        steps = [(y + z) / 2 * (w - x) for x, w, y, z in zip(logs, logs[1:], curve, curve[1:],
                                                             strict=False)]  # fmt: skip
        whole = sum(steps) / (logs[-1] - logs[0])
        assert recall_area(run, label, 5).mean == pytest.approx(whole, abs=1e-12)


def test_the_interval_of_an_area_draws_sessions_with_all_their_pools(run: Run) -> None:
    of_size = {size: values(run, "fair", size, Recall(5)) for size in SIZES}
    weights = area_weights(run, SIZES)
    by_query = {
        q: sum(w * of_size[size][q] for w, size in zip(weights, SIZES, strict=True))
        for q in of_size[9]
    }
    queries = sorted(by_query)
    bootstrap = Bootstrap([run.manifest["sessions"][q] for q in queries])
    wanted = bootstrap.interval(np.array([by_query[q] for q in queries]))
    found = recall_area(run, "fair", 5)
    assert (found.mean, found.low, found.high) == pytest.approx(
        (wanted.mean, wanted.low, wanted.high)
    )


def test_pools_of_other_sizes_than_their_names_say() -> None:
    # Own pools: 100 memories at "9 distractors", so the logarithms are 2, 2 and 3.
    given = {"9/0": dict.fromkeys((f"q{i}" for i in range(4)), 10)}
    one = run_of({"a": {size: [0, 1, 0, 1] for size in SIZES}}, pool_sizes=given)
    assert area_weights(one, SIZES) == pytest.approx([0.25, 0.5, 0.25])
    given["9/0"] |= dict.fromkeys(("q0", "q1", "q2"), 100)
    same = run_of({"a": {size: [0, 1, 0, 1] for size in SIZES}}, pool_sizes=given)
    with pytest.raises(UserError, match="it needs pools of two sizes or more"):
        area_weights(same, SIZES)


def test_one_size_has_no_area(run: Run) -> None:
    single = replace(run, rows=[r for r in run.rows if r.distractors == 99])
    with pytest.raises(UserError, match="no area under the curve at 99 distractors only: it needs"):
        recall_area(single, "good", 1)
    with pytest.raises(UserError, match="it needs pools of two sizes"):
        area_pairings(sides_of(single), [Recall(1)])


def test_a_query_that_failed_at_one_size_has_no_area() -> None:
    ranks = {9: [0, 0, 1, 1], 99: [0, None, 1, 0], 999: [0, 0, 0, 0]}
    found = side_areas([Side(run_of({"a": ranks}), "a")], [Recall(1)])
    assert [(one.n, one.sizes) for one in found] == [(3, SIZES)]
    gone = run_of({"a": ranks | {999: [None] * 4}})
    with pytest.raises(UserError, match="no query is scored at all of its sizes"):
        recall_area(gone, "a", 1)


def test_areas_are_compared_as_any_figure(run: Run) -> None:
    [found] = area_pairings(sides_of(run, "good", "poor"), [Recall(5)])
    assert found.paired.difference == pytest.approx(
        recall_area(run, "good", 5).mean - recall_area(run, "poor", 5).mean
    )
    assert found.paired.verdict == "a is better"
    assert (found.sizes, found.distractors, found.holm) == (SIZES, 999, found.paired.p)
    assert superscripts([found], ["good", "poor"]) == {(999, Recall(5)): {"good": "b", "poor": ""}}


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of three retrievers over a file of one's own, with pools of two sizes."""
    place = tmp_path_factory.mktemp("significance")
    rows = [
        {
            "query": f"topic {i} colour {i % 5}",
            "memories": [f"topic {(i * j) % 9} note {i} {j} colour {j % 4}" for j in range(12)],
            "gold": i % 12,
            "session": f"s{i // 2}",
        }
        for i in range(24)
    ]
    labels = ["words=overlap", "lexical=bm25", "chance=constant"]
    given = {"distractors": (5, 11), "ks": (1, 3), "pools": "nested"}
    own = write_lines(place / "own.jsonl", rows)
    return swept(labels, own, out=place / "run", **given).path


def test_a_run_alone_stands_for_all_of_its_retrievers(folder: Path) -> None:
    found = kit.run_json(app, folder, "--k", "1")
    assert [one["sides"] for one in found[:2]] == [["words", "lexical"], ["words", "chance"]]
    assert {one["distractors"] for one in found} == {5, 11}
    every = kit.run_json(app, folder, "--k", "1", "--all-pairs", "--distractors", "11")
    assert [one["sides"] for one in every] == [
        *(["words", "lexical"], ["words", "chance"], ["lexical", "chance"])
    ]
    base = kit.run_json(app, folder, "--k", "1", "--baseline", "chance", "--distractors", "11")
    assert [one["sides"][0] for one in base] == ["chance", "chance"]
    by_word = [f"{folder}:words", f"{folder}:chance", "--baseline", f"{folder}:chance"]
    assert kit.run_json(app, *by_word, "--k", "1")[0]["sides"] == ["chance", "words"]


def test_runs_and_retrievers_can_be_mixed(folder: Path) -> None:
    words = [f"{folder}:chance", folder, "--k", "1", "--distractors", "5"]
    found = kit.run_json(app, *words)
    names = [f"{folder}:chance", "words", "lexical", f"{folder}:chance (2)"]
    assert [one["sides"] for one in found] == [[names[0], name] for name in names[1:]]
    assert found[2]["reason"] == "no difference on any query"
    base = kit.run_json(app, *words, "--baseline", "lexical")
    assert {one["sides"][0] for one in base} == {"lexical"}


def test_metrics_and_areas_are_shown(folder: Path) -> None:
    words = [folder, "--all-pairs", "--metric", "nDCG@3", "--metric", "E[RR]", "--area"]
    found = kit.run_json(app, *words)
    assert [one["metric"] for one in found[:4]] == ["nDCG@3"] * 3 + ["E[RR]"]
    areas = [one for one in found if "area" in one and "sides" in one]
    assert len(areas) == 6
    single = [one for one in found if "side" in one]
    assert [one["side"] for one in single[::2]] == ["words", "lexical", "chance"]
    assert all(0 <= one["low"] <= one["mean"] <= one["high"] <= 1 for one in single)
    shown = kit.run(app, *words, code=0)
    assert "Area under the curve against log pool size" in shown.stdout
    assert {"Holm", "McNemar", "effect", "nDCG@3", "E[RR]"} <= set(shown.stdout.split())
    assert "corrected for 12 comparisons" in shown.stderr
    assert "corrected for 6 areas" in shown.stderr


def test_a_verdict_that_the_correction_does_not_bear_says_so() -> None:
    from analysis.comparison_table import comparison_table

    one = drawn({"a": 0.1, "b": 0.9})
    [found] = pairings(sides_of(one), [NDCG(10)], sizes=[9])
    text = "\n".join(comparison_table([found]).lines())
    assert found.paired.verdict == "a is better"
    assert "a is better" in text
    assert "not after Holm" not in text
    text = "\n".join(comparison_table([replace(found, holm=0.2)]).lines())
    assert "a is better (not after Holm)" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metric", "F1"], "--metric F1: not a metric"),
        (["--baseline", "minilm"], "--baseline minilm: not one of the sides (words, lexical"),
        (["--baseline", "words", "--all-pairs"], "--baseline and --all-pairs exclude"),
        (["--distractors", "7"], "words: no rows at 7 distractors (it has 5, 11)"),
        (["--distractors", "5", "--area"], "it needs pools of two sizes or more"),
    ],
)
def test_what_the_command_refuses(folder: Path, words: list[str], said: str) -> None:
    one_line_error(kit.run(app, folder, *words), said)


def test_one_side_is_not_compared(folder: Path) -> None:
    one_line_error(kit.run(app, f"{folder}:words"), "one side only")
    [area] = kit.run_json(app, f"{folder}:words", "--area", "--metric", "R@3")
    assert (area["side"], area["area"], area["n"], area["k"]) == ("words", [5, 11], 24, 3)
    assert kit.run(app, f"{folder}:words", "--area", code=0).stdout.startswith("Area under")


def test_pairings_are_values() -> None:
    one = drawn({"a": 0.3, "b": 0.6})
    first, second = (pairings(sides_of(one), METRICS) for _ in range(2))
    assert first == second
    assert all(isinstance(p, Pairing) for p in first)
