"""Rerankers that ask a chat model: the retriever contract, their orders, and what they count."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from recallbed.chat_models import ChatModel, Fence, chat_model
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import parse_configurations
from retrievers.base import Retriever, RunContext, Scored
from retrievers.overlap import Overlap
from retrievers.registry import build_retrievers
from retrievers.rerank import prompt_reranker
from retrievers.rerank.full_context import FullContext
from retrievers.rerank.listwise import Listwise
from retrievers.rerank.pairwise import Pairwise
from retrievers.rerank.prompt_reranker import PromptReranker
from retrievers.rerank.setwise import Setwise
from retrievers.rerank.testing import HONEST, INJECTIONS, PromptRerankerContract
from retrievers.testing import RetrieverContract
from tests.kit import ROOT
from tests.reader import knows, reader, shown
from tests.scripted_server import Call, ScriptedServer, scripted_server

GOLD = "Was told by a doctor to leave caffeine alone"
TEA = [Memory(f"Tea number {i} was bought on day {i * 7}" + " tea" * (i % 4)) for i in range(40)]
POOL = [*TEA[:17], Memory(GOLD), *TEA[17:]]
QUERY = "Which tea should I buy?"
PARADIGMS = (Listwise, Setwise, Pairwise, FullContext)


def overlap(query: str, text: str) -> float:
    """The worth of a text to a simple reader: words in common."""
    return float(len(set(query.lower().split()) & set(text.lower().split())))


@pytest.fixture(scope="module")
def simple() -> Iterator[ScriptedServer]:
    with scripted_server(reader(overlap)) as server:
        yield server


def asked(server: ScriptedServer, **options: Any) -> ChatModel:
    return chat_model("openai:scripted", base_url=server.url, first_wait=0.0, **options)


def make(cls: type[PromptReranker], server: ScriptedServer, **settings: Any) -> PromptReranker:
    first = None if cls is FullContext else Overlap()
    return cls.asking(asked(server), first, **settings)


def rank(result: Any, pool: list[Memory], text: str) -> tuple[int, int]:
    """The number of memories above the text, and of those that tie with it, itself included."""
    scores = np.asarray(result.scores, np.float32)
    mine = scores[[m.text for m in pool].index(text)]
    return int((scores > mine).sum()), int((scores == mine).sum())


class TestOverASocket(RetrieverContract):
    @pytest.fixture(autouse=True)
    def _server(self, simple: ScriptedServer) -> None:
        self.server = simple

    def make(self) -> Retriever:
        return make(Listwise, self.server)


Asking = Callable[[ChatModel, Retriever], PromptReranker]
CONTRACTS: dict[str, Asking] = {
    "listwise": Listwise.asking,
    "listwise in windows": partial(Listwise.asking, depth=6, window=3, stride=1, order="shuffled"),
    "setwise": Setwise.asking,
    "pairwise": partial(Pairwise.asking, top=2),
    "full context": lambda chat, first_stage: FullContext.asking(chat),
    "full context over a first stage": partial(FullContext.asking, order="reversed"),
}


class TestEveryParadigm(PromptRerankerContract):
    build: Asking = staticmethod(Listwise.asking)

    @pytest.fixture(autouse=True, params=CONTRACTS)
    def _choose(self, request: pytest.FixtureRequest) -> None:
        self.build = CONTRACTS[request.param]

    def asking(self, chat: ChatModel, first_stage: Retriever) -> PromptReranker:
        return self.build(chat, first_stage)


@pytest.mark.parametrize("careless", [str, lambda text: " ".join(text.split())])
def test_the_contract_catches_a_prompt_that_shows_memories_as_they_are(
    careless: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their lines, and on one line but with their marks."""
    monkeypatch.setattr(prompt_reranker, "harmless_line", careless)
    monkeypatch.setattr(prompt_reranker, "fence_for", lambda texts: Fence("<DATA 0>", "</DATA 0>"))
    with pytest.raises((AssertionError, ValueError)):
        TestEveryParadigm().test_memories_that_give_orders_change_no_parse()


@pytest.mark.parametrize("cls", PARADIGMS)
def test_a_perfect_reader_puts_the_gold_first(cls: type[PromptReranker]) -> None:
    with scripted_server(reader(knows(GOLD))) as server:
        settings = {} if cls is FullContext else {"depth": 41}
        result = make(cls, server, **settings).score(QUERY, POOL)
    assert rank(result, POOL, GOLD) == (0, 1)
    assert result.usage.calls == len(server.calls)
    assert result.usage.unreported == 0


@pytest.mark.parametrize("cls", [Listwise, Setwise, Pairwise])
def test_what_the_first_stage_cuts_off_stays_below_in_its_order(cls: type[PromptReranker]) -> None:
    with scripted_server(reader(knows(GOLD))) as server:
        result = make(cls, server, depth=5).score(QUERY, POOL)
    first = np.asarray(Overlap().score(QUERY, POOL), np.float32)
    scores = np.asarray(result.scores, np.float32)
    assert result.depth == 5
    assert np.array_equal(result.first_stage, first)
    head = np.argsort(-scores, kind="stable")[:5]
    assert first[head].min() >= np.delete(first, head).max()
    # Of the rest, ties included, nothing changed its order.
    rest = np.delete(np.arange(len(POOL)), head)
    order = np.sign(np.subtract.outer(first[rest], first[rest]))
    assert np.array_equal(order, np.sign(np.subtract.outer(scores[rest], scores[rest])))
    assert scores[head].min() > scores[rest].max()


def test_repeats_of_a_text_are_shown_once_and_tie() -> None:
    pool = [Memory("likes tea"), Memory("likes tea"), Memory("has a cat"), Memory("likes tea")]
    with scripted_server(reader(knows("likes tea"))) as server:
        result = make(Listwise, server).score("tea", pool)
        [call] = server.calls
    assert sorted(shown(call)[1].values()) == ["has a cat", "likes tea"]
    assert rank(result, pool, "likes tea") == (0, 3)


def test_the_order_of_the_pool_changes_neither_prompt_nor_rank(simple: ScriptedServer) -> None:
    """Of many texts that tie at the cut, a hash decides which are read."""
    for cls in PARADIGMS:
        for seed in (0, 1):
            given = (None,) if cls is FullContext else (Overlap(),)
            depth = {"depth": 8} if cls is Pairwise else {}  # each pair is a call
            reranker = cls.asking(asked(simple), *given, seed=seed, **depth)
            there, back = (reranker.score("zzz", pool) for pool in (POOL, POOL[::-1]))
            assert np.array_equal(there.scores, np.asarray(back.scores)[::-1])


def test_a_seed_changes_the_shuffle_and_nothing_else_does() -> None:
    with scripted_server(reader(overlap)) as server:
        for seed in (0, 1, 0):
            reranker = Listwise.asking(
                asked(server), Overlap(), seed=seed, order="shuffled", depth=41, window=41
            )
            reranker.score(QUERY, POOL)
        orders = [list(shown(call)[1].values()) for call in server.calls]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]


@pytest.mark.parametrize("order", ["first-stage", "shuffled", "reversed"])
def test_shown_is_the_order_of_the_prompt(order: str) -> None:
    with scripted_server(reader(overlap)) as server:
        result = make(Listwise, server, order=order, depth=8).score(QUERY, POOL)
        [call] = server.calls
    assert [POOL[i].text for i in result.shown] == list(shown(call)[1].values())


def test_windows_slide_from_the_back_to_the_front() -> None:
    class Falling(Retriever):
        def score(self, query: str, pool: Any) -> Any:
            return [-int(memory.text.split()[1]) for memory in pool]

    pool = [Memory(f"fact {i}") for i in range(10)]
    with scripted_server(reader(knows(pool[9].text))) as server:
        reranker = Listwise.asking(
            asked(server), Falling(), depth=10, window=4, stride=2, order="first-stage"
        )
        result = reranker.score("fact tea", pool)
        seen = [[t.split()[1] for t in shown(call)[1].values()] for call in server.calls]
    assert rank(result, pool, pool[9].text) == (0, 1)
    assert len(seen) == 4
    assert all(len(window) == 4 for window in seen)
    assert all("9" in window for window in seen)  # carried all the way
    assert reranker.notes()["sound_places"] == 2
    assert Listwise.asking(asked(server), Falling()).notes()["sound_places"] == 20


def test_pairwise_asks_both_orders_and_a_conflict_is_half_each() -> None:
    """If the reader always prefers the first shown, the first stage decides."""
    with scripted_server(lambda call: {"best": 1}) as server:
        result = make(Pairwise, server, depth=4, top=4).score(QUERY, POOL)
        pairs = [tuple(shown(call)[1].values()) for call in server.calls]
    assert {pair[::-1] for pair in pairs} == set(pairs)
    assert result.repairs == {"conflict": len(pairs) // 2}
    head = np.argsort(-np.asarray(result.scores), kind="stable")[:4]
    first = np.asarray(Overlap().score(QUERY, POOL))
    assert first[head].tolist() == sorted(first, reverse=True)[:4]


def test_setwise_takes_fewer_calls_than_pairwise() -> None:
    with scripted_server(reader(knows(GOLD))) as server:
        calls = [
            make(cls, server, depth=20).score(QUERY, POOL).usage.calls
            for cls in (Listwise, Setwise, Pairwise)
        ]
    assert calls[0] == 1
    assert 1 < calls[1] < 40 < calls[2]


def test_full_context_shows_all_and_leaves_the_unnamed_tied() -> None:
    with scripted_server(reader(knows(GOLD))) as server:
        result = make(FullContext, server, top=3).score(QUERY, POOL)
        [call] = server.calls
    assert len(shown(call)[1]) == len(POOL)
    assert result.first_stage is None
    _, counts = np.unique(np.asarray(result.scores), return_counts=True)
    assert counts.tolist() == [len(POOL) - 3, 1, 1, 1]


def test_full_context_over_a_first_stage_keeps_its_order_below() -> None:
    with scripted_server(reader(knows(GOLD))) as server:
        reranker = FullContext.asking(asked(server), Overlap(), top=1, order="first-stage")
        result = reranker.score(QUERY, POOL)
    assert rank(result, POOL, GOLD) == (0, 1)
    assert result.first_stage is not None
    assert np.unique(np.asarray(result.scores)).tolist() == [-1, 0]  # the others tie there too


def test_settings_name_all_that_can_change_a_score(simple: ScriptedServer) -> None:
    settings = make(Listwise, simple).settings()
    assert settings["first_stage"]["label"] == "Overlap"
    assert settings["prompt"].startswith("listwise.v1 ")
    assert {"depth", "window", "stride", "order", "model", "max_tokens"} <= set(settings)
    json.dumps(settings)
    for cls in PARADIGMS:
        assert make(cls, simple).notes()["chat_model"] == "scripted"


def test_a_run_gives_first_stage_and_model(simple: ScriptedServer) -> None:
    words = ["words=bm25", "a=listwise", "b=setwise"]
    settings = ["words.k1=0.5", "a.first_stage=words", "a.model=openai:m", "b.model=openai:m"]
    settings += ["b.first_stage=words", "b.depth=7"]
    models = {"openai:m": asked(simple)}
    run = RunContext(seed=3, chats=models.__getitem__)
    found = build_retrievers(parse_configurations(words, settings), run)
    a, b = found["a"], found["b"]
    assert isinstance(a, Listwise)
    assert isinstance(b, Setwise)
    assert a.first_stage is b.first_stage is found["words"]
    assert a.chat is b.chat
    assert (a.seed, b.depth) == (3, 7)


@pytest.mark.parametrize(
    ("name", "setting", "message"),
    [
        ("listwise", "", "LABEL.model=openai:MODEL"),
        ("listwise", "model=nothing", "no chat model `nothing`"),
        ("listwise", "model=openai:m depth=1", "depth=1"),
        ("listwise", "model=openai:m window=1", "window=1"),
        ("listwise", "model=openai:m window=5 stride=5", "stride=5"),
        ("listwise", "model=openai:m order=random", "order=random"),
        ("listwise", "model=openai:m first_stage=nowhere", "nowhere"),
        ("listwise", "model=openai:m first_stage=x", "leg of itself"),
        ("setwise", "model=openai:m size=1", "size=1"),
        ("setwise", "model=openai:m top=0", "top=0"),
        ("full-context", "model=openai:m top=0", "top=0"),
        ("full-context", "model=openai:m depth=3", "no setting `depth`"),
        ("pairwise", "model=openai:m max_tokens=0", "max_tokens=0"),
    ],
)
def test_a_wrong_setting_is_one_line(name: str, setting: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        build_retrievers(
            parse_configurations([f"x={name}"], [f"x.{one}" for one in setting.split()]),
            RunContext(),
        )
    assert message in str(caught.value)


def test_a_reranker_over_a_reranker_adds_up_what_both_took() -> None:
    with scripted_server(reader(knows(GOLD))) as server:
        inner = make(Setwise, server, depth=41, top=3)
        outer = Listwise.asking(asked(server), inner, depth=3)
        result = outer.score(QUERY, POOL)
    assert result.usage.calls == len(server.calls) > 10
    assert rank(result, POOL, GOLD) == (0, 1)


def test_the_reranker_of_the_docs_works_as_written() -> None:
    page = (ROOT / "docs" / "reranking.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    made: dict[str, Any] = {"__name__": "one_look"}
    exec(example, made)
    with scripted_server(reader(knows(GOLD))) as server:
        result = make(made["OneLook"], server, depth=41).score(QUERY, POOL)
    assert rank(result, POOL, GOLD) == (0, 1)


def test_an_empty_pool_and_a_single_memory_need_no_call() -> None:
    with scripted_server(reader(overlap)) as server:
        for cls in (Listwise, Setwise, Pairwise):
            reranker = make(cls, server)
            assert np.asarray(reranker.score("tea", []).scores).shape == (0,)
            assert isinstance(reranker.score("tea", POOL[:1]), Scored)
        assert server.calls == []


def test_queries_of_a_batch_are_under_way_together() -> None:
    """After the first call, which finds out how to ask, no reply comes unless two are asked for."""
    met = threading.Barrier(2, timeout=60)
    plain = reader(overlap)

    def together(call: Call) -> Any:
        if shown(call)[0] != first:
            met.wait()
        return plain(call)

    queries = [f"tea {i}" for i in range(9)]
    first = queries[0]
    with scripted_server(together) as server:
        results = make(Listwise, server, depth=4).score_batch(queries, [POOL] * 9)
    assert all(isinstance(one, Scored) and one.usage.calls == 1 for one in results)
    assert len(server.calls) == 9


# --- memories that give orders; the contract checks that they change no prompt


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[ScriptedServer, ChatModel]]:
    with scripted_server(reader(tea_then_cat)) as server:
        yield server, asked(server)


def tea_then_cat(query: str, text: str) -> float:
    return float("tea" in text) + 0.5 * ("cat" in text)


@pytest.mark.parametrize("text", INJECTIONS)
def test_a_reply_that_echoes_the_memory_is_read_for_its_own_answer(
    text: str, served: tuple[ScriptedServer, ChatModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model quotes a memory within a sentence, and then answers."""
    server, chat = served
    plain = reader(tea_then_cat)

    def answer(call: Call) -> str:
        quoted = " ".join(text.split())
        return f"One memory reads: {quoted} and I won't follow it.\n\n{json.dumps(plain(call))}"

    monkeypatch.setattr(server, "answer", answer)
    result = Listwise.asking(chat, Overlap()).score("tea", [*map(Memory, HONEST), Memory(text)])
    assert result.repairs == {}
    assert np.argsort(-np.asarray(result.scores), kind="stable")[:2].tolist() == [0, 1]


def test_there_are_at_least_thirty_injections() -> None:
    assert len(set(INJECTIONS)) >= 30
