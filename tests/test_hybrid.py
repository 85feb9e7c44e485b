"""The hybrid retriever: its legs, its settings, its failures, and the retriever contract."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexes.legibility import legibility
from indexes.model_folder import resolve_model
from recallbed.chat_models import Usage
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import parse_configurations
from retrievers.base import NotScored, Retriever, RetrieverError, RunContext, Scored
from retrievers.bm25 import BM25
from retrievers.dense import Dense, MiniLM
from retrievers.hybrid import LEAST_TRUST, LEXICAL_WEIGHT, PUBLIC_DEV, Hybrid
from retrievers.overlap import Overlap
from retrievers.registry import build_retrievers
from retrievers.testing import POOL, QUERIES, RetrieverContract
from tests.kit import ROOT, WriteRelease, python, swept

TEXTS = ("likes tea", "has a cat", "runs on Sundays", "likes tea and cats")
SMALL = [Memory(text) for text in TEXTS]


class TestDefault(RetrieverContract):
    def make(self) -> Retriever:
        return Hybrid()


class TestRanks(RetrieverContract):
    def make(self) -> Retriever:
        return Hybrid.of({"a": BM25(), "b": Overlap()}, fusion="rrf")


class TestThreeLegs(RetrieverContract):
    def make(self) -> Retriever:
        legs = {"a": BM25(), "b": Overlap(), "c": BM25(variant="plus")}
        return Hybrid.of(legs, weights="1,0.1,2", scale="minmax")


class TestNested(RetrieverContract):
    def make(self) -> Retriever:
        return Hybrid.of({"inner": Hybrid.of({"a": BM25(), "b": Overlap()}), "c": BM25(k1=0)})


class Prepared(Overlap):
    """Counts calls of `prepare`; its trust is given."""

    def __init__(self, trusted: float = 1.0) -> None:
        self.prepared, self.trusted = 0, trusted

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        self.prepared += 1

    def trust(self, query: str) -> float:
        return self.trusted


class Costly(Overlap):
    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        return Scored(super().score(query, pool), usage=Usage(1, 20, 3), repairs={"commas": 2})


class Fails(Overlap):
    """Fails if the query asks for it."""

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        if query == "refuse":
            raise RetrieverError("no answer")
        if query == "crash":
            raise KeyError("tea")
        if query == "short":
            return [1.0]
        if query == "nan":
            return [np.nan] * len(pool)
        return super().score(query, pool)


def scores(retriever: Retriever, query: str) -> list[float]:
    result = retriever.score(query, SMALL)
    return np.asarray(result.scores if isinstance(result, Scored) else result).tolist()


def made(*retrievers: str, **settings: str) -> dict[str, Retriever]:
    words = [f"{key.replace('__', '.')}={value}" for key, value in settings.items()]
    return build_retrievers(parse_configurations(retrievers, words), RunContext())


# --- legs


def test_a_leg_is_the_instance_of_its_label() -> None:
    found = made("h=hybrid", "lexical=bm25", h__legs="lexical,overlap", lexical__k1="0")
    hybrid = found["h"]
    assert hybrid.legs[0] is found["lexical"]
    assert type(hybrid.legs[1]) is Overlap
    assert found["lexical"].settings()["k1"] == 0


def test_a_label_comes_before_a_registered_name() -> None:
    found = made("bm25=overlap", "h=hybrid", h__legs="bm25,random")
    assert found["h"].legs[0] is found["bm25"]


def test_two_hybrids_share_a_leg_that_no_label_names() -> None:
    found = made("a=hybrid", "b=hybrid", a__legs="bm25,overlap", b__legs="bm25,random")
    assert found["a"].legs[0] is found["b"].legs[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"a__legs": "a,bm25"}, "a: `a` is a leg of itself (a -> a)"),
        ({"a__legs": "b,bm25", "b__legs": "a,bm25"}, "`a` is a leg of itself (a -> b -> a)"),
        ({"a__legs": "bm26"}, "no retriever `bm26`"),
        ({"a__legs": "bm25,bm25"}, "name each leg once"),
        ({"a__legs": "bm25,"}, "name each leg once"),
        ({"a__weights": "1"}, "give 2 numbers from 0"),
        ({"a__weights": "1,x"}, "give 2 numbers from 0"),
        ({"a__weights": "1,-1"}, "numbers from 0"),
        ({"a__weights": "0,0"}, "not all 0"),
        ({"a__weights": "1,nan"}, "numbers from 0"),
        ({"a__rrf_k": "-1"}, "rrf_k=-1: must be"),
        ({"a__fusion": "sum"}, "'weighted' or 'rrf'"),
    ],
)
def test_wrong_settings_are_named(words: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        made("a=hybrid", "b=hybrid", **words)
    assert message in str(caught.value)


def test_every_leg_is_prepared_once() -> None:
    """Its own rows, two hybrids and a hybrid of hybrids ask for it."""
    leg = Prepared()
    one, two = (Hybrid.of({"leg": leg, "other": Overlap()}) for _ in range(2))
    outer = Hybrid.of({"one": one, "two": two})
    for retriever in (leg, one, outer):
        retriever.prepare_once(["q"], SMALL)
    assert leg.prepared == 1
    outer.prepare_once(["another"], SMALL)
    assert leg.prepared == 2


# --- scores


def test_weights_follow_the_order_of_the_legs() -> None:
    legs = {"overlap": Overlap(), "bm25": BM25()}
    only_first = Hybrid.of(legs, weights="1,0", scale="minmax")
    assert scores(only_first, "likes tea") == [1, 0, 0, 1]
    only_second = Hybrid.of(legs, weights="0,1", scale="minmax")
    assert scores(only_second, "likes tea")[0] == 1 > scores(only_second, "likes tea")[3]


def test_fitted_weights_go_to_bm25_and_a_dense_leg_whatever_their_order() -> None:
    bm25, minilm = BM25(), MiniLM()
    assert Hybrid.of({"b": bm25, "m": minilm}).weights == (LEXICAL_WEIGHT, 1 - LEXICAL_WEIGHT)
    assert Hybrid.of({"m": minilm, "b": bm25}).weights == (1 - LEXICAL_WEIGHT, LEXICAL_WEIGHT)
    assert Hybrid.of({"b": bm25, "m": minilm}, fusion="rrf").weights == (0.5, 0.5)
    assert Hybrid.of({"b": bm25, "o": Overlap()}).weights == (0.5, 0.5)


def test_fitted_weights_of_three_legs_whatever_their_order() -> None:
    legs = {"b": BM25(), "m": MiniLM(), "u": Dense("use")}
    fitted = {"b": 0.02, "m": 0.68, "u": 0.3}
    for names in ("bmu", "umb", "mub"):
        found = Hybrid.of({name: legs[name] for name in names})
        assert found.weights == tuple(fitted[name] for name in names)
        assert found.fitted_on == (PUBLIC_DEV,)
    assert Hybrid.of({name: legs[name] for name in "mu"}).weights == (0.7, 0.3)
    assert Hybrid.of({name: legs[name] for name in "bu"}).weights == (0.02, 0.98)
    assert Hybrid.of({"m": legs["m"], "n": legs["m"], "u": legs["u"]}).weights == (1 / 3,) * 3
    assert Hybrid.of({"m": legs["m"], "o": Overlap(), "u": legs["u"]}).fitted_on == ()


def test_queries_go_to_the_leg_that_reads_them() -> None:
    found = Hybrid(legs="minilm,use")
    for query, preferred in (("What food am I allergic to?", 0), ("我对什么食物过敏？", 1)):
        weights = found._weights_for(query)
        assert not isinstance(weights, str)
        assert np.argmax(weights) == preferred
        assert weights[preferred] > 2 * weights[1 - preferred]


def test_the_power_of_trust() -> None:
    legs = {"half": Prepared(0.5), "bm25": BM25()}
    squared = Hybrid.of(legs, weights="1,1", scale="minmax", trust_power=2)
    assert scores(squared, "cat")[1] == 1.25
    assert squared.settings()["trust_power"] == 2
    assert Hybrid.arguments_of(squared.settings())["trust_power"] == 2
    assert "trust_power" not in Hybrid.of(legs).settings()
    assert Hybrid(legs="minilm,use").settings()["trust_power"] == 2
    assert Hybrid(legs="minilm,use", trust_power=1).settings()["trust_power"] == 1
    for value in (-1, math.nan, math.inf):
        with pytest.raises(UserError, match="trust_power"):
            Hybrid(trust_power=value)


def test_trust_multiplies_a_weight() -> None:
    legs = {"half": Prepared(0.5), "bm25": BM25()}
    given = {"weights": "1,1", "scale": "minmax"}
    trusting, plain = Hybrid.of(legs, **given), Hybrid.of(legs, **given, trust=False)
    assert scores(plain, "cat")[1] == 2
    assert scores(trusting, "cat")[1] == 1.5


def test_ranks_are_fused_without_trust_unless_it_is_asked_for() -> None:
    legs = {"half": Prepared(0.5), "other": Overlap()}
    assert scores(Hybrid.of(legs, fusion="rrf"), "cat")[1] == 1 / 61
    assert scores(Hybrid.of(legs, fusion="rrf", trust=True), "cat")[1] == 0.75 / 61


def test_a_leg_that_cannot_read_the_query_orders_what_no_other_matches() -> None:
    legs = {"blind": Prepared(0.0), "bm25": BM25()}
    found = scores(Hybrid.of(legs, weights="1,1", scale="minmax"), "and")
    assert found == [0, 0, 0, pytest.approx(LEAST_TRUST + 1)]
    assert scores(Hybrid.of({"blind": Prepared(0.0)}), "cat")[1] > 0


def test_bm25_outweighs_a_dense_leg_that_cannot_read_the_script() -> None:
    """MiniLM knows few Chinese characters. What it prefers here shares no word with the query."""
    pool = [Memory(t) for t in ("周末常去爬山", "对花生过敏", "在上海教数学", "养了两只猫")]
    query = "我对什么食物过敏？"
    hybrid = Hybrid(weights="0.2,0.8", scale="minmax")
    assert hybrid.legs[1].trust(query) < 0.5 < hybrid.legs[1].trust("What food am I allergic to?")
    fused = np.asarray(hybrid.score(query, pool).scores)
    assert fused.argmax() == 1


def test_what_no_leg_matches_is_unmatched() -> None:
    result = Hybrid.of({"a": BM25(), "b": BM25(variant="plus")}).score("cat", SMALL)
    assert result.matched.tolist() == [False, True, False, True]
    assert np.flatnonzero(result.scores).tolist() == [1, 3]


# --- failures and costs


def test_usage_and_repairs_are_summed() -> None:
    result = Hybrid.of({"a": Costly(), "b": Costly(), "c": Overlap()}).score("cat", SMALL)
    assert result.usage == Usage(2, 40, 6)
    assert result.repairs == {"commas": 4}


@pytest.mark.parametrize(
    ("query", "cause"),
    [
        ("refuse", "leg bad: no answer"),
        ("crash", "leg bad: KeyError: 'tea' (test_hybrid.py:LINE)"),
        ("short", "leg bad: scores of shape (1,) for a pool of 4"),
        ("nan", "leg bad: score not finite at position 0"),
    ],
)
def test_a_failing_leg_fails_its_query_alone_and_is_named(query: str, cause: str) -> None:
    hybrid = Hybrid.of({"good": Overlap(), "bad": Fails()})
    results = hybrid.results(["cat", query, "tea"], [SMALL] * 3)
    assert isinstance(results[1], NotScored)
    assert re.sub(r":\d+\)$", ":LINE)", results[1].cause) == cause
    assert isinstance(results[0], Scored)
    assert isinstance(results[2], Scored)
    with pytest.raises(RetrieverError, match="leg bad"):
        hybrid.score(query, SMALL)


# --- settings and runs


def test_settings_hold_those_of_the_legs() -> None:
    found = made("bm25", "h=hybrid", h__legs="bm25,overlap", h__fusion="rrf", bm25__k1="0.7")
    settings = found["h"].settings()
    assert settings["rrf_k"] == 60
    assert [leg["label"] for leg in settings["legs"]] == ["bm25", "overlap"]
    assert settings["legs"][0]["settings"]["k1"] == 0.7
    assert set(found["bm25"].libraries) <= set(found["h"].libraries)


def sweep(release: Path, out: Path, workers: int = 1, **settings: str) -> bytes:
    words = ["h.legs=bm25,overlap", *(f"h.{key}={value}" for key, value in settings.items())]
    pools = {"pools": "released", "distractors": (3,)}
    swept(["bm25", "h=hybrid"], release, settings=words, workers=workers, out=out, **pools)
    return (out / "rows.jsonl").read_bytes()


@pytest.fixture
def release(write_release: WriteRelease) -> Path:
    return write_release([(QUERIES[i % 2], [m.text for m in POOL[:4]], i % 4) for i in range(20)])


def test_workers_change_nothing(release: Path, tmp_path: Path) -> None:
    assert sweep(release, tmp_path / "one") == sweep(release, tmp_path / "two", workers=2)


def test_a_leg_with_other_settings_is_another_run(release: Path, tmp_path: Path) -> None:
    sweep(release, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text("utf-8"))
    described = manifest["fingerprint"]["retrievers"][1]["settings"]
    assert described["legs"][0]["settings"]["k1"] == 1.5
    with pytest.raises(UserError, match="differ in"):
        sweep(release, tmp_path / "run", weights="0.3,0.7")


def test_scores_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "from retrievers.hybrid import Hybrid; from retrievers.bm25 import BM25\n"
        "from retrievers.overlap import Overlap; from retrievers.testing import POOL, QUERIES\n"
        "h = Hybrid.of({'a': BM25(), 'b': Overlap(), 'c': BM25(variant='l')})\n"
        "print([h.score(q, POOL).scores.tolist() for q in QUERIES])"
    )
    found = {python("-c", script, cwd=ROOT, PYTHONHASHSEED=seed).stdout for seed in ("0", "1")}
    assert len(found) == 1


# --- how much a model can read


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("Which tea should I buy for the office kettle?", 1, 1),
        ("???", 1, 1),
        ("", 1, 1),
        ("Какой чай мне купить для чайника?", 0.01, 0.4),
        ("我想买绿茶，哪一种适合我？", 0.01, 0.5),
        ("ᚠᚢᚦᚨᚱᚲ", 0, 0),  # runes: no piece is known
    ],
)
def test_legibility_to_minilm(text: str, low: float, high: float) -> None:
    assert low <= legibility(text, resolve_model("all-MiniLM-L6-v2")) <= high


def test_a_model_without_a_tokenizer_file_is_trusted(tmp_path: Path) -> None:
    assert legibility("Какой чай?", tmp_path) == 1


def test_a_word_in_pieces_counts_once(tmp_path: Path) -> None:
    """Of three pieces the first is read; a known Chinese character is a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {"[UNK]": 0, "tea": 1, "ket": 2, "##t": 3, "##le": 4, "茶": 5, "##茶": 6}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert legibility("tea kettle", tmp_path) == 2 / 4
    assert legibility("茶茶!", tmp_path) == 1
    assert legibility("tea coffee", tmp_path) == 1 / 2
