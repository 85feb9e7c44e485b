"""The contract of DESIGN.md for every registered retriever, and proof that each check bites.

The checks are `retrievers.testing`, the class that users subclass for their own retrievers.
"""

import json
import multiprocessing
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallbed.corpus.records import Memory
from recallbed.harness.configurations import Configuration
from retrievers import RETRIEVERS, Retriever, RetrieverError, RunContext, Scored, build_retriever
from retrievers.adapted import Adapted
from retrievers.explanation import TermWeights, TextExplanation
from retrievers.folds import Folds
from retrievers.overlap import Overlap
from retrievers.rerank import Reranker
from retrievers.testing import POOL, RetrieverContract
from tests.kit import python

# Rerankers need a model, folds and adapted a folder; they have contract tests of their own.
OURS = [
    name
    for name in RETRIEVERS.names()
    if RETRIEVERS.find(name).__module__.startswith("retrievers.")
    and not issubclass(RETRIEVERS.find(name), Reranker | Folds | Adapted)
]
BY_CHANCE = {"constant", "random"}
CHECKS = [name for name in vars(RetrieverContract) if name.startswith("test_")]


# With default settings, and with settings that lead through other code.
CASES: dict[str, tuple[str, dict[str, str]]] = {
    **{name: (name, {}) for name in OURS},
    "lucene over the bank": ("bm25", {"scope": "bank"}),
    "okapi": ("bm25", {"variant": "okapi", "tokens": "paper", "scope": "bank"}),
    "prefixes": ("dense", {"query_prefix": "query: ", "memory_prefix": "passage: "}),
}


class TestEveryRetriever(RetrieverContract):
    """As built by a run."""

    @pytest.fixture(autouse=True, params=CASES)
    def _choose(self, request: pytest.FixtureRequest) -> None:
        self.configuration = Configuration("x", *CASES[request.param])
        self.has_direction = request.param not in BY_CHANCE

    def make(self) -> Retriever:
        return build_retriever(self.configuration, RunContext(seed=5, bank=POOL))


def test_every_file_of_the_package_is_registered() -> None:
    assert {"bm25", "rank-bm25", "dense", "minilm", "random", "constant", "overlap"} <= set(OURS)


@pytest.mark.parametrize("name", OURS)
def test_settings_come_back_equal_from_json(name: str) -> None:
    settings = dict(build_retriever(Configuration("x", name, {}), RunContext(seed=5)).settings())
    assert json.loads(json.dumps(settings, allow_nan=False)) == settings


# --- retrievers that each break one requirement, and the check that must find it


class WrongLength(Overlap):
    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return [*super().score(query, pool), 0]


class NotANumber(Overlap):
    """As a cosine of an empty text may be."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return [
            count if memory.text else np.nan
            for count, memory in zip(by_words(query, pool), pool, strict=True)
        ]


class Infinite(Overlap):
    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return [np.log(count) if count else -np.inf for count in by_words(query, pool)]


class FailsOnNoWords(Overlap):
    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        if query == "???":
            raise RetrieverError("no words")
        return super().score(query, pool)


class LowerIsBetter(Overlap):
    """A distance."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return [-count for count in by_words(query, pool)]


class OrderDependent(Overlap):
    """Breaks its ties by position, to please a sort."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return [count - i / 1000 for i, count in enumerate(by_words(query, pool))]


class NeighbourDependent(Overlap):
    """Adds what the memory before has: equal texts, unequal scores."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        counts = by_words(query, pool)
        return [count + 0.1 * counts[i - 1] for i, count in enumerate(counts)]


class Moody(Overlap):
    """Another score every time."""

    calls = 0

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        self.calls += 1
        return [count * self.calls for count in by_words(query, pool)]


class CountsOccurrences(Overlap):
    """Never reads the query: a memory that stood in more pools before is worth more."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        self.seen.update({memory.text for memory in pool})
        return [self.seen[memory.text] for memory in pool]


class BreaksTiesByCounting(CountsOccurrences):
    """The same as a tie-breaker, far below the differences that the words make."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        counts = super().score(query, pool)
        return [n + 1e-3 * c for n, c in zip(by_words(query, pool), counts, strict=True)]


class RunningMean(Overlap):
    """Subtracts the mean of all scores so far: no order changes within a pool."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        counts = by_words(query, pool)
        self.total, self.count = self.total + sum(counts), self.count + len(counts)
        return [count - self.total / self.count for count in counts]


class Unseeded(Overlap):
    """Random, each time from a generator that goes on."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(1)

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return self.generator.random(len(pool))


class BatchDiffers(Overlap):
    """Divides by the sum over the whole batch."""

    def score_batch(self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]) -> Any:
        counts = [by_words(query, pool) for query, pool in zip(queries, pools, strict=True)]
        return [np.array(one) / sum(map(sum, counts)) for one in counts]


class BatchTooShort(Overlap):
    def score_batch(self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]) -> Any:
        return super().score_batch(queries[:-1], pools[:-1])


class BatchOutOfOrder(Overlap):
    def score_batch(self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]) -> Any:
        return [self.score(q, p) for q, p in zip(queries[::-1], pools, strict=True)]


class OneBuffer(Overlap):
    """Gives the same array back for every query."""

    def __init__(self) -> None:
        self.buffer = np.zeros(len(POOL))

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        self.buffer[: len(pool)] = by_words(query, pool)
        return self.buffer[: len(pool)]


class NeedsPreparing(Overlap):
    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        self.words = {memory.text: set(memory.text.lower().split()) for memory in memories}

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return [len(self.words[memory.text] & set(query.lower().split())) for memory in pool]


class PreparingChanges(Overlap):
    """Scores by what it has seen in preparing; unseen memories get less."""

    seen: frozenset[str] = frozenset()

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        self.seen = frozenset(memory.text for memory in memories)

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return [n + (m.text in self.seen) for n, m in zip(by_words(query, pool), pool, strict=True)]


class Unpicklable(Overlap):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class OtherInAWorker(Overlap):
    """As `hash(text)`, which has another salt in every process."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        spawned = multiprocessing.parent_process() is not None
        return [count + spawned for count in by_words(query, pool)]


class LosesItsState(Overlap):
    """Leaves its settings behind when it is pickled."""

    def __init__(self) -> None:
        self.weight = 2

    def __getstate__(self) -> Any:
        return {"weight": 1}

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return [self.weight * count for count in by_words(query, pool)]


class Softmax(Overlap):
    """Shares one unit of score among the pool, and claims to be pool-independent."""

    @property
    def pool_independent(self) -> bool:
        return True

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        weights = np.exp(by_words(query, pool))
        return weights / weights.sum()


class MinMax(Softmax):
    """Stretches the scores of a pool to [0, 1], as is often done before fusing."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        counts = np.array(by_words(query, pool), float)
        return (counts - counts.min()) / max(np.ptp(counts), 1)


class SettingsWithAnArray(Overlap):
    def settings(self) -> Mapping[str, Any]:
        return {"weights": np.ones(2)}


class SettingsWithNaN(Overlap):
    def settings(self) -> Mapping[str, Any]:
        return {"floor": float("nan")}


class NotesWithASet(Overlap):
    def notes(self) -> Mapping[str, Any]:
        return {"cut": {1, 2}}


class ExplainsOneOnly(Overlap):
    def explain(self, query: str, pool: Sequence[Memory], positions: Sequence[int]) -> Any:
        return [TextExplanation("words in common")]


class ExplainsOtherScores(Overlap):
    def explain(self, query: str, pool: Sequence[Memory], positions: Sequence[int]) -> Any:
        return [TermWeights((("word", 0.5),)) for _ in positions]


def by_words(query: str, pool: Sequence[Memory]) -> list[int]:
    return Overlap().score(query, pool)


BROKEN = [
    (WrongLength, "test_length_and_finiteness", r"shape \(8,\) for a pool of 7"),
    (NotANumber, "test_length_and_finiteness", "not finite at position 5"),
    (Infinite, "test_length_and_finiteness", "not finite"),
    (FailsOnNoWords, "test_length_and_finiteness", "no words"),
    (LowerIsBetter, "test_direction", "higher"),
    (OrderDependent, "test_unchanged_under_shuffling", "order of the pool"),
    (OrderDependent, "test_equal_texts_get_equal_scores", "must tie"),
    (NeighbourDependent, "test_equal_texts_get_equal_scores", "must tie"),
    (NeighbourDependent, "test_unchanged_under_shuffling", "order of the pool"),
    (Moody, "test_unchanged_under_shuffling", "order of the pool"),
    (CountsOccurrences, "test_unchanged_by_other_queries", "the queries before"),
    (BreaksTiesByCounting, "test_unchanged_by_other_queries", "the queries before"),
    (RunningMean, "test_unchanged_by_other_queries", "the queries before"),
    (Unseeded, "test_unchanged_by_other_queries", "unseeded"),
    (BatchDiffers, "test_unchanged_under_batching", "differs from score"),
    (BatchTooShort, "test_unchanged_under_batching", "one result per query"),
    (BatchOutOfOrder, "test_unchanged_under_batching", "differs from score"),
    (OneBuffer, "test_unchanged_under_batching", "differs from score"),
    (NeedsPreparing, "test_preparing_is_optional", "has no attribute 'words'"),
    (PreparingChanges, "test_preparing_is_optional", "prepare"),
    (Unpicklable, "test_unchanged_in_a_worker", "pickle"),
    (OtherInAWorker, "test_unchanged_in_a_worker", "another process"),
    (LosesItsState, "test_unchanged_in_a_worker", "another process"),
    (Softmax, "test_pool_independence", "the pool changes scores"),
    (MinMax, "test_pool_independence", "the pool changes scores"),
    (ExplainsOneOnly, "test_explanations_make_the_scores", "not one Explanation for each"),
    (ExplainsOtherScores, "test_explanations_make_the_scores", "not the score"),
    (SettingsWithAnArray, "test_settings_are_json", "JSON"),
    (SettingsWithNaN, "test_settings_are_json", "JSON"),
    (NotesWithASet, "test_settings_are_json", "JSON"),
]


def contract_of(retriever: type[Retriever]) -> RetrieverContract:
    class Contract(RetrieverContract):
        def make(self) -> Retriever:
            return retriever()

    return Contract()


@pytest.mark.parametrize(
    ("retriever", "check", "message"), BROKEN, ids=[f"{r.__name__}-{c}" for r, c, _ in BROKEN]
)
def test_a_broken_retriever_is_caught(retriever: type[Retriever], check: str, message: str) -> None:
    # An assertion or, if the retriever itself fails, its own error: pytest shows both.
    with pytest.raises(Exception, match=message):
        getattr(contract_of(retriever), check)()


def test_every_check_has_caught_something() -> None:
    assert {check for _, check, _ in BROKEN} == set(CHECKS)


class Sound(Overlap):
    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return Scored(by_words(query, pool))


@pytest.mark.parametrize("check", CHECKS)
def test_a_sound_retriever_passes(check: str) -> None:
    """So that the checks above fail for the fault, and not for something else of the doubles."""
    getattr(contract_of(Sound), check)()


USERS_FILE = """\
from retrievers import RETRIEVERS, Retriever, RetrieverError, RunContext, Scored, build_retriever
from retrievers.testing import RetrieverContract

class Distance(Retriever):
    def score(self, query, pool):
        words = set(query.split())
        return [len(words ^ set(memory.text.split())) for memory in pool]

class TestDistance(RetrieverContract):
    def make(self):
        return Distance()
"""


def test_a_user_subclasses_it_and_runs_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(USERS_FILE)
    words = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "test_mine.py"]
    done = python("-m", "pytest", *words, cwd=tmp_path, code=1)
    assert "FAILED test_mine.py::TestDistance::test_direction" in done.stdout
    assert "the memory equal to the query must score higher" in done.stdout
    assert f"1 failed, {len(CHECKS) - 1} passed" in done.stdout
