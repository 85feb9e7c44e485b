"""`faiss` is `minilm` if a pool is searched exactly, and reports if it is not."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from retrievers import RunContext, build_retriever
from retrievers.dense import MiniLM
from retrievers.faiss import Faiss
from retrievers.testing import RetrieverContract
from tests.kit import rows_of, swept

ANIMALS = ("hens", "bees", "a goat", "two cats", "an old dog", "ducks", "a parrot", "rabbits")
PLACES = ("shed", "garden", "kitchen", "barn", "orchard", "attic", "yard", "cellar", "porch")
POOL = [Memory(f"Keeps {a} in the {p}, row {i}") for a in ANIMALS for p in PLACES for i in range(9)]
QUERY = "Where do my bees live?"
CONTEXT = RunContext(store=Path(os.environ["RECALLBED_STORE"]))


def faiss(**settings: Any) -> Faiss:
    """One with the tests' store behind it, so that the model is loaded once and not 40 times."""
    return Faiss.from_run({"device": "cpu", **settings}, CONTEXT)


class TestContract(RetrieverContract):
    """The pools of the contract, searched exactly, through an index, and in a graph."""

    @pytest.fixture(
        autouse=True, params=[{}, {"exact_up_to": 0}, {"exact_up_to": 0, "index": "hnsw"}], ids=str
    )
    def _choose(self, request: pytest.FixtureRequest) -> None:
        self.chosen = request.param

    def make(self) -> Faiss:
        return faiss(**self.chosen)


def test_rows_equal_those_of_minilm(tmp_path: Path) -> None:
    out, store = tmp_path / "r", tmp_path / "store.sqlite"
    swept(["minilm", "faiss"], distractors=(20, 60), limit=6, out=out, store=store)
    rows = rows_of(out)
    half = len(rows) // 2
    assert half == 12
    own = {"retriever", "check"}  # the check of a row covers its label
    bare = [{key: value for key, value in row.items() if key not in own} for row in rows]
    assert bare[half:] == bare[:half]


@pytest.fixture(scope="module")
def exact() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return MiniLM(device="cpu").score(QUERY, POOL)


@pytest.mark.parametrize("index", ["flat", "hnsw"])
def test_past_the_bound_positions_not_returned_share_one_place(
    exact: np.ndarray[tuple[int], np.dtype[np.float64]], index: str
) -> None:
    retriever = faiss(exact_up_to=100, index=index, depth=50)
    result = retriever.score(QUERY, POOL)
    scores, matched = np.asarray(result.scores), np.asarray(result.matched)
    assert matched.sum() == 50
    assert result.repairs == {"unreturned": len(POOL) - 50}
    assert len(set(scores[~matched])) == 1
    assert scores[~matched].max() < scores[matched].min()
    assert abs(scores[matched] - exact[matched]).max() <= 1e-6  # another batch, other bits
    best = set(np.argsort(-exact, kind="stable")[:10])
    assert len(best & set(np.flatnonzero(matched))) >= 9


def test_compressed_vectors_find_and_the_true_ones_score() -> None:
    count, width = 9_984, 16
    retriever = faiss(exact_up_to=100, index="ivfpq", depth=50)
    texts = [QUERY, *(f"memory {i}" for i in range(count))]
    vectors = np.random.default_rng(0).standard_normal((count + 1, width)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    retriever._table.write(retriever._table.reserve(texts, width), vectors)
    result = retriever.score(QUERY, [Memory(text) for text in texts[1:]])
    scores, matched = np.asarray(result.scores), np.asarray(result.matched)
    exact = np.einsum("ij,j->i", vectors[1:].astype(np.float64), vectors[0].astype(np.float64))
    assert matched.sum() == 50
    assert (scores[matched] == exact[matched]).all()
    assert scores[~matched].max() < scores[matched].min()


def test_an_empty_pool_has_no_scores() -> None:
    assert faiss().score(QUERY, []).shape == (0,)


def test_without_faiss_small_pools_are_searched_and_large_ones_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = faiss().score(QUERY, POOL[:50])
    monkeypatch.setitem(sys.modules, "faiss", None)
    retriever = faiss(index="hnsw", exact_up_to=100)
    retriever.prepare([QUERY], POOL[:50])
    assert (retriever.score(QUERY, POOL[:50]) == expected).all()
    with pytest.raises(UserError, match=r"recallbed\[index\]"):
        retriever.prepare([QUERY], POOL)


def test_order_of_the_pool_and_repeats_change_nothing() -> None:
    retriever = faiss(exact_up_to=100, index="hnsw", depth=20)
    straight = np.asarray(retriever.score(QUERY, [*POOL, POOL[3]]).scores)
    order = np.random.default_rng(0).permutation(len(POOL))
    shuffled = np.asarray(retriever.score(QUERY, [POOL[i] for i in order]).scores)
    assert (straight[:-1][order] == shuffled).all()
    assert straight[-1] == straight[3]


def test_one_index_serves_all_queries_of_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    import retrievers.faiss as module

    real, built = module.make_index, []

    def counted(*words: object, **more: object) -> object:
        built.append(words)
        return real(*words, **more)

    monkeypatch.setattr(module, "make_index", counted)
    retriever = faiss(exact_up_to=0)
    for query in (QUERY, "Who is in the attic?", QUERY):
        retriever.score(query, POOL)
    assert len(built) == 1


def notes_of(settings: dict[str, str], memories: Sequence[Memory]) -> dict[str, object]:
    retriever = build_retriever(Configuration("f", "faiss", {"device": "cpu", **settings}), CONTEXT)
    retriever.prepare([QUERY], memories)
    return dict(retriever.notes())


def test_an_index_that_was_not_needed_is_noted() -> None:
    assert "not used" in str(notes_of({"index": "hnsw"}, POOL[:5])["index"])
    assert "index" not in notes_of({"index": "hnsw", "exact_up_to": "4"}, POOL[:5])
    assert "index" not in notes_of({}, POOL[:5])


def test_too_few_points_for_ivfpq_is_refused_not_searched_badly() -> None:
    retriever = faiss(exact_up_to=10, index="ivfpq")
    with pytest.raises(UserError, match="too few to train"):
        retriever.score(QUERY, POOL)


@pytest.mark.parametrize("settings", [{"index": "tree"}, {"depth": "0"}, {"exact_up_to": "-1"}])
def test_invalid_settings_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(UserError):
        build_retriever(Configuration("f", "faiss", settings), RunContext())
