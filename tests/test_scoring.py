"""Scoring of pools: faults fail their own query and are counted; unions score like single pools."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallbed.corpus.dataset import load_dataset
from recallbed.corpus.options import Strategy
from recallbed.corpus.pools import PoolSet, build_pools
from recallbed.corpus.records import Memory
from retrievers import Retriever, RetrieverError, Scored, Usage
from retrievers.bm25 import BM25
from retrievers.chance import Constant, Random
from retrievers.overlap import Overlap
from task3.pool_scoring import PoolKey, Scorer
from task3.sweep import app
from tests.kit import WriteRelease, one_line_error, run

ROWS = [
    ("any tea at home", ["drinks tea at home", "has a cat", "sleeps late"], 0),
    ("faulty query about boats", ["owns two boats", "reads novels", "plays the flute"], 0),
    ("which novels", ["paints walls", "reads novels", "grows beans"], 1),
]


class Unreadable:
    """Something that numpy asks for an array in vain, as a torch tensor with gradients is."""

    def __array__(self, *args: Any, **more: Any) -> Any:
        raise RuntimeError("call detach() first")


def raising(error: Exception) -> Callable[[int], Any]:
    def fault(n: int) -> Any:
        raise error

    return fault


# What a retriever does wrong with a pool of n, and words of the cause that must be counted.
FAULTS: dict[str, tuple[Callable[[int], Any], str]] = {
    "too long": (lambda n: [0.0] * (n + 1), "shape (4,) for a pool of 3"),
    "too short": (lambda n: [0.0] * (n - 1), "shape (2,) for a pool of 3"),
    "a column": (lambda n: np.zeros((n, 1)), "shape (3, 1) for a pool of 3"),
    "one number": (lambda n: 0.5, "shape () for a pool of 3"),
    "nothing": (lambda n: None, "pool of 3"),
    "nan": (lambda n: [0.0, np.nan, 1.0], "not finite at position 1"),
    "inf": (lambda n: [0.0, 0.0, np.inf], "not finite at position 2"),
    "minus inf": (lambda n: [-np.inf, 0.0, 1.0], "not finite at position 0"),
    "past float32": (lambda n: [0.0, 1e300, 1.0], "not finite at position 1"),
    "a hole": (lambda n: [0.0, None, 1.0], "not finite at position 1"),
    "strings": (lambda n: ["high", "low", "low"], "not numbers"),
    "ragged": (lambda n: [[1.0], [1.0, 2.0], []], "not numbers"),
    "nan in Scored": (lambda n: Scored([np.nan] * n), "not finite at position 0"),
    "raises RetrieverError": (raising(RetrieverError("refused")), "refused"),
    "crashes": (raising(ZeroDivisionError("by nought")), "ZeroDivisionError: by nought"),
    "no array": (lambda n: Unreadable(), "detach"),
}


class Faulty(Retriever):
    """Counts shared words, and does `fault` where the query says "faulty"."""

    def __init__(self, fault: str = "nan", independent: bool = False) -> None:
        self.fault, self.independent = fault, independent

    @property
    def pool_independent(self) -> bool:
        return self.independent

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        if "faulty" in query:
            return FAULTS[self.fault][0](len(pool))
        return Overlap().score(query, pool)


class AlwaysFaulty(Faulty):
    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return super().score("faulty", pool)


class BatchCrash(Faulty):
    """Its batch knows nothing of single queries: one that crashes takes all with it."""

    def score_batch(self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]) -> Any:
        return [self.score(query, pool) for query, pool in zip(queries, pools, strict=True)]


class Forgetful(Faulty):
    """Leaves faulty queries out of its results."""

    def score_batch(self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]) -> Any:
        return [
            Overlap().score(query, pool)
            for query, pool in zip(queries, pools, strict=True)
            if "faulty" not in query
        ]


class NoBatch(Faulty):
    """Forgot to return anything."""

    def score_batch(self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]) -> Any:
        return None


def pools_of(
    release: Path,
    sizes: Sequence[int] = (2,),
    seeds: Sequence[int] = (0,),
    how: Strategy = "nested",
) -> PoolSet:
    return build_pools(load_dataset(release, "dev"), how, sizes, seeds)


def places_of(pools: PoolSet) -> list[PoolKey]:
    return [PoolKey(*key, query) for key in pools.pools for query in range(len(pools.rows))]


def rows_of(retriever: Retriever, pools: PoolSet, size: int = 16) -> list[dict[str, Any]]:
    scorer = Scorer("x", retriever, pools)
    found = [one for task in scorer.tasks(places_of(pools), size) for one in scorer.run(task)]
    assert sorted(one.key for one in found) == sorted(places_of(pools))
    return [one.finished.row for one in sorted(found)]


def assert_only_the_second_failed(rows: list[dict[str, Any]], cause: str) -> None:
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert cause in rows[1]["error"]
    assert (rows[1]["above"], rows[1]["tied"], rows[1]["top"]) == (None, None, [])
    for row in (rows[0], rows[2]):
        assert (row["above"], row["tied"], len(row["top"])) == (0, 1, 3)


# --- one bad query in a batch


@pytest.mark.parametrize("independent", [False, True], ids=["pool by pool", "union"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_own_query_only(
    write_release: WriteRelease, fault: str, independent: bool
) -> None:
    rows = rows_of(Faulty(fault, independent), pools_of(write_release(ROWS)))
    assert_only_the_second_failed(rows, FAULTS[fault][1])


@pytest.mark.parametrize(
    ("retriever", "cause"),
    [
        (BatchCrash("crashes"), "ZeroDivisionError: by nought"),
        (Forgetful(), "0 results for a batch of 1"),
    ],
)
def test_a_faulty_batch_is_scored_query_by_query(
    write_release: WriteRelease, retriever: Retriever, cause: str
) -> None:
    assert_only_the_second_failed(rows_of(retriever, pools_of(write_release(ROWS))), cause)


def test_a_batch_without_results_fails_every_query(write_release: WriteRelease) -> None:
    rows = rows_of(NoBatch(), pools_of(write_release(ROWS)))
    assert all("TypeError" in row["error"] for row in rows)


def test_a_failed_query_fails_at_every_size_and_no_other_does(write_release: WriteRelease) -> None:
    pools = pools_of(write_release(ROWS), sizes=(2, 4, 6), seeds=(0, 1))
    rows = rows_of(Faulty("raises RetrieverError", independent=True), pools)
    errors = {(row["query"], row["error"]) for row in rows}
    assert errors == {("q0", None), ("q1", "refused"), ("q2", None)}
    assert len(rows) == 18


def test_lack_of_memory_is_no_fault_of_a_query(write_release: WriteRelease) -> None:
    class Hungry(Overlap):
        def score(self, query: str, pool: Sequence[Memory]) -> list[int]:
            raise MemoryError

    with pytest.raises(MemoryError):
        rows_of(Hungry(), pools_of(write_release(ROWS)))


# --- what a run says of it


def sweep(release: Path, out: Path, name: str, *words: str, code: int | None = None) -> Any:
    command = ["--retriever", f"x=tests.test_scoring:{name}", "--data", str(release)]
    command += ["--distractors", "2", "--out", str(out), "--json", *words]
    return run(app, *command, code=code)


def test_each_cause_has_its_own_count(write_release: WriteRelease, tmp_path: Path) -> None:
    result = sweep(write_release([*ROWS, *ROWS[1:2]]), tmp_path / "run", "TwoCauses")
    [cell] = json.loads(result.stdout)["cells"]
    named = {re.sub(r":\d+\)$", ":LINE)", cause): n for cause, n in cell["failures"].items()}
    assert named == {"ValueError: bad words (test_scoring.py:LINE)": 2, "refused": 1}


class TwoCauses(Retriever):
    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        if "faulty" in query:
            raise ValueError("bad words")
        if "novels" in query:
            raise RetrieverError("refused")
        return Overlap().score(query, pool)


@pytest.mark.parametrize(
    ("fault", "cause"), [("nan", "not finite"), ("raises RetrieverError", "refused")]
)
def test_no_rows_scored_is_an_error_with_exit_code_2(
    write_release: WriteRelease, tmp_path: Path, fault: str, cause: str
) -> None:
    words = ("--set", f"x.fault={fault}")
    result = sweep(write_release(ROWS), tmp_path / "run", "AlwaysFaulty", *words)
    one_line_error(result, "not one of 3 rows could be scored", cause, after_notes=True)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["cells"][0]["failed"] == 3
    assert "recall" not in summary["cells"][0]


# --- rows


def test_gold_is_a_position_and_top_shows_it_first(write_release: WriteRelease) -> None:
    pools = pools_of(write_release(ROWS), sizes=(4,))
    for row, pool in zip(rows_of(Overlap(), pools), pools.pools[4, 0], strict=True):
        assert row["gold"] == pool.gold
        assert row["top"][0][0] == pool.gold
        assert sorted(place for place, _ in row["top"]) == [0, 1, 2, 3, 4]
        assert [score for _, score in row["top"]] == sorted(
            (s for _, s in row["top"]), reverse=True
        )


def test_top_stops_at_ten(write_release: WriteRelease) -> None:
    texts = [f"memory number {i}" for i in range(14)]
    [row] = rows_of(Constant(), pools_of(write_release([("tea", texts, 3)]), sizes=(13,)))
    assert row["top"] == [[i, 0.0] for i in range(10)]
    assert (row["above"], row["tied"]) == (0, 14)


def test_usage_and_repairs_go_into_the_row(write_release: WriteRelease) -> None:
    class Costly(Overlap):
        def score(self, query: str, pool: Sequence[Memory]) -> Any:
            return Scored(super().score(query, pool), usage=Usage(2, 30, 4), repairs={"fence": 1})

    for row in rows_of(Costly(), pools_of(write_release(ROWS))):
        assert (row["calls"], row["tokens_in"], row["tokens_out"]) == (2, 30, 4)
        assert row["repairs"] == {"fence": 1}


# --- tasks and unions


@pytest.mark.parametrize("size", [1, 2, 16])
@pytest.mark.parametrize("retriever", [Overlap(), Constant()], ids=["pool by pool", "union"])
def test_tasks_hold_every_place_once_and_their_size_changes_no_row(
    write_release: WriteRelease, retriever: Retriever, size: int
) -> None:
    pools = pools_of(write_release(ROWS), sizes=(2, 4), seeds=(0, 1))
    tasks = Scorer("x", retriever, pools).tasks(places_of(pools), size)
    assert sorted(place for task in tasks for place in task) == sorted(places_of(pools))
    assert max(len({place.query for place in task}) for task in tasks) <= size
    assert rows_of(retriever, pools, size) == rows_of(retriever, pools, 16)


def test_a_union_is_scored_once_a_query(write_release: WriteRelease) -> None:
    asked: list[tuple[str, int]] = []

    class Counting(Random):
        def score(self, query: str, pool: Sequence[Memory]) -> Any:
            asked.append((query, len(pool)))
            assert len(set(pool)) == len(pool)
            return super().score(query, pool)

    pools = pools_of(write_release(ROWS), sizes=(2, 4, 6), seeds=(0, 1))
    rows_of(Counting(), pools)
    assert [query for query, _ in asked] == [query for query, _, _ in ROWS]
    assert all(count <= 9 for _, count in asked)


class RandomPerPool(Random):
    @property
    def pool_independent(self) -> bool:
        return False


class BM25PerPool(BM25):
    @property
    def pool_independent(self) -> bool:
        return False


@pytest.mark.parametrize("how", ["nested", "as-released"])
@pytest.mark.parametrize("name", ["random", "bm25 over the bank"])
def test_union_scoring_gives_the_rows_of_scoring_pool_by_pool(
    write_release: WriteRelease, name: str, how: Strategy
) -> None:
    release = write_release(ROWS)
    pools = pools_of(release, sizes=(2, 4, 6), seeds=(0, 1), how=how)
    union: Retriever = Random(seed=3)
    single: Retriever = RandomPerPool(seed=3)
    if name != "random":
        union, single = BM25(scope="bank"), BM25PerPool(scope="bank")
        for retriever in (union, single):
            retriever._bank_texts = [m.text for m in load_dataset(release, "dev").bank]
    assert union.pool_independent
    rows = rows_of(union, pools)
    assert rows == rows_of(single, pools)
    assert not any(row["error"] for row in rows)
    assert len({row["pool"] for row in rows}) > len(ROWS)  # sizes and seeds do differ


def test_what_is_left_of_a_run_is_scored_as_in_the_whole(write_release: WriteRelease) -> None:
    """A resumed run scores the same unions, whatever part of their pools is still to be done."""
    pools = pools_of(write_release(ROWS), sizes=(2, 4))
    whole = rows_of(Random(), pools)
    scorer = Scorer("x", Random(), pools)
    last = PoolKey(4, 0, 2)
    [[alone]] = [scorer.run(task) for task in scorer.tasks([last], 16)]
    assert alone.key == last
    assert alone.finished.row == whole[places_of(pools).index(last)]
