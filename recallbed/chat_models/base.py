"""Interface of chat models: a reply or a typed failure per request, with its usage.

Errors of a model or a network are returned; a user's mistake and a spent budget are raised.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from operator import add
from typing import TYPE_CHECKING, Any, Literal

from recallbed.errors import UserError
from recallbed.harness.failures import with_reason
from recallbed.harness.terminal import one_line

if TYPE_CHECKING:
    from pydantic import BaseModel

    from recallbed.chat_models.passthrough import AssistantMessage, Passthrough

JSON = Any
Role = Literal["system", "user", "assistant"]
DEFAULT_MAX_TOKENS = 1024


class Cause(StrEnum):
    """Why there is no usable reply."""

    TIMEOUT = "timeout"
    RATE_LIMITED = "rate limited"
    SERVER_ERROR = "server error"
    CONNECTION = "connection"
    BAD_REQUEST = "bad request"
    FORBIDDEN = "refused by the server"
    """An error status for this prompt: flagged, forbidden, not served. A model's own refusal is
    REFUSED."""
    CONTEXT = "context too long"
    CUT = "cut at the output limit"
    TOO_LARGE = "reply too large"
    EMPTY = "empty reply"
    REFUSED = "refused"
    NO_JSON = "no JSON in the reply"
    SCHEMA = "reply violates the schema"
    NOT_SENT = "not sent"
    """Only from a dry run."""


_WITH_REASON = (
    *(Cause.RATE_LIMITED, Cause.SERVER_ERROR, Cause.BAD_REQUEST, Cause.FORBIDDEN),
    *(Cause.CONTEXT, Cause.REFUSED),
)
"""Causes whose detail is the message of the server or the model; otherwise it is ours."""


class Rung(StrEnum):
    """How a structured reply was requested, best first."""

    STRICT = "strict schema"
    JSON_MODE = "JSON mode"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `schema` is a pydantic model that the reply must fit; None for plain text.

    `max_tokens` limits the reply, including reasoning. Equal requests that differ in `sample` are
    separate draws, each with its own reply in the cache. With `passthrough` that is sent and not
    `messages`, which are its text.
    """

    messages: tuple[Message, ...]
    schema: type[BaseModel] | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float | None = 0.0
    """None omits it: some models accept only their own."""
    seed: int | None = None
    sample: int = 0
    passthrough: Passthrough | None = None

    def __post_init__(self) -> None:
        if not self.messages:
            raise UserError("a request without messages")
        if self.max_tokens < 1:
            raise UserError(f"max_tokens {self.max_tokens}: must be at least 1")
        if self.schema is not None and self.passthrough is not None:
            raise UserError("a request has a schema or is passed through, not both")

    @property
    def prompt(self) -> tuple[Message, ...]:
        """Return what is sent, for counting its tokens: including the tools of a passthrough."""
        sent = self.passthrough
        return self.messages if sent is None else (Message("user", sent.text),)


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls and tokens of replies; summed with `+`.

    Tokens that a server reported are kept apart from estimates for calls without a report, so that
    an estimate is never taken for a count.
    """

    calls: int = 0
    reported_in: int = 0
    reported_out: int = 0
    unreported: int = 0
    """Calls for which the server reported no tokens."""
    estimated_in: int = 0
    estimated_out: int = 0

    @property
    def tokens_in(self) -> int | None:
        """Return the input tokens; None if a call reported none."""
        return None if self.unreported else self.reported_in

    @property
    def tokens_out(self) -> int | None:
        """Return the output tokens; None if a call reported none."""
        return None if self.unreported else self.reported_out

    @property
    def estimate_in(self) -> int:
        """Return the input tokens, estimated if not reported."""
        return self.reported_in + self.estimated_in

    @property
    def estimate_out(self) -> int:
        """Return the output tokens, estimated if not reported."""
        return self.reported_out + self.estimated_out

    @property
    def counts(self) -> dict[str, int]:
        """Return the keys of a row: calls, and tokens, estimated if not reported."""
        tokens = {"tokens_in": self.estimate_in, "tokens_out": self.estimate_out}
        return {"calls": self.calls, **tokens}

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, astuple(self), astuple(other)))


NOTHING_USED = Usage()


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply. `parsed` is an instance of the request's schema, None if it had none.

    `usage` counts the reply and those that were requested again before it, cached or not, so that a
    run from the cache counts the same.
    """

    text: str
    parsed: BaseModel | None = None
    usage: Usage = NOTHING_USED
    rung: Rung | None = None
    re_asks: int = 0
    from_cache: bool = False
    """Whether nothing was sent for this reply."""
    repairs: Mapping[str, int] = field(default_factory=dict)
    """How many characters of each kind (NUL, lone surrogate) were replaced by U+FFFD."""
    message: AssistantMessage | None = None
    """The whole reply to a request with `passthrough`; None for others."""


@dataclass(frozen=True, slots=True)
class Failure:
    """No reply. `detail` is one line for people; `text` is the unusable reply as it was received.

    `usage` counts the unusable replies, truncated ones too; nothing for a call that was answered by
    an error or not at all.
    """

    cause: Cause
    detail: str = ""
    text: str = ""
    usage: Usage = NOTHING_USED

    @property
    def error(self) -> str:
        """Return the cause, with the reason if the server or the model gave one."""
        return with_reason(self.cause.value, self.detail if self.cause in _WITH_REASON else "")


class BudgetReached(UserError):
    """The next call might exceed the budget, so it was not sent. Paid replies are stored.

    Raised and not returned as a failure: the run stops as if interrupted, and is resumed from the
    cache with a larger budget.
    """


@dataclass(frozen=True, slots=True)
class LogProbability:
    """Natural log probability of a continuation, summed over its tokens, and their number."""

    total: float
    tokens: int


class ChatModel(ABC):
    """Answers requests. Use `complete_all` for several requests.

    Instances can be pickled: `--workers` sends copies.
    """

    name: str
    """Name of the model in tables and in a price list."""
    libraries: tuple[str, ...] = ()
    """Distributions whose versions can change a reply."""

    @property
    def context(self) -> int | None:
        """Return the limit of prompt and reply together in tokens, None if unknown."""
        return None

    @abstractmethod
    def complete(self, request: Request) -> Reply | Failure:
        """Answer one request. Raise BudgetReached; UserError for a wrong key or name."""

    def complete_all(self, requests: Sequence[Request]) -> list[Reply | Failure]:
        """Return one answer per request, in order. By default a loop over `complete`."""
        return [self.complete(request) for request in requests]

    @abstractmethod
    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return the tokens of a prompt: counted if the tokenizer is available, else estimated."""

    @abstractmethod
    def settings(self) -> Mapping[str, JSON]:
        """Return everything of the model that can change a reply; never a key."""

    def seconds(self, tokens_in: int, tokens_out: int) -> float | None:
        """Return the seconds that this machine takes for the tokens; None for a remote model."""
        return None

    def recall(self, request: Request) -> Reply | Failure | None:
        """Return the answer to `request` if it needs no call, else None."""
        return None

    def open(self) -> None:
        """Prepare what a call needs, so that errors are found before the first call.

        Raise UserError. Without it the first call does the same.
        """

    def close(self) -> None:
        """Release connections and files; the next request opens them again."""


class TokenScorer(ABC):
    """A model that computes the probability of a given text."""

    @abstractmethod
    def log_probabilities(
        self, pairs: Sequence[tuple[str | Sequence[Message], str]]
    ) -> list[LogProbability | Failure]:
        """Return log P(continuation | prompt) per pair, in order.

        A prompt is a chat, after which the model's turn begins, or plain text. Prompt and
        continuation are tokenised separately. A pair over the context limit is a Failure.
        """


SHOWN = 300
"""Characters. The rest of a longer reason is left out."""


def short_reason(text: str) -> str:
    """Return `text` on one line of at most SHOWN characters, control characters escaped."""
    line = one_line(text[: 10 * SHOWN])
    return line if len(line) <= SHOWN else line[: SHOWN - 3] + "..."


def reason_in(body: Any) -> str:
    """Return the error message in a server's JSON, in any of the usual forms; "" if none."""
    for name in ("error", "message", "detail", "msg"):
        reason = body.get(name) if isinstance(body, Mapping) else None
        if isinstance(reason, Mapping):
            reason = reason_in(reason) or json.dumps(reason, ensure_ascii=False)
        elif isinstance(reason, list) and reason:
            reason = json.dumps(reason, ensure_ascii=False)
        if isinstance(reason, str) and reason.strip():
            return reason
    return body if isinstance(body, str) else ""
