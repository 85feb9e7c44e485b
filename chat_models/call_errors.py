"""What an error of a call means: whether it may pass, which cause it is, or that the run ends."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from chat_models.base import Cause, Failure
from chat_models.pace import retry_after
from chat_models.responses import Trouble, one_line
from harness.errors import UserError

_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size)|maximum context|too many (?:input )?tokens"
    r"|prompt is too long|exceeds? .{0,40}\btokens",
    re.I,
)
_PASSING = (408, 409, 429)


def read_error(error: Exception, model: str, address: str, shown: Callable[[str], str]) -> Trouble:
    """What an error of `openai`'s means. Raises UserError where every further call fails alike."""
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, TimeoutError | APITimeoutError):
        return Trouble(Failure(Cause.TIMEOUT, "no whole reply in time"), again=True, billed=True)
    if isinstance(error, APIConnectionError):
        below = error.__cause__ or error
        line = one_line(shown(f"{type(below).__name__}: {below}"))
        refused = type(below).__name__ == "ConnectError"
        failure = Failure(Cause.CONNECTION, line)
        return Trouble(failure, again=True, billed=not refused, unreachable=refused)
    if not isinstance(error, APIStatusError):
        line = one_line(shown(f"{type(error).__name__}: {error}"))
        return Trouble(Failure(Cause.SERVER_ERROR, line), again=True)
    status, told = error.status_code, one_line(shown(error.message))
    _refuse_for_good(error, status, told, model, address)
    if status in (400, 413, 422):
        too_long = (
            status == 413 or error.code == "context_length_exceeded" or _TOO_LONG.search(told)
        )
        failure = Failure(Cause.CONTEXT if too_long else Cause.BAD_REQUEST, told)
        return Trouble(failure, length_name="max_completion_tokens" in told)
    cause = {429: Cause.RATE_LIMITED, 408: Cause.TIMEOUT}.get(status, Cause.SERVER_ERROR)
    return Trouble(
        Failure(cause, told),
        again=status in _PASSING or status >= 500,
        retry_after=retry_after(error.response.headers.get("retry-after")),
    )


def _refuse_for_good(error: Any, status: int, told: str, model: str, address: str) -> None:
    if status in (401, 403):
        raise UserError(f"{address} refuses the API key for `{model}` ({told})")
    if status == 404:
        raise UserError(f"{address} has no model `{model}`, or isn't a chat address ({told})")
    if status == 402 or (status == 429 and error.code == "insufficient_quota"):
        raise UserError(f"{address}: the account has nothing left to spend ({told})")
