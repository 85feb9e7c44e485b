"""task3/order_check.py: a retriever that remembers earlier queries gains, and is refused."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallbed.corpus.records import Memory
from retrievers.overlap import Overlap
from retrievers.rerank.base import Reranked, Reranker, Shortlist
from task3 import predict, sweep, tune
from tests import kit
from tests.kit import WriteRelease, one_line_error
from tests.test_contract import CountsOccurrences, Unseeded

__all__ = ["Unseeded"]

ROWS = [
    (f"what of {word}", [f"likes {word}", f"has {word} at home", f"sleeps {i}"], i % 3)
    for i, word in enumerate(("tea", "cats", "boats", "novels", "chess", "snow", "maps"))
]


class CountsForUnions(CountsOccurrences):
    @property
    def pool_independent(self) -> bool:
        return True


class CountsInModule(CountsOccurrences):
    """Its state is no part of the instance, so a copy shares it."""

    seen: Counter[str] = Counter()  # noqa: RUF012

    def __init__(self) -> None:
        pass


class CountsInItsBatch(Overlap):
    """Keeps nothing for later: it counts the queries of the batch that hold a memory."""

    def score_batch(self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]) -> Any:
        seen = Counter(memory.text for pool in pools for memory in pool)
        return [[seen[memory.text] for memory in pool] for pool in pools]


class RemembersReranking(Reranker):
    def __init__(self) -> None:
        super().__init__("overlap", 2)
        self.seen = 0

    def rerank_all(self, shortlists: Sequence[Shortlist]) -> Any:
        found = []
        for shortlist in shortlists:
            self.seen += 1
            values = np.arange(len(shortlist.texts))
            found.append(Reranked(values if self.seen % 2 else -values))
        return found


class AsksAndRemembers(RemembersReranking):
    """What asks a chat model is not asked twice; its first stage is looked at in its place."""

    def notes(self) -> Mapping[str, Any]:
        return {"chat_model": "openai:m"}


class AsksOverACounter(AsksAndRemembers):
    def __init__(self) -> None:
        super().__init__()
        self.first_stage_name = "y"


class LearnsTooSlowly(Overlap):
    """Rounding: differences in the seventh digit are no state."""

    n = 0

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        self.n += 1
        return np.array(super().score(query, pool)) * (1 + 1e-7 * (self.n % 2))


class RoundsByBatch(Overlap):
    """As a network of half precision does."""

    def score_batch(self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]) -> Any:
        noise = 1 + 0.003 * (len(queries) > 1)
        found = zip(queries, pools, strict=True)
        return [np.array(self.score(query, pool)) * noise for query, pool in found]


class FailsAtTheSecondTime(Overlap):
    """A service that is unavailable for a moment is no state."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        self.asked[query] += 1
        if self.asked[query] == 2:
            raise ConnectionError("away")
        return super().score(query, pool)


def run(command: Any, release: Path, name: str, *words: str, code: int | None = None) -> Any:
    named = ["--retriever", f"x=tests.test_order_check:{name}", "--data", str(release)]
    return kit.run(command.app, *named, *words, code=code)


refused = partial(one_line_error, after_notes=True)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    "name",
    [
        *("CountsOccurrences", "CountsForUnions", "CountsInModule", "CountsInItsBatch"),
        *("Unseeded", "RemembersReranking"),
    ],
)
def test_a_sweep_refuses_state_between_queries(
    write_release: WriteRelease, tmp_path: Path, name: str, workers: str
) -> None:
    out = tmp_path / "run"
    words = ["--distractors", "2,5", "--k", "1", "--out", str(out), "--workers", workers]
    said = "x: not the same scores for query `q", "no state between queries", "random numbers"
    refused(run(sweep, write_release(ROWS), name, *words), *said)
    rows = out / "rows.jsonl"
    assert not rows.exists() or not rows.read_text(), "no row of it may be kept"


def test_labels_before_a_refused_one_are_kept(write_release: WriteRelease, tmp_path: Path) -> None:
    release, out = write_release(ROWS), tmp_path / "run"
    words = ["--retriever", "x=tests.test_order_check:Unseeded", "--data", str(release)]
    words = ["--retriever", "overlap", *words, "--distractors", "2", "--out", str(out)]
    for more in ([], ["--resume"]):
        refused(kit.run(sweep.app, *words, *more), "x: not the same scores")
        rows = (out / "rows.jsonl").read_text()
        assert (rows.count("\n"), rows.count('"overlap"')) == (7, 7)


@pytest.mark.parametrize(
    "name", ["LearnsTooSlowly", "RoundsByBatch", "FailsAtTheSecondTime", "AsksAndRemembers"]
)
def test_what_is_no_state_is_swept(write_release: WriteRelease, tmp_path: Path, name: str) -> None:
    words = ["--distractors", "2,5", "--k", "1", "--out", str(tmp_path / "run")]
    run(sweep, write_release(ROWS), name, *words, code=0)


def test_the_first_stage_is_checked(write_release: WriteRelease, tmp_path: Path) -> None:
    words = ["--distractors", "2", "--k", "1", "--out", str(tmp_path / "run")]
    words += ["--retriever", "y=tests.test_order_check:CountsOccurrences"]
    result = run(sweep, write_release(ROWS), "AsksOverACounter", *words)
    refused(result, "x: not the same scores")


def test_predictions_and_tuning_refuse_it_too(write_release: WriteRelease, tmp_path: Path) -> None:
    release = write_release(ROWS)
    out = tmp_path / "p.jsonl"
    predicted = run(predict, release, "CountsOccurrences", "--out", str(out))
    refused(predicted, "not the same scores")
    words = ["--grid", "k.letters=1/2", "--label", "k", "--folds", "2", "--out", str(out)]
    words += ["--distractors", "2", "--retriever", "k=tests.test_order_check:CountsLetters"]
    refused(run(tune, release, "CountsOccurrences", *words), "not the same scores")
    assert not out.exists()


class CountsLetters(CountsOccurrences):
    def __init__(self, letters: int = 1) -> None:
        super().__init__()
        self.letters = letters


def test_the_sample_is_bounded_and_independent_of_file_order() -> None:
    from task3.order_check import SAMPLE, check_order

    asked: list[str] = []

    class Listens(Overlap):
        def score(self, query: str, pool: Sequence[Memory]) -> Any:
            asked.append(query)
            return super().score(query, pool)

    names = [f"q{i}" for i in range(50)]

    def queries(names: Sequence[str], seed: int = 3) -> list[str]:
        asked.clear()
        check_order("x", Listens(), names, lambda i: (names[i], [Memory("a")]), seed)
        return list(asked)

    found = queries(names)
    assert len(found) == 2 * SAMPLE
    assert found[:SAMPLE] == found[SAMPLE:][::-1]
    assert sorted(queries(names[::-1])) == sorted(found)
    assert sorted(queries(names, 4)) != sorted(found)
