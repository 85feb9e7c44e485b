"""retrievers/bm25.py and retrievers/rank_bm25.py."""

import json
import math
import pickle
from collections import Counter
from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
import rank_bm25
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analysis.metrics import above_tied, ranked, recall_at
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from retrievers import RunContext, build_retriever
from retrievers.bm25 import BM25, VARIANTS, TermBags, inverse_document_frequency, saturation
from retrievers.rank_bm25 import RankBM25

PEERS = {"okapi": "BM25Okapi", "plus": "BM25Plus", "l": "BM25L"}
WORDS = [
    "tea",
    "cat",
    "runs",
    "sea",
    "old",
    "maps",
    "the",
    "of",
    "绿茶",
    "茶",
    "чай",
    "قهوة",
    "café",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
QUERIES = st.lists(st.sampled_from([*WORDS, "zebra", "未知"]), max_size=6).map(" ".join)
POOLS = st.lists(TEXTS, min_size=1, max_size=12)
FEWER = settings(max_examples=25)


def memories(texts: Sequence[str]) -> list[Memory]:
    return [Memory(text) for text in texts]


def made(bank: Sequence[str] = (), **settings: Any) -> BM25:
    """As a run makes it, with the run's bank."""
    return BM25.from_run(settings, RunContext(0, memories(bank)))


def built(bank: Sequence[str] = (), **settings: str) -> BM25:
    """As a run builds it from settings typed as text."""
    found = build_retriever(Configuration("x", "bm25", settings), RunContext(0, memories(bank)))
    assert isinstance(found, BM25)
    return found


def asked(retriever: BM25, query: str) -> tuple[tuple[str, ...], bool]:
    """The terms a query is scored with, and whether stopwords count."""
    tokens = retriever.tokens(query)
    return (tokens.content, False) if tokens.content else (tokens.every, bool(tokens.every))


def bags(retriever: BM25, query: str, texts: Sequence[str]) -> list[tuple[str, ...]]:
    every = asked(retriever, query)[1]
    found = [retriever.tokens(text) for text in texts]
    return [tokens.every if every else tokens.content for tokens in found]


# --- equal to rank-bm25


@pytest.mark.parametrize("tokens", ["paper", "multilingual"])
@pytest.mark.parametrize("variant", PEERS)
@given(
    query=QUERIES, pool=POOLS, k1=st.floats(0.01, 3), b=st.floats(0, 0.99), extra=st.floats(0, 2)
)
def test_variants_equal_the_classes_of_rank_bm25(
    variant: Any, tokens: Any, query: str, pool: list[str], k1: float, b: float, extra: float
) -> None:
    other = {"epsilon" if variant == "okapi" else "delta": extra}
    ours = BM25(variant=variant, tokens=tokens, k1=k1, b=b, **other)
    corpus = bags(ours, query, pool)
    assume(any(corpus))  # the package divides by the mean length
    theirs = getattr(rank_bm25, PEERS[variant])(corpus, k1=k1, b=b, **other)
    expected = theirs.get_scores(asked(ours, query)[0])
    found = ours.score(query, memories(pool)).scores
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variant", PEERS)
def test_the_defaults_are_those_of_rank_bm25(variant: Any) -> None:
    pool = ["tea tea cake of the sea", "cat sits", "", "tea cat cat cat", "old maps"]
    query = "cat tea cat unheard"
    ours = BM25(variant=variant, tokens="paper")
    found = ours.score(query, memories(pool)).scores
    theirs = getattr(rank_bm25, PEERS[variant])(bags(ours, query, pool)).get_scores(
        asked(ours, query)[0]
    )
    np.testing.assert_allclose(found, theirs, rtol=0, atol=1e-9)
    assert np.ptp(theirs) > 0


@pytest.mark.parametrize("tokens", ["paper", "multilingual"])
@pytest.mark.parametrize("variant", PEERS)
@given(query=QUERIES, pool=POOLS)
def test_the_retriever_rank_bm25_is_the_package_on_our_tokens(
    variant: Any, tokens: Any, query: str, pool: list[str]
) -> None:
    ours, peer = BM25(variant=variant, tokens=tokens), RankBM25(variant, tokens)
    assume(not asked(ours, query)[1])  # the package gets no stopwords
    mine, its = ours.score(query, memories(pool)), peer.score(query, memories(pool))
    np.testing.assert_allclose(mine.scores, its.scores, rtol=1e-9, atol=1e-9)
    assert mine.matched.tolist() == its.matched.tolist()


@pytest.mark.parametrize("pool", [["", "  "], ["the", "of"], ["???"]])
@pytest.mark.parametrize("variant", PEERS)
def test_rank_bm25_survives_a_pool_without_a_token(variant: Any, pool: list[str]) -> None:
    scored = RankBM25(variant).score("tea", memories(pool))
    assert np.asarray(scored.scores).tolist() == [0] * len(pool)


# --- lucene


@given(query=QUERIES, pool=POOLS)
def test_lucene_by_its_formula(query: str, pool: list[str]) -> None:
    ours = BM25()
    corpus = [Counter(bag) for bag in bags(ours, query, pool)]
    mean = sum(bag.total() for bag in corpus) / len(corpus)
    expected = []
    for bag in corpus:
        score = 0.0
        for term in asked(ours, query)[0]:
            df = sum(term in other for other in corpus)
            if bag[term]:
                idf = math.log(1 + (len(corpus) - df + 0.5) / (df + 0.5))
                norm = 1 - 0.75 + 0.75 * bag.total() / mean
                score += idf * bag[term] * 2.5 / (bag[term] + 1.5 * norm)
        expected.append(score)
    found = ours.score(query, memories(pool)).scores
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@given(
    query=QUERIES,
    pool=POOLS,
    k1=st.floats(0, 5),
    b=st.floats(0, 1),
    tokens=st.sampled_from(["paper", "multilingual"]),
)
def test_lucene_is_positive_exactly_where_a_term_matches(
    query: str, pool: list[str], k1: float, b: float, tokens: Any
) -> None:
    scored = BM25(k1=k1, b=b, tokens=tokens).score(query, memories(pool))
    scores = np.asarray(scored.scores)
    assert np.isfinite(scores).all()
    assert (scores >= 0).all()
    assert ((scores > 0) == scored.matched).all()


@pytest.mark.parametrize("variant", VARIANTS)
@given(query=QUERIES, pool=POOLS)
def test_matched_masks_the_memories_that_share_a_term(
    variant: Any, query: str, pool: list[str]
) -> None:
    ours = BM25(variant=variant)
    terms = set(asked(ours, query)[0])
    matched = ours.score(query, memories(pool)).matched
    assert matched.dtype == np.bool_
    assert matched.tolist() == [bool(terms & set(bag)) for bag in bags(ours, query, pool)]


def test_a_term_asked_twice_counts_twice() -> None:
    pool = memories(["tea", "cat", "sea tea"])
    once, twice = BM25().score("tea", pool), BM25().score("tea tea", pool)
    np.testing.assert_allclose(twice.scores, 2 * np.asarray(once.scores), rtol=1e-15)


def test_a_label_is_not_read() -> None:
    bare, labelled = [Memory("likes tea")], [Memory("likes tea", "tea/tea")]
    assert BM25().score("tea", bare).scores == BM25().score("tea", labelled).scores


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pool", [[], [""], ["", "   ", "??"], ["the"]])
def test_pools_without_a_term_score_zero(variant: Any, pool: list[str]) -> None:
    for query in ("tea", "", "???", "the tea"):
        scored = BM25(variant=variant).score(query, memories(pool))
        assert np.asarray(scored.scores).tolist() == [0] * len(pool)
        assert not scored.matched.any()


def test_a_query_of_stopwords_is_scored_with_them() -> None:
    pool = memories(["Sings who are you in the bath", "Likes tea", "Has cats"])
    scores = np.asarray(BM25().score("Who are you?", pool).scores)
    assert scores[0] > 0
    assert scores[1] == scores[2] == 0


def test_stopwords_can_count_always() -> None:
    pool = memories(["the tea", "a cat"])
    for stopwords, counts in ((True, False), (False, True)):
        matched = BM25(stopwords=stopwords).score("the dog", pool).matched
        assert matched.tolist() == [counts, False]


# Content words of English that are stopwords of French, Spanish, German, Dutch or Turkish.
HOMOGRAPHS = [
    ("Owns a red car", ["Owns a red bike", "Owns a red kite"], "Which car is it that I own?"),
    ("Has a son", ["Has a cat", "Has a garden"], "What is the name of my son?"),
    ("Drives a van", ["Drives a lorry", "Drives a bus"], "What should I know about my van?"),
    ("Reads war novels", ["Reads love novels", "Reads sea novels"], "Is there a war in them?"),
    ("Wears a hat", ["Wears a scarf", "Wears a coat"], "Which hat should I take with me?"),
    ("Carved a wooden die", ["Carved a wooden top", "Carved a wooden owl"], "Was it a die?"),
    ("Keeps a compost bin", ["Keeps a compost heap", "Keeps a log"], "Where did I put the bin?"),
    ("Bakes sans sugar", ["Bakes bread", "Bakes cakes"], "What do I do sans sugar?"),
]


@pytest.mark.parametrize("tokens", ["multilingual", "paper"])
def test_a_foreign_stopword_is_no_stopword_of_a_short_english_memory(tokens: Any) -> None:
    bm25 = BM25(tokens=tokens)
    found = []
    for gold, others, query in HOMOGRAPHS:
        scores = ranked(bm25.score(query, memories([*others, gold])).scores, 3)
        found.append(recall_at(1, *above_tied(scores, 2)))
    assert found == [1.0] * 8


# --- order


@pytest.mark.parametrize("scope", ["pool", "bank"])
@pytest.mark.parametrize("variant", VARIANTS)
@FEWER
@given(data=st.data(), query=QUERIES, pool=POOLS)
def test_scores_are_bitwise_unchanged_under_shuffling(
    variant: str, scope: str, data: st.DataObject, query: str, pool: list[str]
) -> None:
    order = data.draw(st.permutations(range(len(pool))))
    ours = made(pool, variant=variant, scope=scope)
    straight = np.asarray(ours.score(query, memories(pool)).scores)
    shuffled = np.asarray(ours.score(query, memories([pool[i] for i in order])).scores)
    assert straight[order].tobytes() == shuffled.tobytes()


@pytest.mark.parametrize("scope", ["pool", "bank"])
@pytest.mark.parametrize("variant", VARIANTS)
@FEWER
@given(data=st.data(), query=QUERIES, pool=POOLS, others=POOLS)
def test_scores_are_unchanged_under_the_order_of_preparation(
    variant: str, scope: str, data: st.DataObject, query: str, pool: list[str], others: list[str]
) -> None:
    texts = [*pool, *others]
    first, second = (made(pool, variant=variant, scope=scope) for _ in range(2))
    first.prepare([query], memories(sorted(set(texts))))
    second.prepare([], memories(data.draw(st.permutations(texts))))
    one, other = (np.asarray(r.score(query, memories(pool)).scores) for r in (first, second))
    np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


# In both, sums come out one bit apart if terms are added up in the order they were first seen.
# With okapi the mean idf is then 0 in one order and -4e-18 in the other: ties come and go.
SHAKY = {
    "okapi": ("runs sea", ["old tea old", "runs old", "cat runs", "runs cat old", "runs sea"]),
    "plus": ("tea snow jazz", ["sea cat maps maps jazz", "jazz", "tea runs snow"]),
}


@pytest.mark.parametrize("scope", ["pool", "bank"])
@pytest.mark.parametrize("variant", SHAKY)
def test_the_text_seen_first_changes_no_bit(variant: str, scope: str) -> None:
    query, pool = SHAKY[variant]
    found = set()
    for order in permutations(range(len(pool))):
        ours = made(pool, variant=variant, scope=scope)
        scores = np.asarray(ours.score(query, memories([pool[i] for i in order])).scores)
        found.add(scores[np.argsort(order)].tobytes())
        ours = made(pool, variant=variant, scope=scope)
        ours.prepare([], memories([pool[i] for i in order]))
        found.add(np.asarray(ours.score(query, memories(pool)).scores).tobytes())
    assert len(found) == 1


SETTINGS: list[dict[str, Any]] = [
    {"variant": variant, "scope": scope, **rest}
    for variant, scope in product(VARIANTS, ("pool", "bank"))
    for rest in ({}, {"tokens": "paper", "k1": 0.9}, {"stem": False, "stopwords": False, "b": 0.4})
]


@pytest.mark.parametrize("chosen", SETTINGS, ids=lambda s: "-".join(map(str, s.values())))
def test_preparing_is_only_an_optimisation(chosen: dict[str, Any]) -> None:
    bank = [f"{a} {b} {c}" for a, b, c in product(WORDS[:6], WORDS[5:9], WORDS[8:])] + ["", "the"]
    pools = [bank[::7], bank[3::11], ["unseen text about tea", "未知 绿茶", *bank[:3]]]
    queries = ["tea and old maps", "绿茶 tea tea", "the of", "zebra", "unseen 未知", "чай قهوة"]
    plain, whole, part = (made(bank, **chosen) for _ in range(3))
    whole.prepare(sorted(queries), memories(sorted({*bank, *sum(pools, [])})))
    part.prepare([], memories(bank[5:20]))
    for query, pool in product(queries, pools):
        a, b, c = (r.score(query, memories(pool)) for r in (plain, whole, part))
        np.testing.assert_allclose(a.scores, b.scores, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(a.scores, c.scores, rtol=1e-12, atol=1e-12)
        assert a.matched.tolist() == b.matched.tolist() == c.matched.tolist()


def test_earlier_texts_do_not_change_the_tokens_of_later_ones() -> None:
    """A stemmer that remembers, as NLTK's Arabic one does, breaks prepare, workers and resume."""
    ours = BM25()
    ours.prepare([], memories(["درستموه"]))
    scores = np.asarray(ours.score("تعلم", memories(["تعلمتم في المدرسة", "قهوة"])).scores)
    assert scores[0] > 0 == scores[1]


# --- scope


@given(query=QUERIES, bank=POOLS, data=st.data())
def test_with_the_banks_statistics_a_score_is_the_same_in_any_pool(
    query: str, bank: list[str], data: st.DataObject
) -> None:
    variant = data.draw(st.sampled_from(VARIANTS))
    ours = made(bank, variant=variant, scope="bank")
    assert ours.pool_independent
    whole = np.asarray(ours.score(query, memories(bank)).scores)
    some = data.draw(st.lists(st.integers(0, len(bank) - 1), min_size=1, max_size=6))
    part = np.asarray(ours.score(query, memories([bank[i] for i in some])).scores)
    assert part.tobytes() == whole[some].tobytes()


@pytest.mark.parametrize("variant", VARIANTS)
def test_with_the_bank_as_the_pool_both_scopes_agree(variant: str) -> None:
    bank = ["tea of the sea", "old tea maps", "cat", "绿茶"]
    pool = made(bank, variant=variant).score("old tea", memories(bank))
    over_bank = made(bank, variant=variant, scope="bank").score("old tea", memories(bank))
    np.testing.assert_allclose(pool.scores, over_bank.scores, rtol=1e-15)


def test_a_text_that_is_twice_in_the_bank_is_one_document() -> None:
    once = built(["tea", "cat", "sea"], scope="bank")
    twice = built(["tea", "cat", "sea", "tea"], scope="bank")
    assert once.settings() == twice.settings()
    pool = memories(["tea", "cat"])
    assert (once.score("tea", pool).scores == twice.score("tea", pool).scores).all()


def test_with_the_pools_statistics_a_score_depends_on_the_pool() -> None:
    ours = made()
    assert not ours.pool_independent
    found = [ours.score("tea", memories(["tea", other])).scores[0] for other in ("cat", "tea")]
    assert found[0] > found[1]


def test_a_term_unknown_to_the_bank_is_no_evidence() -> None:
    ours = made(["tea", "cat"], scope="bank", variant="plus")
    scored = ours.score("zebra", memories(["zebra", "tea"]))
    assert np.asarray(scored.scores).tolist() == [0, 0]
    assert scored.matched.tolist() == [False, False]


def test_the_banks_scope_without_a_bank_names_the_setting() -> None:
    with pytest.raises(UserError, match="scope=pool"):
        BM25(scope="bank").score("tea", memories(["tea"]))


def test_another_bank_is_another_setting() -> None:
    one, other = (built(bank, scope="bank").settings() for bank in (["tea"], ["cat"]))
    assert one["bank"] != other["bank"]
    assert "bank" not in built(["tea"]).settings()


# --- settings


def test_settings_hold_all_that_can_change_a_score() -> None:
    changes = {
        "variant": "l",
        "k1": "2",
        "b": "0.5",
        "delta": "0.25",
        "epsilon": "0.5",
        "tokens": "paper",
        "language": "spanish",
        "stem": "false",
        "stopwords": "false",
        "scope": "bank",
    }
    seen = [
        json.dumps(built(["tea"], **{k: v}).settings(), sort_keys=True) for k, v in changes.items()
    ]
    assert len({json.dumps(built(["tea"]).settings(), sort_keys=True), *seen}) == 1 + len(changes)


def test_delta_left_open_is_the_variants_own() -> None:
    assert built(variant="plus").settings() == built(variant="plus", delta="1").settings()
    assert built(variant="l").settings() == built(variant="l", delta="0.5").settings()


@pytest.mark.parametrize("chosen", [{"k1": -0.1}, {"k1": math.nan}, {"b": 1.5}, {"b": -0.1}])
def test_settings_outside_their_range_are_refused(chosen: dict[str, float]) -> None:
    with pytest.raises(UserError, match="k1 must be at least 0 and b from 0 to 1"):
        BM25(**chosen)


@pytest.mark.parametrize("key", ["k1", "b", "delta", "epsilon"])
@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_setting_that_is_not_finite_is_refused(key: str, value: str) -> None:
    """It would make scores NaN, and the fingerprint can't hold it."""
    with pytest.raises(UserError):
        built(**{key: value})


@pytest.mark.parametrize("scope", ["pool", "bank"])
def test_a_prepared_instance_survives_pickling(scope: str) -> None:
    bank = ["tea of the sea", "old maps", "绿茶", ""]
    ours = made(bank, scope=scope)
    ours.score("tea", memories(bank))
    copy = pickle.loads(pickle.dumps(ours))
    for query in ("tea maps", "the of", "绿茶"):
        pool = memories([*bank, "new tea"])
        assert (copy.score(query, pool).scores == ours.score(query, pool).scores).all()
    assert copy.settings() == ours.settings()


# --- bags and weights


def test_bags_are_gathered_in_the_order_asked_for() -> None:
    bags = TermBags()
    rows = [bags.add("b", ["b", "a", "b"]), bags.add("", []), bags.add("c", ["c"])]
    assert (rows, len(bags)) == ([0, 1, 2], 3)
    assert bags.row_of == {"b": 0, "": 1, "c": 2}
    found = bags.gather([2, 0, 1, 0])
    names = {number: term for term, number in bags.vocabulary.items()}
    assert [names[t] for t in found.terms] == ["c", "a", "b", "a", "b"]
    assert found.lengths.tolist() == [1, 3, 0, 3]
    entries = np.arange(5)
    assert found.rows_of(entries).tolist() == [0, 1, 1, 3, 3]
    assert bags.counts(found, entries).tolist() == [1, 1, 2, 1, 2]


def test_gathering_nothing_gives_nothing() -> None:
    bags = TermBags()
    bags.add("a", ["a"])
    assert len(bags.gather([]).terms) == 0


def test_bags_keep_what_they_hold_as_they_grow() -> None:
    texts = [[f"w{i % 97}", f"w{i % 89}", f"v{i}"] for i in range(3000)]
    bags = TermBags()
    for i, tokens in enumerate(texts):
        bags.add(str(i), tokens)
    names = {number: term for term, number in bags.vocabulary.items()}
    found = bags.gather(range(3000))
    places = found.rows_of(np.arange(len(found.terms)))
    kept: list[Counter[str]] = [Counter() for _ in texts]
    counts = bags.counts(found, np.arange(len(found.terms)))
    for place, term, count in zip(places, found.terms, counts, strict=True):
        kept[place][names[term]] = int(count)
    assert kept == [Counter(tokens) for tokens in texts]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_rarer_term_weighs_more(variant: Any) -> None:
    idf = inverse_document_frequency(variant, 20, np.arange(1.0, 10.0))
    assert (np.diff(idf) < 0).all()
    assert (idf > 0).all()


def test_only_lucene_plus_and_l_are_positive_at_every_df() -> None:
    df = np.arange(1.0, 11.0)
    for variant in VARIANTS:
        idf = inverse_document_frequency(variant, 10, df)
        assert (idf > 0).all() == (variant != "okapi")


def test_okapis_floor_is_a_share_of_the_mean() -> None:
    df = np.array([1.0, 1.0, 1.0, 9.0])
    raw = np.log((10 - df + 0.5) / (df + 0.5))
    found = inverse_document_frequency("okapi", 10, df, epsilon=0.5)
    np.testing.assert_allclose(found, [*raw[:3], 0.5 * raw.mean()])


@pytest.mark.parametrize("variant", ["lucene", "okapi", "plus"])
def test_saturation_grows_towards_its_limit(variant: Any) -> None:
    gain = saturation(variant, np.array([1.0, 2, 4, 1e9]), np.ones(4), 1.5, 1.0)
    assert (np.diff(gain) > 0).all()
    assert gain[-1] == pytest.approx(2.5 + (variant == "plus"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_longer_memory_gains_less(variant: Any) -> None:
    gain = saturation(variant, np.ones(3), np.array([0.5, 1.0, 2.0]), 1.5, 0.5)
    assert (np.diff(gain) < 0).all()
