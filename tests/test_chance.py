"""retrievers/chance.py and overlap.py: knowing nothing scores chance, and exactly so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recallbed.corpus.dataset import load_dataset
from recallbed.corpus.layout import sample_root
from recallbed.corpus.pools import build_pools
from recallbed.corpus.records import Memory
from recallbed.harness.configurations import parse_configurations
from retrievers import Retriever, RunContext, build_retriever
from retrievers.chance import Constant, Random
from retrievers.overlap import Overlap
from tests.kit import rows_of, swept

SIZES = (100, 300, 1000)
KS = (1, 5, 10)
Swept = tuple[dict[str, Any], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """Summary and rows of both over the whole embedded sample."""
    out: Path = tmp_path_factory.mktemp("chance") / "run"
    outcome = swept(["constant", "random"], distractors=SIZES, ks=KS, out=out)
    return dict(outcome.summary), rows_of(out)


def cells(summary: dict[str, Any], retriever: str) -> list[dict[str, Any]]:
    found = [cell for cell in summary["cells"] if cell["retriever"] == retriever]
    assert [cell["distractors"] for cell in found] == list(SIZES)
    return found


def test_constant_ties_every_pool_whole(sweep: Swept) -> None:
    rows = [row for row in sweep[1] if row["retriever"] == "constant"]
    assert len(rows) >= 120 * len(SIZES)
    assert {(row["above"], row["tied"] - row["distractors"]) for row in rows} == {(0, 1)}


def test_constant_scores_exactly_k_over_the_pool(sweep: Swept) -> None:
    for cell in cells(sweep[0], "constant"):
        pool = cell["distractors"] + 1
        assert cell["failed"] == 0
        assert cell["all_tied"] == cell["attempted"]
        for k in KS:
            recall = cell["recall"][str(k)]
            assert recall["mean"] == recall["chance"] == round(k / pool, 6)
            assert (recall["worst"], recall["best"]) == (0, 1)
        harmonic = sum(1 / i for i in range(1, pool + 1))
        assert cell["reciprocal_rank"]["mean"] == round(harmonic / pool, 6)


def test_chance_is_within_twice_the_interval_of_random(sweep: Swept) -> None:
    for cell in cells(sweep[0], "random"):
        for k in KS:
            recall = cell["recall"][str(k)]
            assert recall["chance"] == round(k / (cell["distractors"] + 1), 6)
            # One interval in twenty misses it, and one seed is tried: twice as wide, all hold it.
            spare = (recall["high"] - recall["low"]) / 2
            assert recall["low"] - spare <= recall["chance"] <= recall["high"] + spare
        assert cell["tie_rate"] < 0.01


def test_random_scores_chance_over_many_seeds() -> None:
    """A bias too small for one sweep would show here, at four standard errors."""
    pools = build_pools(load_dataset(sample_root(), "dev"), "nested", (100,), (0,))
    above = []
    for seed in range(40):
        for row, pool in zip(pools.rows, pools.pools[100, 0], strict=True):
            scores = Random(seed).score(row.query, pools.texts(pool))
            above.append(int((scores > scores[pool.gold]).sum()))
    for k in KS:
        chance = k / 101
        error = np.sqrt(chance * (1 - chance) / len(above))
        assert abs(np.mean(np.array(above) < k) - chance) < 4 * error
    assert abs(np.mean(above) - 50) < 4 * np.sqrt((101**2 - 1) / 12 / len(above))


# --- random


@given(st.integers(0, 9), st.text(max_size=9), st.lists(st.text(max_size=9), min_size=1), st.data())
def test_random_follows_the_text_never_the_position(
    seed: int, query: str, texts: list[str], data: st.DataObject
) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    query = query.encode("utf-8", "replace").decode()
    order = data.draw(st.permutations(range(len(texts))))
    straight = Random(seed).score(query, [Memory(text) for text in texts])
    shuffled = Random(seed).score(query, [Memory(texts[i], "label") for i in order])
    assert straight[order].tobytes() == shuffled.tobytes()
    assert ((straight >= 0) & (straight < 1)).all()


def test_equal_texts_tie_and_others_do_not() -> None:
    scores = Random().score("q", [Memory("a"), Memory("b"), Memory("a")])
    assert scores[0] == scores[2] != scores[1]


def test_seed_and_query_change_every_number() -> None:
    pool = [Memory(str(i)) for i in range(50)]
    first = Random(0).score("q", pool)
    for other in (Random(1).score("q", pool), Random(0).score("r", pool)):
        assert not np.isin(first, other).any()


def test_the_query_and_the_text_are_kept_apart() -> None:
    assert Random().score("ab", [Memory("c")]) != Random().score("a", [Memory("bc")])


def test_random_takes_the_seed_of_the_run_unless_one_is_set() -> None:
    def seed(*settings: str) -> object:
        [configuration] = parse_configurations(["x=random"], settings)
        return build_retriever(configuration, RunContext(seed=5)).settings()["seed"]

    assert seed() == 5
    assert seed("x.seed=7") == 7


@pytest.mark.parametrize("retriever", [Constant(), Random()])
def test_both_are_pool_independent(retriever: Retriever) -> None:
    assert retriever.pool_independent
    pool = [Memory(str(i)) for i in range(9)]
    whole, part = retriever.score("q", pool), retriever.score("q", pool[4:6])
    assert np.asarray(whole)[4:6].tolist() == np.asarray(part).tolist()


def test_constant_gives_one_number_to_all() -> None:
    assert len(set(Constant().score("tea", [Memory("tea"), Memory("cat"), Memory("")]))) == 1


# --- overlap


def test_overlap_counts_shared_words_whatever_their_case() -> None:
    pool = [
        Memory("Green TEA, green cup"),
        Memory("tea"),
        Memory("teas"),
        Memory(""),
        Memory("Cup"),
    ]
    assert Overlap().score("green tea cup", pool) == [2, 1, 0, 0, 1]


def test_overlap_counts_a_repeated_word_once() -> None:
    assert Overlap().score("tea tea", [Memory("tea tea tea")]) == [1]
