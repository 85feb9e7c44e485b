"""Requests of other programs: sent unchanged, answered with tool calls, cached under keys apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from recallbed.chat_models import (
    AssistantMessage,
    Budget,
    BudgetReached,
    Cause,
    DryRun,
    Failure,
    Message,
    Passthrough,
    Reply,
    Request,
    Rung,
    ToolCall,
)
from recallbed.chat_models.local_model import LocalModel
from recallbed.chat_models.openai_model import OpenAIModel
from recallbed.chat_models.structured import Ask
from recallbed.errors import UserError
from tests.kit import checked
from tests.scripted_server import Call, Raw, ScriptedServer, completion, scripted_server
from tests.test_chat_openai import KEY

TOOL = {
    "type": "function",
    "function": {
        "name": "add_memory",
        # In this order: a model writes the arguments as the schema lists them.
        "parameters": {"type": "object", "properties": {"why": {}, "text": {}, "about": {}}},
    },
}
ASKED: list[dict[str, Any]] = [
    {"role": "system", "content": "Keep memories."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "I bake "}, {"type": "text", "text": "!"}],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "add_memory", "arguments": "{}"}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "stored"},
]
CALLED = [
    {
        "id": "call_1",
        "type": "function",
        "function": {"name": "add_memory", "arguments": '{"text": "bakes"}'},
    },
    {"id": "", "type": "function", "function": {"name": "noop", "arguments": None}},
]


class Order(BaseModel):
    order: list[int]


def passing(
    messages: Any = ({"role": "user", "content": "Hello."},), *, max_tokens: int = 64, **body: Any
) -> Request:
    sent = Passthrough.of({"messages": list(messages), **body})
    return Request(sent.messages, passthrough=sent, max_tokens=max_tokens)


def wire(*given: Any, **message: Any) -> Raw:
    return Raw(json.dumps(completion(*given, **message)))


@contextmanager
def serving(
    behaviour: str | Raw | Callable[[Call], str | Raw] = "perfect", **options: Any
) -> Iterator[tuple[ScriptedServer, OpenAIModel]]:
    chosen = {"timeout": 30.0, "retries": 2, "first_wait": 0.01, "api_key": KEY, **options}
    with scripted_server(lambda call: "Noted.", behaviour) as server:
        model = OpenAIModel("scripted", base_url=server.url, **chosen)
        try:
            yield server, model
        finally:
            model.close()


def test_the_key_of_other_requests_is_that_of_earlier_versions() -> None:
    model = OpenAIModel("m", base_url="http://127.0.0.1:1/v1")
    messages = (Message("system", "Be brief."), Message("user", "你好"))
    plain = Request(messages, max_tokens=7, seed=3, sample=2)
    keys = [
        model._cache_key(plain, Ask(messages, None)),
        model._cache_key(replace(plain, schema=Order), Ask(messages, Rung.STRICT)),
    ]
    assert [key.hex() for key in keys] == [
        "264f5146cf6b0accf650ea06fa83d1f97592e9a495acd54d3d892a94433c38be",
        "238f9db07d6d6af9b9a743e811a47272f98441a2cfbb45ed52828c25fe7d8a57",
    ]
    with pytest.MonkeyPatch.context() as patch:  # the weights and versions of one machine
        patch.setattr(LocalModel, "__init__", lambda self: None)
        patch.setattr(LocalModel, "settings", lambda self: {"model": "m"})
        local = LocalModel()._cache_key(plain, Ask(messages, None))  # type: ignore[call-arg]
    assert local.hex() == "654b33bd7927018adf35e13ceb87cece7fb4f45e72d4c045bb177ba4d0a69619"
    passed = passing()
    assert passed.messages == (Message("user", "Hello."),)
    as_text = Request(passed.messages, max_tokens=64)
    ask = Ask(passed.messages, None)
    assert model._cache_key(passed, ask) != model._cache_key(as_text, ask)


def test_a_request_is_sent_as_it_is_and_its_tool_calls_come_back() -> None:
    behaviour = wire(None, "tool_calls", tool_calls=CALLED)
    kept: Any = {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False}
    with serving(behaviour, extra_body={"think": False}) as (server, model):
        reply = checked(
            Reply, model.complete(passing(ASKED, **kept, stop=None, top_p=0.1, model="theirs"))
        )
    assert server.calls[0].body == {
        "model": "scripted",
        "messages": ASKED,
        **kept,
        "max_tokens": 64,
        "temperature": 0.0,
        "think": False,
    }
    sent = server.calls[0].body["tools"][0]["function"]["parameters"]["properties"]
    assert list(sent) == ["why", "text", "about"]
    assert reply.message is not None
    first, second = reply.message.tool_calls
    assert first == ToolCall("call_1", "add_memory", '{"text": "bakes"}')
    assert (second.name, second.arguments) == ("noop", "{}")
    assert second.id.startswith("call_")  # the server gave none
    assert (reply.text, reply.message.content, reply.parsed, reply.rung) == ("", None, None, None)
    assert reply.usage.calls == 1


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        ({"type": "json_object"}, "json_object"),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}, "json_schema"),
    ],
)
def test_a_reply_format_is_sent_as_it_is(form: Any, mode: str) -> None:
    with serving() as (server, model):
        reply = checked(Reply, model.complete(passing(response_format=form)))
    assert reply.message == AssistantMessage("Noted.")
    assert (server.calls[0].wants, server.calls[0].body["response_format"]) == (mode, form)


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        (wire("Fine.", "stop", tool_calls=CALLED), "Fine."),
        (wire(None, "stop", tool_calls=CALLED), None),  # a tool that the request forced
        (wire("", "TOOL_CALLS", tool_calls=CALLED), ""),
        (wire("<think>\nHm.\n</think>\n\n{}", tool_calls=None), "{}"),
        (wire(" as it is\n"), " as it is\n"),
        (wire("NUL \x00 and \ud800", tool_calls=[]), "NUL \ufffd and \ufffd"),
    ],
)
def test_complete_replies(raw: Raw, content: str | None) -> None:
    with serving(raw) as (_, model):
        reply = checked(Reply, model.complete(passing()))
    assert reply.message is not None
    assert reply.message.content == content
    assert reply.text == (content or "")
    assert sum(reply.repairs.values()) == (content or "").count("\ufffd")


BROKEN = {"id": "a", "type": "function", "function": {"arguments": "{}"}}


@pytest.mark.parametrize(
    ("behaviour", "cause", "calls"),
    [
        (wire(None), Cause.EMPTY, 1),
        (wire("  ", "stop", tool_calls=[]), Cause.EMPTY, 1),
        (wire("<think>\nHm.\n</think>\n"), Cause.EMPTY, 1),
        (wire(None, "length", tool_calls=CALLED), Cause.CUT, 1),
        (wire(None, "content_filter", tool_calls=CALLED), Cause.REFUSED, 1),
        (wire(None, refusal="No."), Cause.REFUSED, 1),
        (wire("Fine.", "tool_calls"), Cause.SERVER_ERROR, 1),  # and no tool is called
        (wire(None, "tool_calls", tool_calls=[BROKEN]), Cause.SERVER_ERROR, 3),
        (wire(None, "tool_calls", tool_calls="x"), Cause.SERVER_ERROR, 3),
        ("reasoning only", Cause.EMPTY, 1),
        ("context", Cause.CONTEXT, 1),
        ("status 400", Cause.BAD_REQUEST, 1),
        ("status 503", Cause.SERVER_ERROR, 3),
        ("status 429", Cause.RATE_LIMITED, 3),
        ("not chat", Cause.SERVER_ERROR, 3),
        ("cut", Cause.CONNECTION, 3),
    ],
)
def test_failures_are_those_of_other_requests(
    behaviour: str | Raw, cause: Cause, calls: int
) -> None:
    with serving(behaviour) as (server, model):
        failure = checked(Failure, model.complete(passing(tools=[TOOL])))
    assert (failure.cause, len(server.calls)) == (cause, calls)
    assert failure.detail


def test_a_request_of_ours_is_not_answered_by_a_tool_call() -> None:
    with serving(wire("Fine.", "tool_calls", tool_calls=CALLED)) as (_, model):
        failure = checked(Failure, model.complete(Request((Message("user", "Hello."),))))
    assert failure.cause is Cause.SERVER_ERROR


def test_retries_and_the_newer_name_of_the_limit() -> None:
    def choose(call: Call) -> str | Raw:
        if call.times == 1 and "max_tokens" in call.body:
            return "wants the newer name"
        return "500 then fine"

    with serving(choose) as (server, model):
        assert isinstance(model.complete(passing(tools=[TOOL])), Reply)
    assert [call.body["tools"] for call in server.calls] == [[TOOL]] * 3


def test_replies_are_cached_and_equal_requests_in_progress_are_merged(tmp_path: Path) -> None:
    cache = tmp_path / "replies.sqlite"
    raw = wire(f"My key is {KEY}", "tool_calls", tool_calls=CALLED)
    requests = [passing(ASKED, tools=[TOOL])] * 3 + [passing(ASKED), passing()]
    with serving(raw, cache=cache) as (server, model):
        before = model.complete_all(requests)
        assert len(server.calls) == 3
        assert model.recall(passing(tool_choice="none")) is None
    with serving("status 500", cache=cache) as (server, _):
        again = OpenAIModel("scripted", base_url=model.address, cache=cache)
        after = again.complete_all(requests)
        dry = DryRun(again)
        assert dry.complete(requests[0]) == after[0]
        missing = dry.complete(passing(ASKED, tools=[TOOL, TOOL]))
        again.close()
    for one, other in zip(before, after, strict=True):
        assert isinstance(one, Reply)
        assert isinstance(other, Reply)
        assert other.from_cache
        assert (one.message, one.text, one.usage) == (other.message, other.text, other.usage)
        assert one.text == "My key is ***"
    assert again.sent == 0
    assert checked(Failure, missing).cause is Cause.NOT_SENT
    assert (dry.plan().calls, dry.plan().stored) == (1, 1)
    assert dry.plan().tokens_in > len(json.dumps([TOOL, TOOL])) / 4
    assert KEY.encode() not in cache.read_bytes()


def test_the_budget_counts_the_tools() -> None:
    size = len(json.dumps([TOOL] * 50)) // 4
    with serving(budget=Budget(max_tokens=size)) as (server, model):
        assert isinstance(model.complete(passing()), Reply)
        with pytest.raises(BudgetReached):
            model.complete(passing(tools=[TOOL] * 50))
    assert len(server.calls) == 1


def test_the_longest_reply_fits_into_a_known_context() -> None:
    with serving(context=2000) as (server, model):
        model.complete(passing(max_tokens=16384))
        model.complete(passing(max_tokens=100))
        long = [{"role": "user", "content": "word " * 2000}]  # fits by the model's own tokens
        model.complete(passing(long, max_tokens=100))
    limits = [call.body["max_tokens"] for call in server.calls]
    assert 1900 < limits[0] < 2000
    assert limits[1:] == [100, 100]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "`messages`"),
        ({"messages": []}, "`messages`"),
        ({"messages": ["hi"]}, r"`messages\[0\]`"),
        ({"messages": [{"role": "user", "content": 3}]}, r"`messages\[0\]`"),
        ({"messages": [{"role": "user"}], "tools": "x"}, "`tools`"),
        ({"messages": [{"role": "user"}], "response_format": "json"}, "`response_format`"),
        ({"messages": [{"role": "user", "x": float("nan")}]}, "not JSON"),
    ],
)
def test_invalid_bodies_are_refused(body: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Passthrough.of(body)


def test_what_is_sent_of_a_body() -> None:
    sent = Passthrough.of({"messages": [{"role": "developer", "content": "a \ud800 b"}], "n": 1})
    assert sent.fields == {"messages": [{"role": "developer", "content": "a \ufffd b"}]}
    assert sent.messages == (Message("system", "a \ufffd b"),)
    with pytest.raises(UserError, match="not both"):
        Request(sent.messages, Order, passthrough=sent)
