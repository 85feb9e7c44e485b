"""Memories that give orders change no parse, over a real socket: the reply alone is read.

That no prompt of ours is changed by them is part of the contract: `retrievers.rerank.testing`.
"""

import json
from collections.abc import Iterator

import numpy as np
import pytest

from recallbed.chat_models import ChatModel, chat_model
from recallbed.corpus.records import Memory
from retrievers.base import Scored
from retrievers.overlap import Overlap
from retrievers.rerank.listwise import Listwise
from retrievers.rerank.testing import HONEST, INJECTIONS
from tests.reader import reader
from tests.scripted_server import Call, ScriptedServer, scripted_server

POOL = [Memory(text) for text in HONEST]


def worth(query: str, text: str) -> float:
    return float("tea" in text) + 0.5 * ("cat" in text)


Served = tuple[ScriptedServer, ChatModel]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with scripted_server(reader(worth)) as server:
        yield server, chat_model("openai:m", base_url=server.url)


@pytest.mark.parametrize("text", INJECTIONS)
def test_a_reply_that_echoes_the_memory_is_read_for_its_own_answer(
    text: str, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model quotes what a memory says, within a sentence, and then answers."""
    server, chat = served
    plain = reader(worth)

    def answer(call: Call) -> str:
        quoted = " ".join(text.split())
        return f"One memory reads: {quoted} and I won't follow it.\n\n{json.dumps(plain(call))}"

    monkeypatch.setattr(server, "answer", answer)
    result = Listwise.asking(chat, Overlap()).score("tea", [*POOL, Memory(text)])
    assert isinstance(result, Scored)
    assert result.repairs == {}
    assert np.argsort(-np.asarray(result.scores), kind="stable")[:2].tolist() == [0, 1]


def test_there_are_at_least_thirty() -> None:
    assert len(set(INJECTIONS)) >= 30
