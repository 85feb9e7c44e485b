"""How rankings become figures: ties, identical runs, ceilings, k past the pool."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.compare import app as compare_app
from analysis.metrics import (
    Recall,
    ReciprocalRank,
    above_tied,
    ranked,
    recall_at,
    reciprocal_rank,
)
from analysis.paired import paired
from analysis.tables import build_table, remarks
from task3.sweep import app as sweep_app
from task3.sweep_run import Outcome
from tests import kit
from tests.kit import WriteRelease, one_line_error, rows_of, swept

Sweep = Callable[..., Outcome]


@pytest.fixture
def sweep(write_release: WriteRelease, tmp_path: Path) -> Sweep:
    """Sweep a release of these rows, by default into `run`."""

    def do(rows: Sequence[Any], name: str, out: str = "run", **options: Any) -> Outcome:
        given = {"pools": "released", "distractors": (len(rows[0][1]) - 1,), **options}
        return swept([name], write_release(rows), out=tmp_path / out, **given)

    return do


def pools(count: int, size: int) -> list[tuple[str, Sequence[str], int]]:
    """Rows with made-up words, each with its gold at another position."""
    texts = [[f"fact {j} about {i}" for j in range(size)] for i in range(count)]
    return [(f"question {i}", texts[i], i * 7 % size) for i in range(count)]


# How ties are broken.


@pytest.mark.parametrize("gold", [0, 1])
def test_a_tie_of_two_is_half_whichever_is_the_gold(gold: int) -> None:
    tie = above_tied(ranked([1.0, 1.0], 2), gold)
    assert recall_at(1, *tie) == 0.5
    assert Recall(1).bounds([tie]) == (0.0, 1.0)
    assert reciprocal_rank(*tie) == 0.75  # pytrec_eval says 0.5 and 1.0


def test_rows_suffice_to_recompute_any_mean(sweep: Sweep) -> None:
    run = sweep(pools(5, 5), "random")
    rows = rows_of(run.path)
    recalls = [recall_at(1, row["above"], row["tied"]) for row in rows]
    assert len(rows) == 5
    assert run.summary["cells"][0]["recall"]["1"]["mean"] == pytest.approx(sum(recalls) / 5)


# Paired comparisons.


@pytest.mark.parametrize("other", [["q1", "q3"], ["q1"], ["q1", "q2", "q3"], []])
def test_other_queries_are_refused(other: list[str]) -> None:
    with pytest.raises(ValueError, match="not the same queries"):
        paired({"q1": 1.0, "q2": 0.0}, dict.fromkeys(other, 1.0))


def compare(*words: str, code: int | None = None) -> Any:
    return kit.run(compare_app, *words, "--json", code=code)


def test_a_run_and_itself_have_no_difference(sweep: Sweep) -> None:
    run = sweep(pools(8, 5), "random").path
    result = compare(str(run), str(run), "--k", "1", code=0)
    [found] = json.loads(result.stdout)
    assert (found["verdict"], found["difference"], found["p"]) == (None, 0.0, 1.0)
    assert found["reason"] == "no difference on any query"
    assert "NaN" not in result.stdout


def test_the_command_refuses_other_queries(sweep: Sweep) -> None:
    few = sweep(pools(8, 5), "random", "few", limit=4).path
    all_ = sweep(pools(8, 5), "random", "all").path
    one_line_error(compare(str(few), str(all_), "--k", "1"))


def test_the_command_refuses_other_pools(sweep: Sweep) -> None:
    options: dict[str, Any] = {"distractors": (12,), "pools": "nested"}
    one, two = (
        sweep(pools(8, 5), "random", f"run{seed}", pool_seeds=(seed,), **options).path
        for seed in (0, 1)
    )
    one_line_error(compare(str(one), str(two), "--k", "1"), "not the same pools", after_notes=True)


# K past the end, hidden ceilings, chance.


def test_ceiling_of_five_rivals() -> None:
    assert Recall(1).ceiling(1, 5) == 0.2
    assert ReciprocalRank().ceiling(1, 5) == pytest.approx(0.4567, abs=5e-5)
    assert Recall(5).ceiling(1, 5) == 1.0
    assert Recall(1).ceiling(1, 1) == ReciprocalRank().ceiling(1, 1) == 1.0


@pytest.mark.parametrize("strategy", ["released", "nested"])
@pytest.mark.parametrize("name", ["bm25", "constant", "random"])
def test_a_sweep_shows_the_ceiling(sweep: Sweep, strategy: str, name: str) -> None:
    """Five times the same query over the same pool, each time with another gold."""
    texts = [f"Went to the lake in month {i}" for i in range(5)]
    run = sweep([("Where did I go?", texts, i) for i in range(5)], name, pools=strategy)
    [cell] = run.summary["cells"]
    assert cell["recall"]["1"]["ceiling"] == 0.2
    assert cell["reciprocal_rank"]["ceiling"] == pytest.approx(0.4567, abs=5e-5)
    # The five golds take the five ranks, so every scorer reaches exactly its ceiling.
    assert cell["recall"]["1"]["mean"] == pytest.approx(0.2)
    assert cell["reciprocal_rank"]["mean"] == pytest.approx(0.4567, abs=5e-5)
    assert any("R@1 cannot exceed 0.200" in line for line in remarks(run.report))


def test_other_golds_count_only_in_the_pool(sweep: Sweep) -> None:
    rows = [
        ("Where did I go?", ["lake one", "hill", "moor"], 0),
        ("Where did I go?", ["lake two", "lake one", "moor"], 0),
        ("What do I eat?", ["soup", "lake one", "lake two"], 0),
    ]
    [cell] = sweep(rows, "constant").summary["cells"]
    # Only the second pool holds another gold of its query: (1 + 1/2 + 1) / 3.
    assert cell["recall"]["1"]["ceiling"] == pytest.approx(2.5 / 3, abs=1e-6)
    assert cell["reciprocal_rank"]["ceiling"] == pytest.approx((1 + 0.75 + 1) / 3, abs=1e-6)


def test_distinct_queries_have_no_ceiling(sweep: Sweep) -> None:
    run = sweep(pools(4, 5), "random")
    assert run.summary["cells"][0]["recall"]["1"]["ceiling"] == 1.0
    assert not any("cannot exceed" in line for line in remarks(run.report))


def test_recall_past_the_end_is_marked(sweep: Sweep) -> None:
    run = sweep(pools(4, 12), "random", ks=(5, 11, 12, 20))
    recall = run.summary["cells"][0]["recall"]
    trivial = {k: figures["trivial"] for k, figures in recall.items()}
    assert trivial == {"5": False, "11": False, "12": True, "20": True}
    text = "\n".join(remarks(run.report))
    assert "R@20 is trivial" in text
    assert "R@11 is trivial" not in text


def test_every_figure_has_its_chance(sweep: Sweep) -> None:
    run = sweep(pools(4, 12), "random", ks=(1, 5))
    recall = run.summary["cells"][0]["recall"]
    assert recall["1"]["chance"] == round(1 / 12, 6)
    assert recall["5"]["chance"] == round(5 / 12, 6)


# The order of ties must not move the curve.


def test_sixty_ties_at_zero_are_averaged_between_their_bounds() -> None:
    scores = ranked([*[1.0 + i for i in range(41)], *[0.0] * 60], 101)
    for gold in (41, 70, 100):
        tie = above_tied(scores, gold)
        assert tie == (41, 60)
        assert recall_at(10, *tie) == 0.0
        assert recall_at(50, *tie) == pytest.approx(9 / 60)
        assert Recall(50).bounds([tie]) == (0.0, 1.0)
        assert recall_at(101, *tie) == 1.0


def test_a_sweep_reports_mean_and_bounds(sweep: Sweep) -> None:
    # Query 0 shares a word with its gold alone; query 1 with nothing, so all eleven are tied.
    texts = ["green tea", *[f"thing{i} place{i}" for i in range(10)]]
    rows = [("green", texts, 0), ("unheard", texts, 4)]
    [cell] = sweep(rows, "bm25", ks=(5,)).summary["cells"]
    figures = cell["recall"]["5"]
    assert figures["mean"] == pytest.approx((1 + 5 / 11) / 2, abs=1e-6)
    assert (figures["worst"], figures["best"]) == (0.5, 1.0)
    assert (cell["tie_rate"], cell["all_tied"]) == (0.5, 1)


@pytest.mark.parametrize("name", ["bm25", "overlap", "random"])
def test_shuffling_changes_nothing(sweep: Sweep, name: str) -> None:
    rows = pools(6, 9)
    one = sweep(rows, name, "one")
    turned = [(query, texts[::-1], len(texts) - 1 - gold) for query, texts, gold in rows]
    two = sweep(turned, name, "two")
    assert one.summary["cells"] == two.summary["cells"]


# K as large as the pool.


def test_a_k_past_the_pool_is_marked(sweep: Sweep) -> None:
    run = sweep(pools(3, 19), "constant", ks=(1, 50))
    figures = run.summary["cells"][0]["recall"]["50"]
    assert figures["trivial"] is True
    assert (figures["mean"], figures["chance"]) == (1.0, Recall(50).chance(1, 19))
    heads = build_table(run.report, {}).columns
    assert "R@1 [95 %]" in heads
    assert not any("R@50" in head for head in heads)
    assert any("R@50 is trivial, k >= pool of 19" in line for line in remarks(run.report))


def test_a_trivial_size_alone_is_replaced(sweep: Sweep) -> None:
    run = sweep(pools(3, 5), "constant", distractors=(4, 9), pools="nested", ks=(5,))
    at_4, at_9 = (row[2] for row in build_table(run.report, {}).rows)
    assert at_4 == "k >= pool"
    assert at_9.startswith("0.500")


def test_trivial_ks_alone_are_reported(write_release: WriteRelease, tmp_path: Path) -> None:
    root = write_release(pools(3, 5))
    words = ["--retriever", "constant", "--data", str(root), "--distractors", "4", "--k", "5,50"]
    result = kit.run(sweep_app, *words, "--out", tmp_path / "run", code=0)
    assert "R@5 is trivial" in result.stderr
    assert "R@50 is trivial" in result.stderr
