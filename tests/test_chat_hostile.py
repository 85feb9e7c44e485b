"""Whatever one reply holds ends in a reply or in that call's failure, never in a traceback."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import ConfigDict

from recallbed.chat_models import (
    Budget,
    BudgetReached,
    Cause,
    Failure,
    Reply,
    ReplyCache,
    Request,
    Rung,
    Usage,
)
from recallbed.chat_models.http_client import MAX_REPLY_BYTES
from recallbed.chat_models.openai_model import OpenAIModel
from recallbed.errors import UserError
from tests.kit import checked
from tests.scripted_server import Call, Raw, completion
from tests.test_chat_openai import KEY, RIGHT, WRONG, Order, ask, client, serving

ANSWER = json.dumps({"order": RIGHT})


def wire(reply: Any) -> Raw:
    return Raw(json.dumps(reply))


def spent(tokens_in: int, tokens_out: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, **more}


def failed(behaviour: Raw, schema: Any = Order, **options: Any) -> Failure:
    """The failure of one call."""
    with serving(behaviour) as server, client(server, **options) as model:
        return checked(Failure, model.complete(ask(schema=schema)))


# --- what is billed is counted


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (spent(100, 20, total_tokens=1320), (100, 1220)),  # reasoning only in the total
        (spent(100, 20, total_tokens=120), (100, 20)),
        (spent(100, 20), (100, 20)),
        (spent(100, 20, total_tokens=50), (100, 20)),
        ({"prompt_tokens": 100, "total_tokens": 1320}, (100, 1220)),
        (spent(100, None, total_tokens=130), (100, 30)),
        (spent(100, -5, total_tokens=130), (100, 30)),
        (spent(100, 20, total_tokens="1320"), (100, 20)),
    ],
)
def test_reported_tokens_hold_what_only_the_total_tells(
    usage: dict[str, Any], tokens: tuple[int, int]
) -> None:
    with serving(wire(completion(ANSWER, usage=usage))) as server, client(server) as model:
        reply = checked(Reply, model.complete(ask()))
        assert (reply.usage.tokens_in, reply.usage.tokens_out) == tokens
        assert (model.budget.spent.reported_in, model.budget.spent.reported_out) == tokens


@pytest.mark.parametrize(
    "usage",
    [
        spent(-3, 5),
        spent(True, 5),
        spent("10", "5"),
        spent(10.5, 5.5),
        spent(10**400, 10**400),
        spent(10, 10**400, total_tokens=10**401),
        spent(0, 0),
        [10, 5],
        "many",
        None,
    ],
)
def test_counts_that_are_none_are_unreported(usage: Any) -> None:
    with serving(wire(completion(ANSWER, usage=usage))) as server, client(server) as model:
        reply = checked(Reply, model.complete(ask()))
        assert (reply.usage.unreported, reply.usage.tokens_in) == (1, None)
        assert reply.usage.estimate_in > 0


BILLED = spent(100, 20, total_tokens=1320)


@pytest.mark.parametrize(
    "reply",
    [
        {"usage": BILLED},
        {"choices": [], "usage": BILLED},
        {"choices": None, "usage": BILLED},
        {"choices": [{"message": None, "finish_reason": "stop"}], "usage": BILLED},
        completion(None, usage=BILLED),
        completion(ANSWER, "error", usage=BILLED),
        completion(ANSWER, "content_filter", usage=BILLED),
        completion(ANSWER, "length", usage=BILLED),
        completion(ANSWER, None, usage=BILLED),
        completion(None, refusal="no", usage=BILLED),
    ],
)
def test_a_reply_of_any_shape_is_counted_as_it_was_billed(reply: Any) -> None:
    with serving(wire(reply)) as server, client(server, retries=1) as model:
        failure = checked(Failure, model.complete(ask()))
        calls = len(server.calls)
        assert model.budget.spent == failure.usage == Usage(calls, 100 * calls, 1220 * calls)


# --- how a reply ends


@pytest.mark.parametrize("finish", ["stop", "STOP", "eos", "eos_token", "end_turn", "COMPLETE"])
def test_a_normal_stop_by_any_of_its_names_is_a_whole_reply(finish: str, tmp_path: Path) -> None:
    cache = ReplyCache(tmp_path / "replies.sqlite")
    with serving(wire(completion(ANSWER, finish))) as server, client(server, cache=cache) as model:
        assert isinstance(model.complete(ask()), Reply)
        assert len(cache) == 1


@pytest.mark.parametrize(
    ("finish", "cause", "calls"),
    [
        ("error", Cause.SERVER_ERROR, 3),  # may pass: asked again
        ("content_filter", Cause.REFUSED, 1),
        (None, Cause.SERVER_ERROR, 1),
        ("", Cause.SERVER_ERROR, 1),
        ("tool_calls", Cause.SERVER_ERROR, 1),
        (["stop"], Cause.SERVER_ERROR, 1),
        (7, Cause.SERVER_ERROR, 1),
        ("length", Cause.CUT, 1),
        ("model_length", Cause.CUT, 1),
    ],
)
@pytest.mark.parametrize("text", ["half an ans", ANSWER])
def test_a_reply_that_did_not_end_normally_is_a_failure_that_leaves_nothing_behind(
    finish: Any, cause: Cause, calls: int, text: str, tmp_path: Path
) -> None:
    """Not stored, and the next reply is asked for in the same format."""
    cache = ReplyCache(tmp_path / "replies.sqlite")

    def choose(call: Call) -> str | Raw:
        return "perfect" if call.prompt == "fine" else wire(completion(text, finish))

    with serving(choose) as server, client(server, cache=cache) as model:
        failure = checked(Failure, model.complete(ask()))
        assert failure.cause is cause
        assert "finish_reason" in failure.detail
        assert (len(server.calls), len(cache)) == (calls, 0)
        reply = checked(Reply, model.complete(ask("fine")))
        assert (reply.rung, server.calls[-1].wants) == (Rung.STRICT, "json_schema")


def test_a_reply_without_a_finish_reason_is_no_whole_reply() -> None:
    reply = completion(ANSWER)
    del reply["choices"][0]["finish_reason"]
    failure = failed(wire(reply))
    assert failure.cause is Cause.SERVER_ERROR
    assert "finish_reason missing" in failure.detail


def test_the_error_beside_a_reply_that_was_broken_off_is_the_reason() -> None:
    reply = completion("half", "error")
    reply["choices"][0]["error"] = {"code": 502, "message": "the provider went away"}
    assert "the provider went away" in failed(wire(reply), retries=0).detail


# --- replies that servers of this kind never send


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"7",
        b'"text"',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"choices": {"0": {"message": {"content": "x"}}}}',
        b'{"choices": "text"}',
        b'{"choices": null}',
        b'{"choices": [null]}',
        b'{"choices": [[]]}',
        b'{"choices": [{"message": "text", "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": {"text": "x"}}, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}',
        b'{"choices": 1' + b"0" * 5000 + b"}",
        b"\xff\xfe\x00",
        b"<html>Welcome</html>",
        b'{"error": {"message": ["not", "a", "text"]}}',
        b'{"error": {"error": ' * 200 + b"7" + b"}}" * 200,
    ],
)
def test_no_body_breaks_the_call(body: bytes) -> None:
    failure = failed(Raw(body), retries=0)
    assert failure.cause is Cause.SERVER_ERROR
    assert 0 < len(failure.detail) <= 300
    assert failure.detail.isprintable()


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Encoding": "br"},
        {"Content-Encoding": "zstd"},
        {"Content-Encoding": "gzip, gzip, gzip"},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "deflate"},
        {"Content-Encoding": "no-such-thing"},
        {"Content-Type": "application/json; charset=no-such-thing"},
        {"Content-Type": "text/html; charset=rot13"},
    ],
)
@pytest.mark.parametrize("status", [200, 500])
def test_no_header_breaks_the_call(headers: dict[str, str], status: int) -> None:
    failure = failed(Raw(b"\x1f\x8b broken", status, headers), retries=0)
    assert failure.cause in (Cause.SERVER_ERROR, Cause.CONNECTION)


# --- half characters


@pytest.mark.parametrize(
    "text",
    [
        '{"order": [3, 1, 2], "why": "\ud83d"}',  # in the text itself
        '{"order": [3, 1, 2], "why": "\\ud83d"}',  # as an escape inside the answer's JSON
        '{"order": [3, 1, 2], "why": "\\udE00\\ud83d\\u0041"}',
        '{"order": [3, 1, 2], "why": "\\u0000"}',
        '{"order": [3, 1, 2], "\\ud83d": 1}',
        'So \ud83d:\n{"order": [3, 1, 2]}',
    ],
)
def test_half_a_surrogate_pair_in_a_reply_is_replaced_and_counted(
    text: str, tmp_path: Path
) -> None:
    class Ranking(Order):
        model_config = ConfigDict(extra="allow")

    cache = ReplyCache(tmp_path / "replies.sqlite")
    with serving(wire(completion(text))) as server, client(server, cache=cache) as model:
        sent, kept = (checked(Reply, model.complete(ask(schema=Ranking))) for _ in range(2))
    for reply in (sent, kept):
        ranking = checked(Ranking, reply.parsed)
        assert ranking.order == RIGHT
        assert sum(reply.repairs.values()) >= 1
        assert "\ufffd" in ranking.model_dump_json() + reply.text
        (ranking.model_dump_json() + reply.text).encode()
    assert (kept.from_cache, kept.repairs) == (True, sent.repairs)


def test_a_whole_surrogate_pair_stays() -> None:
    text = '{"order": [3, 1, 2], "why": "\\ud83d\\ude00 \\\\ud83d"}'

    class Reasoned(Order):
        why: str

    with serving(wire(completion(text))) as server, client(server) as model:
        reply = checked(Reply, model.complete(ask(schema=Reasoned)))
        assert checked(Reasoned, reply.parsed).why == "\U0001f600 \\ud83d"
        assert reply.repairs == {}


@pytest.mark.parametrize("schema", [None, Order])
def test_half_a_surrogate_pair_in_an_unusable_reply(schema: Any) -> None:
    reply = completion("\ud83d" if schema else "<think>\ud83d")
    failure = failed(wire(reply), schema)
    assert failure.cause in (Cause.NO_JSON, Cause.EMPTY)
    (failure.text + failure.detail).encode()


# --- bounds


def test_no_compression_is_asked_for() -> None:
    with serving() as server, client(server) as model:
        model.complete(ask())
        assert server.calls[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_reply_is_read_all_the_same(encoding: str) -> None:
    body = json.dumps(completion(ANSWER)).encode()
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
    raw = Raw(packed, headers={"Content-Encoding": encoding})
    with serving(raw) as server, client(server) as model:
        assert isinstance(model.complete(ask()), Reply)


@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_reply_is_read_up_to_a_bound_and_the_connection_closed_there(status: int) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 2**30:
            sent += 2**16
            yield b" " * 2**16

    with serving(lambda call: Raw(endless(), status)) as server, client(server) as model:
        failure = checked(Failure, model.complete(ask()))
        assert failure.cause is Cause.TOO_LARGE
        assert len(server.calls) == 1
        assert model.budget.spent.unreported == 1
    assert sent < MAX_REPLY_BYTES + 2**26  # what the sockets' buffers hold


@pytest.mark.parametrize("status", [200, 500])
def test_a_small_reply_that_unpacks_to_a_large_one_is_not_unpacked(status: int) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(32)) + packer.flush()
    assert len(bomb) < 2**16
    assert failed(Raw(bomb, status, {"Content-Encoding": "gzip"})).cause is Cause.TOO_LARGE


# --- redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_prompt_follows_a_redirect(status: int) -> None:
    with serving() as other:
        headers = {"Location": f"{other.url}/chat/completions?echo={KEY}"}
        with (
            serving(Raw(b"", status, headers)) as server,
            client(server) as model,
            pytest.raises(UserError) as caught,
        ):
            model.complete(ask())
        assert other.calls == []
        told = str(caught.value)
        assert server.url in told
        assert f"redirects to {other.url}/chat/completions (HTTP {status})" in told
        assert KEY not in told


@pytest.mark.parametrize("place", ["", "http://[", "//", "\x7f", "http://host:99999999/"])
def test_a_redirect_to_nowhere_is_one_line(place: str) -> None:
    with pytest.raises(UserError, match="redirects to") as caught:
        failed(Raw(b"", 302, {"Location": place}), retries=0)
    assert "\n" not in str(caught.value)


# --- what servers of other makers send


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": ANSWER}],
        [{"type": "text", "text": ANSWER[:7]}, {"type": "text", "text": ANSWER[7:]}],
        [
            {"type": "thinking", "thinking": [{"type": "text", "text": json.dumps(WRONG)}]},
            {"type": "text", "text": ANSWER},
        ],
        [ANSWER],
        [None, 7, {"type": "image"}, {"type": "text", "text": None}, {"text": ANSWER}],
    ],
)
def test_content_as_a_list_of_parts(content: Any) -> None:
    with serving(wire(completion(content, usage=BILLED))) as server, client(server) as model:
        reply = checked(Reply, model.complete(ask()))
        assert reply.parsed == Order(order=RIGHT)


def test_a_refusal_among_the_parts_and_parts_without_text() -> None:
    for content, cause in (
        ([{"type": "refusal", "refusal": "I would rather not."}], Cause.REFUSED),
        ([{"type": "image"}], Cause.EMPTY),
        ([], Cause.EMPTY),
        (None, Cause.EMPTY),
    ):
        assert failed(wire(completion(content, usage=BILLED))).cause is cause  # type: ignore[arg-type]


def broken_schema(call: Call) -> str | Raw:
    """Refuses what the model wrote in a strict schema, as Groq does."""
    if call.wants != "json_schema" or call.prompt == "fine":
        return "perfect"
    told = {"message": "Failed to generate JSON.", "code": "json_validate_failed"}
    return Raw(json.dumps({"error": {**told, "failed_generation": "{"}}), 400)


def test_a_schema_that_the_server_saw_broken_is_asked_for_one_rung_lower() -> None:
    with serving(broken_schema) as server, client(server) as model:
        reply = checked(Reply, model.complete(ask()))
        assert (reply.rung, reply.parsed) == (Rung.JSON_MODE, Order(order=RIGHT))
        assert [call.wants for call in server.calls] == ["json_schema", "json_object"]


def test_once_a_rung_is_known_one_broken_schema_leaves_it_for_that_request_alone() -> None:
    with serving(broken_schema) as server, client(server) as model:
        replies = [model.complete(ask(text)) for text in ("fine", "other", "fine")]
        rungs = [reply.rung for reply in replies if isinstance(reply, Reply)]
        assert rungs == [Rung.STRICT, Rung.JSON_MODE, Rung.STRICT]


def test_a_redirect_after_an_answer_fails_its_own_request(tmp_path: Path) -> None:
    """Also where the reply format was known before the first call."""

    def choose(call: Call) -> str | Raw:
        away = call.prompt.startswith("not")
        return Raw(b"", 307, {"Location": "http://other/"}) if away else "perfect"

    cache = ReplyCache(tmp_path / "replies.sqlite")
    with serving(choose) as server:
        for _ in range(2):
            with client(server, cache=cache) as model:
                answers = [model.complete(ask(text)) for text in ("fine", "not", f"not {_}")]
                assert isinstance(answers[0], Reply)
                for answer in answers[1:]:
                    assert isinstance(answer, Failure)
                    assert "redirects to http://other/ (HTTP 307)" in answer.detail


def test_other_refusals_do_not_leave_a_rung_that_is_known() -> None:
    def choose(call: Call) -> str:
        return "perfect" if call.prompt == "fine" else "status 400"

    with serving(choose) as server, client(server) as model:
        assert isinstance(model.complete(ask("fine")), Reply)
        failure = checked(Failure, model.complete(ask()))
        assert (failure.cause, len(server.calls)) == (Cause.BAD_REQUEST, 2)


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "the reason"}},
        {"error": "the reason"},
        {"message": "the reason"},
        {"detail": "the reason"},
        {"detail": [{"loc": ["body"], "msg": "the reason"}]},
        {"error": {"error": {"message": "the reason"}}},
        "the reason",
    ],
)
def test_the_servers_reason_is_shown_in_whatever_field_it_is_sent(body: Any) -> None:
    failure = failed(Raw(json.dumps(body), 400), None)
    assert failure.detail.startswith("HTTP 400: ")
    assert "the reason" in failure.detail


def test_a_reason_is_short_one_line_printable_and_without_the_key() -> None:
    reason = f"bad\n\x1b[31m red \u202e {KEY} " + "long " * 200
    detail = failed(Raw(json.dumps({"error": {"message": reason}}), 400)).detail
    assert detail.startswith(r"HTTP 400: bad \x1b[31m red \u202e *** long")
    assert len(detail) <= 300
    assert detail.isprintable()


@pytest.mark.parametrize("in_flight", [1, 8])
def test_a_budget_holds_against_what_is_billed(in_flight: int) -> None:
    """40 calls, each billed 1,320 tokens, of which 1,200 are in the total alone."""
    with (
        serving(wire(completion("Hello.", usage=BILLED))) as server,
        client(server, budget=Budget(max_tokens=5000), max_in_flight=in_flight) as model,
    ):
        with pytest.raises(BudgetReached):
            model.complete_all(
                [Request(ask(f"Say {i}.").messages, max_tokens=64) for i in range(40)]
            )
        assert len(server.calls) == 3
        assert model.budget.spent == Usage(3, 300, 3660)


HARD_KEY = "sk-\"quote'back\\slash/plus+0123"


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_a_key_with_a_quote_that_a_server_echoes_in_json_is_shown_nowhere(
    status: int, tmp_path: Path
) -> None:
    """Not in the failure's text, the reply's, the run's error or the cache."""
    cache = ReplyCache(tmp_path / "replies.sqlite")

    def choose(call: Call) -> Raw:
        inner = json.dumps({"sent": call.headers["authorization"]})
        reply = completion(inner) if status == 200 else {"error": {"message": inner}}
        return Raw(json.dumps(reply), status)

    with (
        serving(choose) as server,
        client(server, cache=cache, api_key=HARD_KEY, retries=0) as model,
    ):
        try:
            shown = repr(model.complete(ask(schema=None)))
        except UserError as error:
            shown = str(error)
    shown += "".join(file.read_bytes().decode("latin-1") for file in tmp_path.iterdir())
    assert "***" in shown
    for part in ("quote", "slash", "0123"):
        assert part not in shown


@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.1:1/proxy/{}/v1",
        "http://127.0.0.1:1/{}",
        "http://{}.example/v1",
        "http://127.0.0.1:1/v1;key={}",
    ],
)
@pytest.mark.parametrize("written", [str, quote, lambda key: quote(key, safe="")])
def test_an_address_with_the_key_in_it_is_refused(
    place: str, written: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = place.format(written("hunter2+secret"))
    monkeypatch.setenv("OPENAI_API_KEY", "hunter2+secret")
    for options in ({"api_key": "hunter2+secret"}, {"api_key": "another-key"}, {}):
        with pytest.raises(UserError, match=r"holds an API key|not an http address") as caught:
            OpenAIModel("m", base_url=url, **options)
        assert "hunter2" not in str(caught.value)


def test_an_address_with_what_looks_like_a_key_is_refused() -> None:
    with pytest.raises(UserError, match="holds an API key") as caught:
        OpenAIModel("m", base_url="http://127.0.0.1:1/sk-0123456789abcdefghij/v1")
    assert "0123" not in str(caught.value)
    account = "http://127.0.0.1:1/accounts/0123456789abcdef0123456789abcdef/v1"
    assert OpenAIModel("m", base_url=account).address == account
