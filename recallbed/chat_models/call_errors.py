"""Classification of errors of a call: retry, failure with a cause, or end of the run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin, urlsplit

from recallbed.chat_models.base import BudgetReached, Cause, Failure, reason_in, short_reason
from recallbed.chat_models.pace import retry_after
from recallbed.chat_models.responses import Trouble
from recallbed.errors import UserError

_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size)|maximum context|too many (?:input )?tokens"
    r"|prompt is too long|exceeds? .{0,40}\btokens",
    re.I,
)
_FLAGGED = ("content_filter", "content_policy_violation", "invalid_prompt", "moderation_blocked")
"""Error codes with which servers refuse one prompt as they would a malformed request."""
_PASSING = (408, 409, 429)
_WORKED_FOR = (408, 409)
"""Statuses below 500 that may follow work, and so may be billed."""
_UNSENT = ("ConnectError", "ConnectTimeout", "PoolTimeout")
"""Errors of httpx before any byte of a request is sent."""
_PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")


def check_certificates() -> None:
    """Raise UserError if the environment names certificates that do not exist.

    The client would not name a missing file, and would ignore a missing folder.
    """
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        value = os.environ.get(name)
        if value and not any(map(os.path.exists, value.split(os.pathsep))):
            raise UserError(f"{name}={value}: no such file or folder. Correct it or unset it")


def client_fault(error: Exception, shown: Callable[[str], str]) -> str:
    """Return why no client could be made, and the environment variables that it depends on.

    A proxy's address may hold a password, so only its variable is named.
    """
    names = [n for name in _PROXIES for n in (name, name.lower())]
    there = [name for name in (*names, *CERTIFICATES) if os.environ.get(name)]
    named = f" Check the environment: {', '.join(there)}" if there else ""
    if "socksio" in str(error):
        named += ". A SOCKS proxy needs one more package. Run: pip install socksio"
    line = short_reason(shown(f"{type(error).__name__}: {error}")).rstrip(".")
    return f"no connection to a server can be prepared ({line}).{named}"


def read_error(error: Exception, model: str, address: str, shown: Callable[[str], str]) -> Trouble:
    """Classify an error of the `openai` library. `shown` masks the key in a text.

    Raise UserError for a refused key and BudgetReached for an account without credit: every
    further call fails in the same way.
    """
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    from recallbed.chat_models.http_client import ReplyTooLarge, UnusableEncoding

    below = error.__cause__ or error
    unsent = type(below).__name__ in _UNSENT
    if isinstance(error, TimeoutError | APITimeoutError):
        return Trouble(Failure(Cause.TIMEOUT, "no whole reply in time"), again=True, free=unsent)
    if isinstance(error, APIConnectionError):
        line = short_reason(shown(f"{type(below).__name__}: {below}"))
        failure = Failure(Cause.CONNECTION, line)
        return Trouble(failure, again=True, free=unsent, unreachable=unsent)
    if isinstance(error, ReplyTooLarge | UnusableEncoding):  # a retry gives the same
        cause = Cause.TOO_LARGE if isinstance(error, ReplyTooLarge) else Cause.SERVER_ERROR
        return Trouble(Failure(cause, short_reason(shown(str(error)))))
    if not isinstance(error, APIStatusError):  # anything else that a reply makes the library raise
        line = short_reason(shown(f"{type(error).__name__}: {error}"))
        return Trouble(Failure(Cause.SERVER_ERROR, line), again=True)
    reason = reason_in(error.body)
    status = f"HTTP {error.status_code}: {reason}" if reason else f"HTTP {error.status_code}"
    if 300 <= error.status_code < 400:
        place = _place(address, error.response.headers.get("location", ""))
        line = (
            f"{address} redirects to {place} (HTTP {error.status_code}), and nothing is sent to an"
            " address that was not given. If that is the right one, give it with --base-url"
        )
        line = short_reason(shown(line))
        return Trouble(Failure(Cause.SERVER_ERROR, line), free=True, denial=line)
    return _read_status(error, short_reason(shown(status)), model, address)


def _read_status(error: Any, line: str, model: str, address: str) -> Trouble:
    """Apply the table in docs/chat_models.md."""
    status = error.status_code
    if status == 401:
        raise UserError(f"{address} refuses the API key for `{model}` ({line})")
    if status == 402 or (status == 429 and error.code == "insufficient_quota"):
        raise BudgetReached(
            f"{address}: the account has no credit left ({line})."
            " Add credit and run this again to resume"
        )
    if status in (403, 404, 451) or (status == 400 and error.code in _FLAGGED):
        denial = {
            403: f"{address} refuses the API key for `{model}` ({line})",
            404: f"{address} has no model `{model}`, or is not the address of chat models ({line})",
        }.get(status)
        return Trouble(Failure(Cause.FORBIDDEN, line), free=True, denial=denial)
    if status in (400, 413, 422):
        if error.code == "json_validate_failed":  # the model wrote something, and it is billed
            return Trouble(Failure(Cause.SCHEMA, line))
        too_long = (
            status == 413 or error.code == "context_length_exceeded" or _TOO_LONG.search(line)
        )
        failure = Failure(Cause.CONTEXT if too_long else Cause.BAD_REQUEST, line)
        return Trouble(failure, free=True, length_name="max_completion_tokens" in line)
    cause = {429: Cause.RATE_LIMITED, 408: Cause.TIMEOUT}.get(status, Cause.SERVER_ERROR)
    return Trouble(
        Failure(cause, line),
        again=status in _PASSING or status >= 500,
        retry_after=retry_after(error.response.headers.get("retry-after")),
        free=status < 500 and status not in _WORKED_FOR,
    )


def _place(address: str, location: str) -> str:
    """The target of a redirect, without a query, which may hold what the server was sent."""
    try:
        parts = urlsplit(urljoin(address, location))
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an address that is no URL"
    return f"{parts.scheme}://{host}{port}{parts.path}"
