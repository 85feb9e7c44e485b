"""Explanations of scores: their parts make the scores, and no chat model is called for them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recallbed.chat_models import ChatOptions, ReplyCache, chat_model
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import parse_configurations
from retrievers.base import Retriever, RetrieverError, RunContext
from retrievers.bm25 import BM25, VARIANTS, Variant
from retrievers.dense import Dense
from retrievers.explanation import (
    Cosine,
    Explanation,
    FusedShares,
    RerankedPlace,
    TermWeights,
    TextExplanation,
)
from retrievers.hybrid import Hybrid
from retrievers.overlap import Overlap
from retrievers.recorded import RecordedChats, rebuild
from retrievers.registry import build_retrievers, describe_retriever
from retrievers.rerank.cross_encoder import CrossEncoderReranker
from retrievers.rerank.full_context import FullContext
from retrievers.rerank.listwise import Listwise
from retrievers.rerank.pairwise import Pairwise
from retrievers.rerank.pointwise import Pointwise
from retrievers.rerank.prompt_reranker import PromptReranker
from retrievers.rerank.setwise import Setwise
from tests.kit import checked, read_json, swept, write_lines
from tests.reader import knows, reader
from tests.scripted_server import ScriptedServer, scripted_server
from tests.tiny_models import save_bert, words_of

TEXTS = ("likes green tea", "tea and tea and rain", "a cat of the sea", "rain again", "boats")
POOL = [Memory(text) for text in TEXTS]
QUERY = "green tea in the rain"
EVERY = range(len(POOL))


def own_scores(retriever: Retriever, query: str, pool: list[Memory]) -> list[float]:
    result: Any = retriever.results([query], [pool])[0]
    return [float(score) for score in result.scores]


def close(score: float | None, expected: float) -> bool:
    return score is not None and abs(score - expected) <= 1e-5 * max(abs(expected), 1)


# --- BM25: terms with weights


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=30)
@given(
    st.lists(st.sampled_from("tea rain cat sea boat".split()), max_size=6),  # noqa: SIM905
    st.lists(st.lists(st.sampled_from("tea rain cat sea".split()), max_size=5), min_size=1),  # noqa: SIM905
)
def test_the_weights_of_terms_sum_to_the_score(
    variant: Variant, query: list[str], texts: list[list[str]]
) -> None:
    retriever = BM25(variant=variant, stem=False)
    pool = [Memory(" ".join(words)) for words in texts]
    asked = " ".join(query)
    found = retriever.explain(asked, pool, range(len(pool)))
    for one, score in zip(found, own_scores(retriever, asked, pool), strict=True):
        assert close(one.score, score)


def test_the_terms_are_those_that_query_and_memory_share() -> None:
    found = BM25().explain(QUERY, POOL, EVERY)
    assert [{term for term, _ in one.terms} for one in found] == [
        {"green", "tea"},
        {"tea", "rain"},
        set(),
        {"rain"},
        set(),
    ]
    first = found[0]
    weights = [weight for _, weight in first.terms]
    assert weights == sorted(weights, reverse=True)
    assert str(first).startswith("green ")
    assert str(found[4]) == "no shared term"
    assert first.to_json()["kind"] == "terms"


def test_a_query_of_stopwords_is_explained_by_stopwords() -> None:
    [one] = BM25().explain("of the", POOL, [2])
    assert {term for term, _ in one.terms} == {"of", "the"}


def test_the_bank_gives_the_weights_if_it_gave_the_scores() -> None:
    run = RunContext(bank=[*POOL, *(Memory(f"tea {i}") for i in range(20))])
    pooled, banked = BM25(), BM25.from_run({"scope": "bank"}, run)
    of_pool, of_bank = (one.explain(QUERY, POOL, [0])[0] for one in (pooled, banked))
    assert of_pool.terms != of_bank.terms
    assert close(of_bank.score, own_scores(banked, QUERY, POOL)[0])


# --- the interface


class Talking(Overlap):
    """Explains in words; wrongly if told so."""

    wrong = ""

    def explain(self, query: str, pool: Any, positions: Any) -> Any:
        if self.wrong == "raises":
            raise KeyError("tea")
        if self.wrong == "text":
            return ["words in common" for _ in positions]
        if self.wrong == "too few":
            return [TextExplanation("words in common")]
        return [TextExplanation(f"words in common with {pool[i].text}") for i in positions]


def test_a_retriever_of_ones_own_may_explain_in_words_or_not_at_all() -> None:
    assert Overlap().explanations(QUERY, POOL, [0, 1]) is None
    found = checked(list, Talking().explanations(QUERY, POOL, [1, 0]))
    assert [str(one) for one in found] == [
        f"words in common with {TEXTS[1]}",
        f"words in common with {TEXTS[0]}",
    ]
    assert found[0].to_json() == {"kind": "text", "text": str(found[0])}
    assert isinstance(found[0], Explanation)
    assert found[0].score is None


@pytest.mark.parametrize("wrong", ["raises", "text", "too few"])
def test_a_wrong_explanation_is_an_error_of_its_query(wrong: str) -> None:
    talking = Talking()
    talking.wrong = wrong
    with pytest.raises(RetrieverError, match=r"KeyError: 'tea'|explain: not one Explanation"):
        talking.explanations(QUERY, POOL, [0, 1])


# --- dense and hybrid


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def tiny(folder: Path) -> str:
    return str(save_bert(folder / "bi", words_of([*TEXTS, QUERY]), kind="BertModel"))


def test_a_dense_score_is_its_cosine(tiny: str) -> None:
    retriever = Dense(tiny)
    found = retriever.explain(QUERY, POOL, [4, 0])
    scores = own_scores(retriever, QUERY, POOL)
    assert all(isinstance(one, Cosine) for one in found)
    assert close(found[0].score, scores[4])
    assert close(found[1].score, scores[0])


@pytest.mark.parametrize(
    "how",
    [
        {"fusion": "rrf", "weights": "1,2,0.5"},
        {"fusion": "weighted", "scale": "zscore"},
        {"fusion": "weighted", "scale": "minmax", "trust": False},
    ],
    ids=str,
)
def test_the_shares_of_legs_sum_to_the_fused_score(how: dict[str, Any]) -> None:
    inner = Hybrid.of({"a": BM25(), "b": Overlap()})
    retriever = Hybrid.of({"words": BM25(), "plus": BM25(variant="plus"), "in": inner}, **how)
    found = retriever.explain(QUERY, POOL, EVERY)
    for one, score in zip(found, own_scores(retriever, QUERY, POOL), strict=True):
        assert close(one.score, score)
    words, plus, within = found[0].legs
    assert (words.leg, plus.leg, within.leg) == ("words", "plus", "in")
    assert words.ties == (0, 1)
    assert isinstance(words.explanation, TermWeights)
    assert isinstance(within.explanation, FusedShares)
    assert within.explanation.legs[1].explanation is None  # overlap explains nothing
    assert found[0].to_json()["legs"][0]["rank"] == [1, 1]


class Failing(Overlap):
    def score(self, query: str, pool: Any) -> Any:
        raise RetrieverError("no")


def test_a_leg_that_fails_leaves_nothing_to_explain() -> None:
    assert Hybrid.of({"a": BM25(), "b": Failing()}).explanations(QUERY, POOL, [0]) is None
    assert Listwise.asking(ANY, Failing()).explanations(QUERY, POOL, [0]) is None


# --- rerankers

ANY = chat_model("openai:scripted", base_url="http://127.0.0.1:9/v1")


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with scripted_server(reader(knows("rain again"))) as running:
        yield running


def first_named(reply: str) -> int:
    """The number that a reply puts first."""
    value = json.loads(reply)
    return int(value["best"] if "best" in value else value["order"][0])


@pytest.mark.parametrize("cls", [Listwise, Setwise, Pairwise, FullContext])
def test_replies_come_from_the_cache_and_none_is_requested(
    cls: type[PromptReranker], server: ScriptedServer, tmp_path: Path
) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    chat = chat_model("openai:scripted", base_url=server.url, cache=cache, first_wait=0.0)
    first = None if cls is FullContext else Overlap()
    depth = {} if cls is FullContext else {"depth": 4}
    retriever = cls.asking(chat, first, **depth)
    assert retriever.explain(QUERY, POOL, [0])[0].evidence is None  # nothing was asked yet
    own_scores(retriever, QUERY, POOL)
    calls = len(server.calls)
    tea, rain, boats = retriever.explain(QUERY, POOL, [0, 3, 4])
    assert len(server.calls) == calls
    assert (tea.candidate, rain.candidate) == (True, True)
    assert rain.evidence is not None
    replies = rain.evidence.replies
    assert replies
    assert any(first_named(one.text) == one.shown_as for one in replies)
    if cls is not FullContext:
        assert boats == RerankedPlace(False, 4, (4, 1))
        assert str(boats) == "first stage: rank 5; not among the 4 candidates"
        assert tea.ties == (0, 2)
    chat.close()


def test_grades_of_pointwise_are_of_their_own_candidate(tmp_path: Path) -> None:
    def grade(call: Any) -> Any:
        return {"grade": 3 if "rain again" in call.prompt else 1}

    with scripted_server(grade) as server:
        cache = ReplyCache(tmp_path / "replies.sqlite")
        chat = chat_model("openai:scripted", base_url=server.url, cache=cache, first_wait=0.0)
        retriever = Pointwise.asking(chat, Overlap(), depth=4)
        own_scores(retriever, QUERY, POOL)
        found = retriever.explain(QUERY, POOL, [0, 3])
        chat.close()
    replies = [
        [json.loads(reply.text) for reply in one.evidence.replies] for one in found if one.evidence
    ]
    assert replies == [[{"grade": 1}], [{"grade": 3}]]


def test_a_cross_encoder_shows_its_outputs(folder: Path) -> None:
    model = save_bert(folder / "cross", words_of([*TEXTS, QUERY]))
    retriever = CrossEncoderReranker.over(Overlap(), model=str(model), depth=3)
    found = retriever.explain(QUERY, POOL, EVERY)
    assert [one.candidate for one in found] == [True, True, False, True, False]
    values = {i: one.evidence.value for i, one in enumerate(found) if one.evidence is not None}
    scores = own_scores(retriever, QUERY, POOL)
    assert sorted(values, key=lambda i: -checked(float, values[i])) == sorted(
        values, key=lambda i: -scores[i]
    )
    assert "output " in str(found[0])


# --- built again from what a run recorded


def entries(retrievers: list[str], words: list[str], run: RunContext) -> list[dict[str, Any]]:
    """What a fingerprint holds of them, as it is read back."""
    configurations = parse_configurations(retrievers, words)
    built = build_retrievers(configurations, run)
    found = [
        {"label": one.label, **describe_retriever(one, built[one.label])} for one in configurations
    ]
    return checked(list, json.loads(json.dumps(found)))


@pytest.mark.parametrize(
    ("retrievers", "words"),
    [
        (["bm25"], ["bm25.variant=l", "bm25.k1=0.9", "bm25.language=german"]),
        (["bm25"], ["bm25.scope=bank"]),
        (["x=overlap"], []),
        (["random"], []),
        (["rank-bm25"], ["rank-bm25.variant=plus"]),
        (["h=hybrid", "b=bm25", "overlap"], ["h.legs=b,overlap", "h.fusion=rrf", "b.b=0.1"]),
        (["h=hybrid"], ["h.legs=bm25,overlap", "h.weights=0.3,0.7", "h.trust=false"]),
        (["h=hybrid", "g=hybrid"], ["h.legs=g,bm25", "g.legs=overlap,random", "g.scale=minmax"]),
    ],
    ids=str,
)
def test_a_recorded_retriever_is_built_again(retrievers: list[str], words: list[str]) -> None:
    run = RunContext(seed=4, bank=POOL)
    for entry in (recorded := entries(retrievers, words, run)):
        again = rebuild(recorded, entry["label"], run)
        assert json.loads(json.dumps(dict(again.settings()))) == entry["settings"]


def test_a_dense_retriever_is_built_again_with_its_prompts(tiny: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(Path(tiny).parent)
    words = ["dense.model=bi", "dense.query_prompt=ask: ", "dense.memory_prefix=m: "]
    recorded = entries(["dense"], words, RunContext())
    again = rebuild(recorded, "dense", RunContext())
    assert dict(again.settings()) == recorded[0]["settings"]


def test_a_local_model_is_found_by_its_name_and_weights(tiny: str, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path / "tuned")
    recorded = entries(["dense"], [f"dense.model={tmp_path / 'tuned'}"], RunContext())
    assert recorded[0]["settings"]["model"] == "tuned"
    with pytest.raises(UserError, match="no model `tuned`"):
        rebuild(recorded, "dense", RunContext(), models=[tmp_path.parent])
    again = rebuild(recorded, "dense", RunContext(), models=[tmp_path.parent, tmp_path])
    assert dict(again.settings()) == recorded[0]["settings"]
    (tmp_path / "tuned" / "other.txt").write_text("other weights")
    with pytest.raises(UserError, match="no model `tuned`"):
        rebuild(recorded, "dense", RunContext(), models=[tmp_path])


def test_a_run_with_a_reranker_is_explained_from_its_replies(
    server: ScriptedServer, tmp_path: Path
) -> None:
    data = write_lines(
        tmp_path / "own.jsonl",
        [{"query": QUERY, "memories": list(TEXTS), "gold": 3}],
    )
    options = ChatOptions(base_url=server.url, replies=str(tmp_path / "replies.sqlite"))
    run = swept(
        ["llm=listwise"],
        data,
        settings=["llm.model=openai:m", "llm.first_stage=overlap", "llm.depth=3"],
        ks=(1,),
        out=tmp_path / "run",
        chat=options,
    ).path
    recorded = read_json(run / "manifest.json")["fingerprint"]["retrievers"]
    calls = len(server.calls)
    chats = RecordedChats(recorded, ChatOptions(replies=options.replies))
    again = rebuild(recorded, "llm", RunContext(chats=chats))
    [place] = checked(list, again.explanations(QUERY, POOL, [3]))
    chats.close()
    assert len(server.calls) == calls
    assert place.evidence is not None
    [reply] = place.evidence.replies
    assert first_named(reply.text) == reply.shown_as


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "vanished"}, "no retriever `vanished`"),
        ({"name": "other.place:Class"}, "other.place:Class"),
        ({"settings": {"k1": 1.5}}, "not what the run had"),
        ({"settings": {"k1": -1}}, "k1 must be"),
        ({"settings": 3}, "cannot be read"),
        ({"name": "hybrid", "settings": {"legs": [{}]}}, "cannot be read"),
        ({"name": "hybrid", "settings": {}}, "cannot be read"),
        ({"name": "listwise", "settings": {"model": 1}}, "cannot be read"),
    ],
    ids=str,
)
def test_what_cannot_be_built_says_why(change: dict[str, Any], message: str) -> None:
    [entry] = entries(["bm25"], [], RunContext())
    with pytest.raises(UserError, match=message):
        rebuild([{**entry, **change}], "bm25", RunContext())


def test_a_users_class_is_run_only_if_that_is_allowed(tmp_path: Path, monkeypatch: Any) -> None:
    code = "from retrievers.overlap import Overlap\nclass Mine(Overlap):\n    pass\n"
    (tmp_path / "mine_for_explaining.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    recorded = entries(["m=mine_for_explaining:Mine"], [], RunContext())
    with pytest.raises(UserError, match="--allow-code"):
        rebuild(recorded, "m", RunContext())
    again = rebuild(recorded, "m", RunContext(), allow_code=True)
    assert again.explanations("q", POOL, [0]) is None
    recorded[0]["code"] = {"mine_for_explaining": "0" * 16}
    with pytest.raises(UserError, match="not what the run had"):
        rebuild(recorded, "m", RunContext(), allow_code=True)
