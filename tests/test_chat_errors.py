"""Error statuses, spend on calls that fail, and servers that never answer, over a real socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from recallbed.chat_models import (
    Budget,
    BudgetReached,
    Cause,
    Failure,
    Message,
    Price,
    Prices,
    Reply,
    Request,
    Rung,
    Usage,
)
from recallbed.chat_models.openai_model import GIVE_UP_AFTER, OpenAIModel
from recallbed.chat_models.tokens import estimate_messages
from recallbed.errors import UserError
from tests.scripted_server import Call, ScriptedServer, scripted_server


class Order(BaseModel):
    order: list[int]


def ask(text: str, schema: type[BaseModel] | None = None, max_tokens: int = 100) -> Request:
    return Request((Message("user", text),), schema, max_tokens)


@contextmanager
def serving(
    behaviour: str | Callable[[Call], str] = "perfect", **settings: Any
) -> Iterator[ScriptedServer]:
    with scripted_server(lambda call: {"order": [1]}, behaviour, **settings) as server:
        yield server


@contextmanager
def client(server: ScriptedServer, **options: Any) -> Iterator[OpenAIModel]:
    chosen = {"timeout": 60.0, "retries": 1, "first_wait": 0.0, **options}
    model = OpenAIModel("m", base_url=server.url, **chosen)
    try:
        yield model
    finally:
        model.close()


def one_bad(behaviour: str) -> Callable[[Call], str]:
    """`behaviour` for the prompt "bad", a right answer for every other."""
    return lambda call: behaviour if "bad" in call.prompt else "perfect"


# Error statuses of one query.


@pytest.mark.parametrize("schema", [None, Order])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("status", [403, 404, 451])
def test_a_refused_prompt_fails_alone_wherever_it_comes(
    status: int, first: bool, schema: type[BaseModel] | None
) -> None:
    """Also as the very first call: what is refused then is the prompt, not the key."""
    texts = ["bad", "a", "b"] if first else ["a", "bad", "b"]
    with serving(one_bad(f"status {status}")) as server, client(server, max_in_flight=1) as model:
        answers = [model.complete(ask(text, schema)) for text in texts]
    for text, answer in zip(texts, answers, strict=True):
        if text == "bad":
            assert isinstance(answer, Failure)
            assert answer.cause is Cause.FORBIDDEN
            assert "scripted" in answer.detail
        else:
            assert isinstance(answer, Reply)
    assert sum("bad" in prompt for prompt in server.prompts()) == 1  # not at each rung


def test_a_flagged_prompt_with_status_400_is_refused_and_not_asked_at_each_rung() -> None:
    with serving(one_bad("flagged")) as server, client(server) as model:
        answers = model.complete_all([ask(text, Order) for text in ("a", "bad", "b")])
        assert [isinstance(answer, Reply) for answer in answers] == [True, False, True]
        assert isinstance(answers[1], Failure)
        assert answers[1].cause is Cause.FORBIDDEN
        assert len(server.calls) == 3


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [("status 403", "refuses the API key"), ("status 404", "no model `m`")],
)
def test_a_server_that_refuses_everything_ends_the_run_before_any_answer(
    behaviour: str, words: str
) -> None:
    with serving(behaviour) as server, client(server) as model:
        with pytest.raises(UserError, match=words) as caught:
            model.complete_all([ask(f"number {i}") for i in range(8)])
        assert "\n" not in str(caught.value)
        assert not isinstance(caught.value, BudgetReached)


def test_a_refused_key_ends_the_run_at_any_time() -> None:
    with serving(one_bad("status 401")) as server, client(server) as model:
        assert isinstance(model.complete(ask("a")), Reply)
        with pytest.raises(UserError, match="refuses the API key"):
            model.complete(ask("bad"))


@pytest.mark.parametrize("behaviour", ["status 402", "quota"])
def test_an_empty_account_ends_the_run_like_a_spent_budget(behaviour: str) -> None:
    with serving(one_bad(behaviour)) as server, client(server) as model:
        assert isinstance(model.complete(ask("a")), Reply)
        with pytest.raises(BudgetReached, match=r"nothing left to spend.*resume"):
            model.complete(ask("bad"))


# What calls without a usable reply are charged.


@pytest.mark.parametrize(
    ("behaviour", "calls"),
    [
        ("hang", 2),
        ("cut", 2),
        ("status 500", 2),
        ("status 408", 2),
        ("not chat", 2),
        ("unmetered cut", 1),
        ("unmetered empty", 1),
        ("usage missing", 1),
    ],
)
def test_a_call_without_told_usage_is_charged_its_whole_reservation(
    behaviour: str, calls: int
) -> None:
    request = ask("How much?", max_tokens=77)
    budget = Budget(max_tokens=10_000)
    timeout = 0.3 if behaviour == "hang" else 60.0
    with serving(behaviour) as server, client(server, budget=budget, timeout=timeout) as model:
        model.complete(request)
        tokens_in = estimate_messages(request.messages)
        whole = Usage(1, unreported=1, estimated_in=tokens_in, estimated_out=77)
        assert len(server.calls) == calls
        assert budget.spent == sum((whole for _ in range(calls)), Usage())


@pytest.mark.parametrize("behaviour", ["status 400", "status 429", "context", "status 451"])
def test_a_call_that_was_refused_unworked_is_charged_nothing(behaviour: str) -> None:
    budget = Budget(max_tokens=10_000)
    with serving(behaviour) as server, client(server, budget=budget) as model:
        assert isinstance(model.complete(ask("x")), Failure)
        assert server.calls
        assert budget.spent == Usage()
        assert budget._reserved == 0


def test_a_refused_connection_is_charged_nothing() -> None:
    with serving() as server:
        pass
    budget = Budget(max_tokens=10_000)
    with client(server, budget=budget) as model, pytest.raises(UserError, match="no server"):
        model.complete(ask("x"))
    assert (budget.spent, budget._reserved) == (Usage(), 0)


@pytest.mark.parametrize("behaviour", ["perfect", "cut", "status 500", "not chat", "mixed"])
def test_what_a_server_bills_stays_within_the_budget(behaviour: str) -> None:
    """A server that bills every prompt that it reads, and whole replies that never arrive."""
    billed: list[int] = []
    lock = threading.Lock()
    kinds = ("perfect", "cut", "status 500", "not chat")

    def choose(call: Call) -> str:
        kind = kinds[call.digest % 4] if behaviour == "mixed" else behaviour
        out = 1 if kind == "perfect" else 50  # "perfect" tells its usage: 10 in and the words out
        with lock:
            billed.append(10 + out)
        return kind

    most = 1000
    requests = [ask(f"number {i}", max_tokens=50) for i in range(200)]
    with scripted_server(lambda call: "yes", choose) as server:
        budget = Budget(max_tokens=most)
        # Answered once, so that failures don't end the run before the budget does.
        with client(server, budget=budget, retries=3) as model:
            model._answered = True
            with pytest.raises(BudgetReached):
                model.complete_all(requests)
    assert sum(billed) <= most
    assert sum(billed) > most / 2  # and the budget is used
    assert budget._reserved == 0


def test_an_error_while_settling_leaves_no_reservation_behind() -> None:
    class Broken:
        def of(self, tokens_in: int, tokens_out: int) -> float:
            if tokens_in == 10:  # the scripted server's count
                raise RuntimeError("no price today")
            return 0.0

    budget = Budget(max_tokens=1000)
    with serving() as server, client(server, budget=budget) as model:
        model._price = Broken()  # type: ignore[assignment]
        with pytest.raises(RuntimeError):
            model.complete(ask("x"))
    assert budget._reserved == 0
    held = budget.reserve(5, 5, Price(1.0, 1.0))
    budget.settle(held, Usage(1, 10**400, 1), Price(1.0, 1.0))
    assert (budget._reserved, budget._reserved_cost) == (0, 0.0)


def test_a_price_table_with_a_usage_past_the_range_of_a_float_ends_a_budget_of_money() -> None:
    budget = Budget(max_cost=5.0)
    prices = Prices({"m": Price(1.0, 1.0)})
    held = budget.reserve(5, 5, prices.by_model["m"])
    budget.settle(held, Usage(1, 10**400, 1), prices.by_model["m"])
    with pytest.raises(BudgetReached):
        budget.reserve(1, 1, prices.by_model["m"])


# Servers that never answer.


def test_a_hanging_server_is_asked_many_at_once_though_its_format_is_unknown() -> None:
    """Everyone but the first waits at the gate, which opens for four calls that are there at once.

    With the finder of the format alone at a time, no more than one call would ever be there.
    """
    gate = threading.Barrier(4)

    def choose(call: Call) -> str:
        if call.prompt.startswith("first"):
            return "status 500"
        gate.wait(timeout=300)
        return "perfect"

    requests = [ask("first", Order), *(ask(f"number {i}", Order) for i in range(4))]
    with serving(choose) as server, client(server, retries=0, max_in_flight=4) as model:
        answers = model.complete_all(requests)
    assert isinstance(answers[0], Failure)
    assert all(isinstance(answer, Reply) and answer.rung is Rung.STRICT for answer in answers[1:])
    assert server.most_at_once == 4


def test_the_format_is_looked_for_by_others_while_the_first_call_is_repeated() -> None:
    """The first request's second try is held until another request has been answered."""
    other = threading.Event()

    def choose(call: Call) -> str:
        if call.prompt.startswith("first"):
            if call.times == 1:
                return "status 503"
            assert other.wait(timeout=300)
        else:
            other.set()
        return "perfect"

    requests = [ask("first", Order), ask("second", Order)]
    with serving(choose) as server, client(server) as model:
        assert all(isinstance(answer, Reply) for answer in model.complete_all(requests))
    assert len(server.calls) == 3


def test_who_looked_for_the_format_in_vain_rests_on_the_one_that_others_found(
    tmp_path: Path,
) -> None:
    """Else its reply from the cache would be another, and calls would be repeated."""
    both = threading.Event()

    def choose(call: Call) -> str:
        if call.prompt.startswith("first"):
            return "status 500"  # so that others may look too
        if call.prompt.startswith("vague"):
            both.set()
            return "no json"
        assert both.wait(timeout=300)
        return "perfect"

    requests = [ask(text, Order) for text in ("first", "good", "vague")]
    with serving(choose) as server:
        for _ in range(2):
            with client(server, retries=0, cache=tmp_path / "replies.sqlite") as model:
                answers = model.complete_all(requests)
            assert isinstance(answers[2], Failure)
            assert answers[2].cause is Cause.NO_JSON
            sent = [call for call in server.calls if call.prompt.startswith("vague")]
        assert [answer.usage.calls for answer in answers] == [0, 1, 3]
        # All of it is found in the cache the second time.
        wires = [str(call.body) for call in sent]
        assert len(set(wires)) == len(wires)


def test_a_call_fails_as_such_where_the_format_is_known_from_the_cache(tmp_path: Path) -> None:
    with serving(one_bad("status 500")) as server:
        with client(server, cache=tmp_path / "replies.sqlite") as model:
            assert isinstance(model.complete(ask("a", Order)), Reply)
        with client(server, cache=tmp_path / "replies.sqlite") as model:
            failure = model.complete(ask("bad", Order))
    assert isinstance(failure, Failure)
    assert failure.cause is Cause.SERVER_ERROR


def test_who_looks_for_the_format_after_another_found_it_uses_that() -> None:
    def choose(call: Call) -> str:
        return "context" if call.prompt.startswith("long") else "perfect"

    requests = [ask("long", Order), *(ask(f"number {i}", Order) for i in range(20))]
    with (
        serving(choose, refuses=("json_schema",)) as server,
        client(server, max_in_flight=3) as model,
    ):
        answers = model.complete_all(requests)
    assert [isinstance(answer, Reply) for answer in answers] == [False, *([True] * 20)]
    refused = [call for call in server.calls if call.wants == "json_schema"]
    assert len(refused) <= 1 + 3  # the long one, and no more than are under way at once


@pytest.mark.parametrize("schema", [None, Order])
@pytest.mark.parametrize("behaviour", ["status 500", "cut", "hang", "status 429", "status 400"])
def test_a_run_ends_where_nothing_is_ever_answered(
    behaviour: str, schema: type[BaseModel] | None
) -> None:
    timeout = 0.2 if behaviour == "hang" else 60.0
    with serving(behaviour) as server, client(server, timeout=timeout, max_in_flight=2) as model:
        with pytest.raises(UserError, match=f"the first {GIVE_UP_AFTER} requests failed") as caught:
            model.complete_all([ask(f"number {i}", schema) for i in range(100)])
        assert "resume" in str(caught.value)
        assert "\n" not in str(caught.value)
        # Two tries at each of up to three rungs, for the last ones and those under way with them.
        assert len(server.calls) <= 3 * 2 * (GIVE_UP_AFTER + 2)


def test_a_run_goes_on_through_failures_once_a_request_was_answered() -> None:
    def choose(call: Call) -> str:
        return "perfect" if call.prompt == "good" else "status 500"

    with serving(choose) as server, client(server, retries=0) as model:
        first = [model.complete(ask(f"bad {i}")) for i in range(GIVE_UP_AFTER - 1)]
        assert isinstance(model.complete(ask("good")), Reply)
        later = model.complete_all([ask(f"number {i}") for i in range(3 * GIVE_UP_AFTER)])
    causes = {answer.cause for answer in [*first, *later] if isinstance(answer, Failure)}
    assert causes == {Cause.SERVER_ERROR}
