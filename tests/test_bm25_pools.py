"""BM25 on pools that public tools get wrong: one match, no words, no match, scripts."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.metrics import above_tied, display_order, ranked, recall_at
from recallbed.corpus.records import Memory
from retrievers import RETRIEVERS, Retriever
from retrievers.bm25 import BM25, VARIANTS
from retrievers.rank_bm25 import RankBM25
from retrievers.rerank import Reranker
from tests.kit import WriteRelease, rows_of, swept

KS = (1, 5, 10)


def scores(retriever: Retriever, query: str, texts: list[str]) -> list[float]:
    result: Any = retriever.score(query, [Memory(text) for text in texts])
    return [float(score) for score in np.asarray(getattr(result, "scores", result))]


def recall(found: list[float], gold: int, k: int = 1) -> float:
    return recall_at(k, *above_tied(ranked(found, len(found)), gold))


def sweep(
    release: Path, out: Path, *, distractors: int, retriever: str = "bm25", **settings: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The one cell and the rows of a run over the released pools."""
    chosen = [f"x.{key}={value}" for key, value in settings.items()]
    pools = {"pools": "released", "distractors": (distractors,)}
    outcome = swept([f"x={retriever}"], release, settings=chosen, ks=KS, out=out, **pools)
    [cell] = outcome.summary["cells"]
    return cell, rows_of(out)


# A term in exactly half of the memories


def test_a_term_in_half_the_pool_scores_ln_2() -> None:
    pool = ["likes tea", "has cat"]
    assert scores(RankBM25(), "tea", pool) == [0, 0]  # as reported
    [first, second] = scores(BM25(stopwords=False), "tea", pool)
    assert first == pytest.approx(math.log(2), abs=1e-12)
    assert second == 0


@pytest.mark.parametrize("df", range(1, 9))
def test_a_match_beats_no_match_at_every_document_frequency(df: int) -> None:
    pool = ["tea"] * df + ["cat"] * (8 - df)
    found = scores(BM25(), "tea", pool)
    assert all(score > 0 for score in found[:df])
    assert all(score == 0 for score in found[df:])


# Pools so small or repetitive that idf turns negative


def test_a_pool_of_one_match_scores_above_0() -> None:
    assert scores(RankBM25(), "tea", ["tea"]) == [pytest.approx(-0.2747, abs=5e-5)]
    assert scores(BM25(variant="okapi"), "tea", ["tea"]) == [pytest.approx(-0.2747, abs=5e-5)]
    [found] = scores(BM25(), "tea", ["tea"])
    assert found == pytest.approx(0.2877, abs=5e-5)
    assert recall([found], 0) == 1


@pytest.mark.parametrize("settings", [{}, {"tokens": "paper"}, {"b": 0.0}, {"b": 1.0}, {"k1": 0.0}])
@pytest.mark.parametrize(
    "pool",
    [
        ["tea", "tea", "tea"],
        ["tea", "green tea", "black tea", "cat"],
        ["tea tea tea tea", "", ""],
        ["drinks tea at home", "drinks tea at home", "drinks milk"],
    ],
)
def test_repetitive_pools_never_score_below_0(settings: dict[str, Any], pool: list[str]) -> None:
    found = scores(BM25(**settings), "tea", pool)
    assert all((score > 0) == ("tea" in text) for score, text in zip(found, pool, strict=True))


def test_the_gold_of_a_pool_of_matches_is_not_lost(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    release = write_release([("tea", ["tea", "tea of the green kind"], 0)])
    cell, [row] = sweep(release, tmp_path / "run", distractors=1)
    assert (row["above"], row["tied"]) == (0, 1)
    assert cell["recall"]["1"]["mean"] == 1


# Memories without a word


@pytest.mark.parametrize("tokens", ["multilingual", "paper"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("pool", [["", "  "], ["???", "..."], ["the", "of"], ["\u200b", "\n"]])
def test_a_pool_without_words_scores_0(tokens: Any, variant: Any, pool: list[str]) -> None:
    found = scores(BM25(variant=variant, tokens=tokens), "tea", pool)
    assert found == [0, 0]
    assert recall(found, 0) == 0.5


@pytest.mark.parametrize("retriever", ["bm25", "rank-bm25", "overlap"])
def test_such_a_pool_counts_half_in_a_sweep(
    write_release: WriteRelease, tmp_path: Path, retriever: str
) -> None:
    release = write_release([("tea", ["", "  "], 0)])
    cell, [row] = sweep(release, tmp_path / "run", distractors=1, retriever=retriever)
    assert (row["above"], row["tied"], row["error"]) == (0, 2, None)
    assert cell["recall"]["1"]["mean"] == 0.5


def test_wordless_memories_among_others_change_no_winner() -> None:
    found = scores(BM25(), "tea", ["", "tea", "???", "cat"])
    assert found.index(max(found)) == 1
    assert found[0] == found[2] == found[3] == 0


# K above the size of the pool


MODELS = ("adapted", "dense", "minilm", "folds")
NO_MODEL = [
    n
    for n in RETRIEVERS.names()
    if n not in MODELS and not issubclass(RETRIEVERS.find(n), Reranker)
]


@pytest.mark.slow
@pytest.mark.parametrize("retriever", NO_MODEL)
def test_k_beyond_the_pool_finds_everything_and_is_flagged(
    write_release: WriteRelease, tmp_path: Path, retriever: str
) -> None:
    release = write_release([("tea", ["cat", "dog"], 1)])
    cell, [row] = sweep(release, tmp_path / "run", distractors=1, retriever=retriever)
    assert sorted(position for position, _ in row["top"]) == [0, 1]
    for k, trivial in ((1, False), (5, True), (10, True)):
        assert cell["recall"][str(k)]["trivial"] is trivial
    assert cell["recall"]["5"]["mean"] == cell["recall"]["10"]["mean"] == 1


# Languages written without spaces


def test_chinese_is_found_by_pairs_of_characters() -> None:
    pool = ["喜欢喝绿茶", "养了一只猫", "住在上海"]
    found = scores(BM25(variant="okapi"), "绿茶", pool)
    assert found == [pytest.approx(0.4907, abs=5e-5), 0, 0]
    assert recall(scores(BM25(), "绿茶", pool), 0) == 1
    assert scores(BM25(tokens="paper"), "绿茶", pool) == [0, 0, 0]  # as reported


@pytest.mark.parametrize(
    ("query", "pool"),
    [
        ("緑茶", ["毎朝緑茶を飲みます", "猫を飼っています", "東京に住んでいます"]),
        ("コーヒー", ["朝はコーヒーだけ飲む", "ラーメンが嫌い", "犬と暮らす"]),
        ("녹차", ["아침마다 녹차를 마신다", "고양이를 키운다", "서울에 산다"]),
        ("ชาเขียว", ["ชอบดื่มชาเขียวทุกเช้า", "เลี้ยงแมวหนึ่งตัว", "อยู่กรุงเทพ"]),
        ("តែបៃតង", ["ចូលចិត្តតែបៃតង", "មានឆ្មា", "រស់នៅភ្នំពេញ"]),
        ("绿茶", ["drinks 绿茶 daily", "has a cat", "住在上海"]),
        ("iPhone", ["我用iPhone手机", "我用安卓手机", "住在上海"]),
    ],
)
def test_so_are_the_other_scripts_without_spaces(query: str, pool: list[str]) -> None:
    for order in (pool, pool[::-1]):
        assert recall(scores(BM25(), query, order), order.index(pool[0])) == 1


# Nothing matches


@pytest.mark.parametrize("gold", range(4))
def test_no_match_is_a_tie_of_all_for_any_gold(gold: int) -> None:
    pool = ["tea", "has cat", "runs far", "绿茶"]
    for variant in VARIANTS:
        found = scores(BM25(variant=variant), "zzz", pool)
        assert found == [0] * 4
        assert recall(found, gold) == 0.25


def test_queries_without_a_match_are_counted(write_release: WriteRelease, tmp_path: Path) -> None:
    pool = ["drinks tea", "has cat", "runs far", "sings"]
    release = write_release([("zzz", pool, 3), ("tea", pool, 0), ("???", pool, 1)])
    cell, rows = sweep(release, tmp_path / "run", distractors=3)
    assert [(row["above"], row["tied"]) for row in rows] == [(0, 4), (0, 1), (0, 4)]
    assert (cell["all_tied"], cell["attempted"]) == (2, 3)
    assert cell["recall"]["1"]["mean"] == 0.5
    # Shown in the order of the file, for no other order means more.
    assert [position for position, _ in rows[0]["top"]] == [0, 1, 2, 3]


# Punctuation


@pytest.mark.parametrize(
    "query", ["tea", "tea?", '"tea"', "(tea)", "+tea -cat^2~ AND [x TO", "tea:*"]
)
def test_punctuation_neither_stops_a_match_nor_is_syntax(query: str) -> None:
    pool = ["Prefers tea.", "has a dog", "runs far"]
    for tokens in ("multilingual", "paper"):
        found = scores(BM25(tokens=tokens), query, pool)
        assert display_order(ranked(found, 3), 1) == [0]
        assert found[0] > 0


@pytest.mark.parametrize("query", ["???", "", " ", "''", "…", "👍", "\u200b", "()[]{}*", "। ؟ 。"])
def test_a_query_without_words_ties_everything(query: str) -> None:
    for variant in VARIANTS:
        assert scores(BM25(variant=variant), query, ["Prefers tea.", "has cat", "???"]) == [0, 0, 0]


@pytest.mark.parametrize("mark", list(".,!?;:)。，！？、؟؛।»”’…"))
def test_marks_of_every_script_come_off_the_word(mark: str) -> None:
    assert scores(BM25(), "tea", [f"prefers tea{mark}", "has cat"])[0] > 0
    assert scores(BM25(), "绿茶", [f"喜欢绿茶{mark}很", "养猫"])[0] > 0
