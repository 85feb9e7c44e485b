"""The client against a real socket: each behaviour ends in the right reply or typed failure."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from recallbed.chat_models import (
    Budget,
    BudgetReached,
    Cause,
    Failure,
    Message,
    Reply,
    ReplyCache,
    Request,
    Rung,
    Usage,
)
from recallbed.chat_models.openai_model import OpenAIModel
from recallbed.errors import UserError
from tests.kit import checked
from tests.scripted_server import Call, Raw, ScriptedServer, scripted_server

KEY = "sk-very-secret-0123456789/+"


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")
    order: list[int]


RIGHT, WRONG = [3, 1, 2], [2, 1, 3]


def ask(text: str = "Rank these.", schema: type[BaseModel] | None = Order) -> Request:
    return Request((Message("user", text),), schema)


@contextmanager
def serving(
    behaviour: str | Raw | Callable[[Call], str | Raw] = "perfect", **settings: Any
) -> Iterator[ScriptedServer]:
    with scripted_server(lambda call: {"order": RIGHT}, behaviour, **settings) as server:
        yield server


@contextmanager
def client(server: ScriptedServer, name: str = "scripted", **options: Any) -> Iterator[OpenAIModel]:
    chosen = {"timeout": 30.0, "retries": 2, "first_wait": 0.01, "api_key": KEY, **options}
    model = OpenAIModel(name, base_url=server.url, **chosen)
    try:
        yield model
    finally:
        model.close()


@pytest.mark.parametrize(
    ("behaviour", "order", "rung", "calls"),
    [
        ("perfect", RIGHT, Rung.STRICT, 1),
        ("reversed", WRONG, Rung.STRICT, 1),
        ("duplicated", [3, *RIGHT], Rung.STRICT, 1),
        ("out of range", [0, -2, 10**6, *RIGHT], Rung.STRICT, 1),
        ("prose around", RIGHT, Rung.STRICT, 1),
        ("echo", RIGHT, Rung.STRICT, 1),
        ("reasoning first", RIGHT, Rung.STRICT, 1),
        ("schema ignored", RIGHT, Rung.JSON_MODE, 2),
        ("repaired when asked again", RIGHT, Rung.STRICT, 2),
        ("429 then fine", RIGHT, Rung.STRICT, 2),
        ("500 then fine", RIGHT, Rung.STRICT, 2),
        ("cut once", RIGHT, Rung.STRICT, 2),
    ],
)
def test_replies(behaviour: str, order: list[int], rung: Rung, calls: int) -> None:
    with serving(behaviour) as server, client(server) as model:
        reply = checked(Reply, model.complete(ask()))
        assert (reply.parsed, reply.rung) == (Order(order=order), rung)
        assert len(server.calls) == model.sent == calls
        assert reply.usage.calls == (2 if behaviour.startswith("repaired") else 1)
        assert reply.usage.tokens_in == 10 * reply.usage.calls


@pytest.mark.parametrize(
    ("behaviour", "cause", "calls"),
    [
        ("truncated", Cause.CUT, 1),
        ("empty", Cause.EMPTY, 1),
        ("refusal", Cause.REFUSED, 1),
        ("context", Cause.CONTEXT, 1),
        ("wrong schema", Cause.SCHEMA, 3),
        ("no json", Cause.NO_JSON, 5),  # two rungs left, then two re-asks at the last
        ("echo only", Cause.NO_JSON, 5),
        ("reasoning only", Cause.NO_JSON, 5),
        ("status 400", Cause.BAD_REQUEST, 3),  # once at each rung
        ("status 408", Cause.TIMEOUT, 3),
        ("status 409", Cause.SERVER_ERROR, 3),
        ("status 429", Cause.RATE_LIMITED, 3),
        ("status 503", Cause.SERVER_ERROR, 3),
        ("not chat", Cause.SERVER_ERROR, 3),
        ("cut", Cause.CONNECTION, 3),
    ],
)
def test_failures_are_typed(behaviour: str, cause: Cause, calls: int) -> None:
    with serving(behaviour) as server, client(server) as model:
        failure = checked(Failure, model.complete(ask()))
        assert failure.cause is cause
        assert failure.detail
        assert len(server.calls) == calls


def test_a_hanging_server_is_a_time_out() -> None:
    with serving("hang") as server, client(server, timeout=0.3, retries=1) as model:
        failure = checked(Failure, model.complete(ask()))
        assert failure.cause is Cause.TIMEOUT
        assert len(server.calls) == 2
        assert model.budget.spent.unreported == 2  # the server may have worked for them


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("status 401", "refuses the API key"),
        ("status 403", "refuses the API key"),
        ("status 404", "no model `scripted`"),
        ("status 402", "has no credit left"),
        ("quota", "has no credit left"),
    ],
)
def test_what_no_further_call_would_mend_ends_the_run_in_one_line(
    behaviour: str, words: str
) -> None:
    with serving(behaviour) as server, client(server, max_in_flight=1) as model:
        with pytest.raises(UserError, match=words) as caught:
            model.complete_all([ask(f"Rank {i}.", None) for i in range(5)])
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, BudgetReached) == ("credit" in words)
        probed = behaviour in ("status 403", "status 404")  # is it the prompt, or all of them?
        assert len(server.calls) == 1 + probed


def test_no_server_at_all_is_said_at_once_and_charged_nothing() -> None:
    with serving() as server:
        pass
    budget = Budget(max_tokens=10_000)
    unanswered = pytest.raises(UserError, match="no server answers at")
    with client(server, retries=1, budget=budget) as model, unanswered:
        model.complete_all([ask(f"Rank {i}.") for i in range(3)])
    assert (budget.spent, budget._reserved) == (Usage(), 0)


def test_a_server_that_goes_away_later_fails_its_requests() -> None:
    with serving() as server:
        model = OpenAIModel("m", base_url=server.url, retries=0)
        assert isinstance(model.complete(ask()), Reply)
    assert checked(Failure, model.complete(ask("Another."))).cause is Cause.CONNECTION
    model.close()


@pytest.mark.parametrize(
    ("refused", "rung"),
    [(("json_schema",), Rung.JSON_MODE), (("json_schema", "json_object"), Rung.PLAIN)],
)
def test_the_rung_that_works_is_remembered(
    refused: tuple[str, ...], rung: Rung, tmp_path: Path
) -> None:
    cache = tmp_path / "replies.sqlite"
    requests = [ask(f"Rank {i}.") for i in range(6)]
    with serving(refuses=refused) as server:
        with client(server, cache=cache) as model:
            replies = model.complete_all(requests)
        assert [r.rung for r in replies if isinstance(r, Reply)] == [rung] * 6
        assert len(server.calls) == len(refused) + 6
        with client(server, cache=cache) as model:  # another process, by what it knows
            assert isinstance(model.complete(ask("One more.")), Reply)
            assert model.sent == 1


def test_what_is_sent_at_each_rung() -> None:
    with serving(refuses=("json_schema", "json_object")) as server, client(server) as model:
        model.complete(ask())
        strict, mode, plain = (call.body for call in server.calls)
    schema = strict["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["additionalProperties"] is False
    assert "JSON schema" not in strict["messages"][-1]["content"]
    assert mode["response_format"] == {"type": "json_object"}
    assert "response_format" not in plain
    assert "JSON schema" in mode["messages"][-1]["content"]
    assert (plain["max_tokens"], plain["temperature"], plain["model"]) == (1024, 0.0, "scripted")
    assert "stream" not in plain


def test_the_newer_name_of_the_output_limit_is_learned() -> None:
    def choose(call: Call) -> str:
        return "perfect" if "max_completion_tokens" in call.body else "wants the newer name"

    with serving(choose) as server, client(server, max_in_flight=4) as model:
        replies = model.complete_all([ask(f"Say {i}.", None) for i in range(8)])
        assert all(isinstance(reply, Reply) for reply in replies)
        assert isinstance(model.complete(ask("More.", None)), Reply)
        assert "max_tokens" not in server.calls[-1].body


def test_a_model_that_takes_no_temperature() -> None:
    with serving() as server, client(server, extra_body={"think": False}) as model:
        model.complete(Request((Message("user", "Hi."),), temperature=None, seed=5))
        body = server.calls[0].body
    assert "temperature" not in body
    assert (body["seed"], body["think"]) == (5, False)


def test_retry_after_is_waited_for_and_counted_as_one_reply() -> None:
    arrivals = []

    def choose(call: Call) -> str:
        arrivals.append(time.monotonic())
        return "429 then fine"

    with serving(choose, retry_after="1") as server, client(server) as model:
        reply = checked(Reply, model.complete(ask()))
        assert reply.usage.calls == 1
    assert arrivals[1] - arrivals[0] >= 1.0


def test_rate_limits_are_failures_beside_the_rest() -> None:
    limited = {"Rank 2.", "Rank 5.", "Rank 8."}

    def choose(call: Call) -> str:
        return "status 429" if call.prompt in limited else "perfect"

    with serving(choose) as server, client(server) as model:
        answers = model.complete_all([ask(f"Rank {i}.") for i in range(10)])
    failed = [i for i, answer in enumerate(answers) if isinstance(answer, Failure)]
    assert failed == [2, 5, 8]
    assert all(answers[i].cause is Cause.RATE_LIMITED for i in failed)  # type: ignore[union-attr]
    right = [a for a in answers if isinstance(a, Reply) and a.parsed == Order(order=RIGHT)]
    assert len(right) == 7


def test_answers_come_in_order_and_calls_overlap_within_the_bound() -> None:
    gate = threading.Barrier(3)

    def choose(call: Call) -> str:
        gate.wait(timeout=300)  # breaks, and so fails, unless three calls are here together
        return "perfect"

    def answer(call: Call) -> str:
        return f"echo of {call.prompt}"

    with scripted_server(answer, choose) as server, client(server, max_in_flight=3) as model:
        replies = model.complete_all([ask(f"number {i}", None) for i in range(12)])
        assert [r.text for r in replies if isinstance(r, Reply)] == [
            f"echo of number {i}" for i in range(12)
        ]
        assert server.most_at_once == 3


def test_equal_requests_in_flight_are_sent_once() -> None:
    with serving() as server, client(server) as model:
        replies = model.complete_all([ask("Same.", None)] * 5 + [ask("Other.", None)])
        assert len(server.calls) == 2
        assert [r.from_cache for r in replies if isinstance(r, Reply)].count(False) == 2
        assert {r.usage for r in replies[:5] if isinstance(r, Reply)} == {replies[0].usage}


def test_threads_share_one_client() -> None:
    with serving() as server, client(server) as model:
        with ThreadPoolExecutor(6) as pool:
            found = list(pool.map(lambda i: model.complete(ask(f"Rank {i}.")), range(6)))
        assert len(found) == 6
        assert all(isinstance(reply, Reply) for reply in found)


def test_missing_usage_is_unknown_and_estimated_apart() -> None:
    with serving("usage missing") as server, client(server) as model:
        reply = checked(Reply, model.complete(ask()))
        assert (reply.usage.tokens_in, reply.usage.tokens_out) == (None, None)
        assert reply.usage.unreported == 1
        assert reply.usage.estimate_in > 0
        assert reply.usage.estimate_out > 0


def test_half_a_surrogate_pair_is_sent_as_a_replacement_character() -> None:
    with serving() as server, client(server) as model:
        assert isinstance(model.complete(ask("bad \ud83d half, good \U0001f600")), Reply)
        assert server.calls[0].prompt == "bad \ufffd half, good \U0001f600"


def test_a_pickled_client_goes_on() -> None:
    with serving(key=KEY) as server, client(server) as model:
        assert isinstance(model.complete(ask()), Reply)
        copy = pickle.loads(pickle.dumps(model))
        assert isinstance(copy.complete(ask("Again.")), Reply)
        copy.close()
    with pytest.raises(UserError, match="workers"):
        pickle.dumps(Budget(max_tokens=5))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_client_goes_on() -> None:
    with serving() as server, client(server) as model:
        assert isinstance(model.complete(ask()), Reply)
        child = os.fork()
        if not child:
            os._exit(0 if isinstance(model.complete(ask("Again.")), Reply) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert isinstance(model.complete(ask("And again.")), Reply)


def test_a_caller_inside_a_running_loop_is_served() -> None:
    async def notebook() -> Reply | Failure:
        return model.complete(ask())

    with serving() as server, client(server) as model:
        assert isinstance(asyncio.run(notebook()), Reply)


def test_the_key_is_shown_to_the_server_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not in logs, reprs, settings, details, errors or the cache, even where a server echoes it."""
    caplog.set_level(logging.DEBUG)

    def choose(call: Call) -> str:
        assert call.headers["authorization"] == f"Bearer {KEY}"
        return {"a": "status 400", "b": "status 500", "c": "status 401"}.get(call.prompt, "perfect")

    def answer(call: Call) -> str:
        return f"you sent {call.headers['authorization']}"

    cache = tmp_path / "replies.sqlite"
    shown = []
    with scripted_server(answer, choose) as server, client(server, cache=cache) as model:
        answers = model.complete_all([ask(name, None) for name in ("x", "a", "b")])
        assert isinstance(answers[0], Reply)
        assert answers[0].text == "you sent Bearer ***"
        assert "***" in str(answers[1])
        assert "***" in str(answers[2])
        with pytest.raises(UserError, match=r"\*\*\*") as caught:
            model.complete(ask("c", None))
        shown += [repr(answers), str(caught.value), repr(caught.value), repr(model), str(model)]
        shown += [repr(model.settings()), repr(model._key), caplog.text, *capfd.readouterr()]
        shown += [repr(record.__dict__) for record in caplog.records]
    for file in tmp_path.iterdir():
        shown.append(file.read_bytes().decode("latin-1"))
    for text in shown:
        assert KEY not in text
        assert "sk-very-secret" not in text
    assert len(caplog.records) > 0


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "clé"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(UserError, match="API key") as caught:
        OpenAIModel("m", base_url="http://127.0.0.1:1/v1", api_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8000", "not an http address"),
        ("http://user:hunter2@host/v1", "holds a user name"),
        ("http://host/v1?key=hunter2", "holds a user name"),
        ("http://host:port/v1", "not an http address"),
    ],
)
def test_addresses_that_are_refused(url: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        OpenAIModel("m", base_url=url)
    assert "hunter2" not in str(caught.value)


def test_address_and_key_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RECALLBED_BASE_URL", "OPENAI_BASE_URL", "RECALLBED_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="requires an API key"):
        OpenAIModel("m")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1/")
    assert OpenAIModel("m").address == "http://127.0.0.1:1/v1"
    monkeypatch.setenv("RECALLBED_BASE_URL", "http://127.0.0.1:2/v1")
    assert OpenAIModel("m").address == "http://127.0.0.1:2/v1"
    assert OpenAIModel("m", base_url="http://127.0.0.1:3/v1").address == "http://127.0.0.1:3/v1"
    with pytest.raises(UserError, match="MY_KEY"):
        OpenAIModel("m", key_env="MY_KEY")
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(key=KEY) as server:
        model = OpenAIModel("m", base_url=server.url, key_env="MY_KEY")
        assert isinstance(model.complete(ask()), Reply)
        model.close()


@pytest.mark.parametrize(
    "options",
    [
        {"max_in_flight": 0},
        {"timeout": 0.0},
        {"timeout": float("nan")},
        {"retries": -1},
        {"requests_per_minute": 0.0},
    ],
)
def test_options_that_make_no_sense_are_refused_before_any_call(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        OpenAIModel("m", base_url="http://127.0.0.1:1/v1", **options)


def test_nothing_of_a_request_is_stored_but_its_hash(tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    with serving() as server, client(server, cache=cache) as model:
        model.complete(ask("my own private memory"))
        assert len(cache) == 1
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"private memory" not in stored
