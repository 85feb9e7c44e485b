"""Whatever a user's retriever raises is a counted failure of its query, wherever it is called."""

import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from memory_systems.attempt import rank
from memory_systems.base import SystemFailure
from recallbed.chat_models import Usage
from recallbed.corpus.layout import sample_root
from recallbed.corpus.records import Memory, MemoryItem, Task2Row, Turn
from recallbed.harness.failures import cause_of
from retrievers.base import NotScored, Retriever, RetrieverError, Scored
from retrievers.hybrid import Hybrid
from retrievers.overlap import Overlap
from retrievers.rerank.base import Reranked, Reranker, Shortlist
from task2.localisation import localisation
from task2.score import app as task2_app
from task3.sweep import app as sweep_app
from task3.tune import app as tune_app
from tests.kit import (
    WriteRelease,
    one_line_error,
    read_lines,
    rows_of,
    run,
    swept,
    write_lines,
)

POOL = [Memory("likes tea"), Memory("has cat")]
GIVEN = (MemoryItem("Likes green tea", "m1"), MemoryItem("Has a cat", "m2"))
GOLD = (MemoryItem("Likes green tea with milk", "m1_updated"), GIVEN[1])


class Divides(Overlap):
    """Raises for the queries that say so."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        if "nought" in query:
            return 1 / (len(query) - len(query))
        return super().score(query, pool)


class Distrusts(Overlap):
    """Cannot say how far it may be trusted."""

    def trust(self, query: str) -> float:
        return float({"tea": 1.0}[query])


class Unprepared(Overlap):
    """Cannot be prepared."""

    def __init__(self, level: int = 0) -> None:
        self.level = level

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        raise RuntimeError("no\nmodel")


class Backwards(Reranker):
    """Reverses the first stage."""

    def rerank_all(self, shortlists: Sequence[Shortlist]) -> list[Reranked | RetrieverError]:
        return [Reranked(np.arange(len(shortlist.texts))) for shortlist in shortlists]


def line_of(method: Any, word: str) -> str:
    """`file:line` of the first line of a method that holds a word."""
    lines, first = inspect.getsourcelines(method)
    return f"{Path(__file__).name}:{first + next(i for i, s in enumerate(lines) if word in s)}"


DIVIDED = f"ZeroDivisionError: division by zero ({line_of(Divides.score, '1 /')})"


def test_task_2_counts_it_and_goes_on() -> None:
    rows = [
        Task2Row(f"q{i}", f"s{i}", (), (Turn("user", text),), GIVEN, i, GOLD)
        for i, text in enumerate(("green tea", "nought"))
    ]
    found = localisation(rows, "divides", Divides()).to_json()
    assert (found["attempted"], found["scored"]) == (2, 1)
    assert found["failed"] == {DIVIDED: 1}
    assert found["recall@1"]["mean"] == 1


def task2(tmp_path: Path, name: str) -> Result:
    first = read_lines(sample_root() / "dev" / "task2" / "reference_output.jsonl")[0]
    row = {"benchmark_id": first["benchmark_id"], "answer": first["gold"]["answer"]}
    rows = write_lines(tmp_path / "p.jsonl", [row])
    return run(task2_app, rows, "--json", "--retriever", f"x={__name__}:{name}")


class Always(Overlap):
    """Raises for every query."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        raise KeyError("always")


def test_the_command_of_task_2_reports_it(tmp_path: Path) -> None:
    result = task2(tmp_path, "Always")
    [found] = json.loads(result.stdout)["localisation"]
    place = line_of(Always.score, "raise")
    assert found["failed"] == {f"KeyError: 'always' ({place})": found["attempted"]}
    assert found["recall@1"] is None


def test_what_cannot_be_prepared_is_one_line_in_every_command(
    tmp_path: Path, write_release: WriteRelease
) -> None:
    root = write_release([(f"what {i}", ["likes tea", "has cat"], 0) for i in range(10)])
    place = line_of(Unprepared.prepare, "raise")
    said = f"error: x: cannot be prepared (RuntimeError: no model ({place}))"
    assert one_line_error(task2(tmp_path, "Unprepared")) == said
    words = ("--retriever", f"x={__name__}:Unprepared", "--data", root, "--pools", "released")
    for app, more in ((sweep_app, ()), (tune_app, ("--grid", "x.level=1/2"))):
        result = run(app, *words, "--distractors", 1, "--out", tmp_path / "out", *more)
        assert one_line_error(result, after_notes=True) == said
    with pytest.raises(MemoryError):
        Starved().prepare_for("x", ["a"], POOL)


class Starved(Overlap):
    """Has no memory left."""

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        raise MemoryError


def test_the_search_of_a_memory_system_fails_its_query() -> None:
    with pytest.raises(SystemFailure) as caught:
        rank(Divides(), "nought", GIVEN, 1)
    assert caught.value.cause == DIVIDED


def test_a_first_stage_fails_its_query_alone() -> None:
    # Asked directly, as a user's own reranker asks its first stage.
    queries = ["tea", "nought", "cat"]
    first, second, third = Backwards.over(Divides()).score_batch(queries, [POOL] * 3)
    assert isinstance(first, Scored)
    assert isinstance(third, Scored)
    assert isinstance(second, RetrieverError)
    assert second.cause == f"first stage Divides: {DIVIDED}"


def test_a_leg_that_cannot_tell_its_trust_fails_its_query_alone() -> None:
    hybrid = Hybrid.of({"good": Overlap(), "bad": Distrusts()})
    first, second = hybrid.score_batch(["tea", "cat"], [POOL] * 2)
    assert isinstance(first, Scored)
    assert isinstance(second, RetrieverError)
    place = line_of(Distrusts.trust, "tea")
    assert second.cause == f"leg bad: trust: KeyError: 'cat' ({place})"


def test_a_sweep_keeps_the_line_of_the_users_code(
    tmp_path: Path, write_release: WriteRelease
) -> None:
    root = write_release([(text, ["likes tea", "has cat"], 0) for text in ("tea", "nought")])
    given = {"pools": "released", "distractors": (1,), "ks": (1,), "out": tmp_path / "run"}
    rows = rows_of(swept([f"x={__name__}:Divides"], root, **given).path)
    assert [row["error"] for row in rows] == [None, DIVIDED]


def test_a_cause_names_the_users_innermost_line_and_stays_on_one_line() -> None:
    def inner() -> None:
        json.loads("{\n")  # raises inside the standard library

    with pytest.raises(ValueError, match="Expecting") as caught:
        inner()
    assert cause_of(caught.value).endswith(f"({line_of(inner, 'loads')})")
    assert cause_of(ValueError("two\nlines \ud83d")) == "ValueError: two lines \\ud83d"


class Costly(Overlap):
    """Fails after a paid reply."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        raise RetrieverError("refused", Usage(1, 10, 2))


@pytest.mark.parametrize(
    "whole", [Hybrid.of({"a": Overlap(), "b": Costly()}), Backwards.over(Costly())]
)
def test_a_failure_keeps_the_cost_of_its_replies(whole: Retriever) -> None:
    [found] = whole.results(["tea"], [POOL])
    assert isinstance(found, NotScored)
    assert found.cause in ("leg b: refused", "first stage Costly: refused")
    assert found.usage == Usage(1, 10, 2)


class Masked(Overlap):
    """Returns a mask of another length."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return Scored(super().score(query, pool), np.ones(1, np.bool_))


def test_a_mask_of_the_wrong_length_fails_its_query() -> None:
    assert Masked().results(["tea"], [POOL]) == [NotScored("a mask of shape (1,) for 2 scores")]
