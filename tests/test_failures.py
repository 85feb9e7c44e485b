"""Failures are counted by cause; the reason that a server gives stays beside it."""

from __future__ import annotations

from recallbed.chat_models import Cause, Failure
from recallbed.harness.failures import Failures, with_reason, without_reason


def test_errors_are_counted_by_cause_with_the_first_reason_of_each() -> None:
    errors = [
        None,
        "timeout",
        "bad request (reason: HTTP 400: no (reason: at all), id 1)",
        "bad request (reason: HTTP 400: id 2)",
        "first stage llm: rate limited (reason: HTTP 429: slow down)",
        "no reply could be used (wrong format)",
        "TypeError: f() (reason: x) at all",
    ]
    found = Failures(errors)
    assert found.counts == {
        "timeout": 1,
        "bad request": 2,
        "first stage llm: rate limited": 1,
        "no reply could be used (wrong format)": 1,
        "TypeError: f() (reason: x) at all": 1,
    }
    assert found.reasons == {
        "bad request": "HTTP 400: no (reason: at all), id 1",
        "first stage llm: rate limited": "HTTP 429: slow down",
    }
    assert str(found).startswith("bad request (reason: HTTP 400: no (reason: at all), id 1): 2; ")


def test_a_reason_comes_off_again() -> None:
    for reason in ("", "HTTP 400", "two\nlines", "(a)", ")"):
        assert without_reason(with_reason("bad request", reason)) == "bad request"


def test_only_what_a_server_or_model_said_is_a_reason() -> None:
    assert Failure(Cause.BAD_REQUEST, "HTTP 400: x").error == "bad request (reason: HTTP 400: x)"
    assert Failure(Cause.REFUSED, "no").error == "refused (reason: no)"
    assert Failure(Cause.CUT, "the reply ends at the output limit").error == Cause.CUT.value
    assert Failure(Cause.SERVER_ERROR).error == "server error"
