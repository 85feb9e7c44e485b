"""The contract: requests in, a reply or a typed failure each, with what it took.

Nothing is raised for what a model or a network does; a user's mistake and a spent budget are.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from recallbed.errors import UserError
from recallbed.harness.failures import with_reason
from recallbed.harness.terminal import one_line

if TYPE_CHECKING:
    from pydantic import BaseModel

JSON = Any
Role = Literal["system", "user", "assistant"]
DEFAULT_MAX_TOKENS = 1024


class Cause(StrEnum):
    """Why there is no reply that may be used."""

    TIMEOUT = "timeout"
    RATE_LIMITED = "rate limited"
    SERVER_ERROR = "server error"
    CONNECTION = "connection"
    BAD_REQUEST = "bad request"
    FORBIDDEN = "refused by the server"
    """This prompt, by an error status: flagged, forbidden here, not served. A model's own refusal
    is REFUSED."""
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
"""Causes whose detail holds what the server or the model said; of others it is our explanation."""


class Rung(StrEnum):
    """How a structured reply was asked for, best first."""

    STRICT = "strict schema"
    JSON_MODE = "JSON mode"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. `schema` is a pydantic model that the reply must fit; None asks for text.

    `max_tokens` bounds the reply, reasoning included. Equal requests with another `sample` are
    other draws: each has a reply of its own in the cache.
    """

    messages: tuple[Message, ...]
    schema: type[BaseModel] | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    temperature: float | None = 0.0
    """None leaves it to the server: some models take no other than their own."""
    seed: int | None = None
    sample: int = 0

    def __post_init__(self) -> None:
        if not self.messages:
            raise UserError("a request without messages")
        if self.max_tokens < 1:
            raise UserError(f"max_tokens {self.max_tokens}: must be at least 1")


@dataclass(frozen=True, slots=True)
class Usage:
    """What replies took, in calls and tokens; added up with `+`.

    Tokens that a server reported and our own estimates for the calls where it reported none stand
    apart, so that an estimate is never taken for a count.
    """

    calls: int = 0
    reported_in: int = 0
    reported_out: int = 0
    unreported: int = 0
    """Calls for which the server told no tokens."""
    estimated_in: int = 0
    estimated_out: int = 0

    @property
    def tokens_in(self) -> int | None:
        """Input tokens; None where a call told none."""
        return None if self.unreported else self.reported_in

    @property
    def tokens_out(self) -> int | None:
        """Output tokens; None where a call told none."""
        return None if self.unreported else self.reported_out

    @property
    def estimate_in(self) -> int:
        """Input tokens, estimated where none were told."""
        return self.reported_in + self.estimated_in

    @property
    def estimate_out(self) -> int:
        """Output tokens, estimated where none were told."""
        return self.reported_out + self.estimated_out

    @property
    def counts(self) -> dict[str, int]:
        """The keys of a row: calls, and tokens estimated if the server did not report them."""
        return {
            "calls": self.calls,
            "tokens_in": self.estimate_in,
            "tokens_out": self.estimate_out,
        }

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.reported_in + other.reported_in,
            self.reported_out + other.reported_out,
            self.unreported + other.unreported,
            self.estimated_in + other.estimated_in,
            self.estimated_out + other.estimated_out,
        )


NOTHING_USED = Usage()


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply. `parsed` is an instance of the request's schema, None where it had none.

    `usage` counts the replies that this one rests on (itself and those that were asked again),
    from the cache or not, so that a run from the cache counts the same.
    """

    text: str
    parsed: BaseModel | None = None
    usage: Usage = NOTHING_USED
    rung: Rung | None = None
    re_asks: int = 0
    from_cache: bool = False
    """Whether nothing was sent for it."""
    repairs: Mapping[str, int] = field(default_factory=dict)
    """How many characters of each kind (NUL, lone surrogate) were replaced by U+FFFD."""


@dataclass(frozen=True, slots=True)
class Failure:
    """No reply. `detail` is one line for a person; `text` is what came, unusable as it is.

    `usage` counts the replies that came and could not be used, cut ones too; none for a call
    that was answered by an error or not at all.
    """

    cause: Cause
    detail: str = ""
    text: str = ""
    usage: Usage = NOTHING_USED

    @property
    def error(self) -> str:
        """For a row: the cause, and the reason if the server or the model gave one."""
        return with_reason(self.cause.value, self.detail if self.cause in _WITH_REASON else "")


class BudgetReached(UserError):
    """The next call might exceed the budget, so it was not sent. What was paid for is stored.

    Raised rather than given back as a failure: the run stops as if interrupted, and goes on from
    the cache under a larger budget.
    """


@dataclass(frozen=True, slots=True)
class LogProbability:
    """How likely a continuation is: the sum over its tokens, natural logarithm, and their count."""

    total: float
    tokens: int


class ChatModel(ABC):
    """Answers requests. `complete_all` is what a caller with many of them should use.

    An instance survives pickling: `--workers` sends copies of it.
    """

    name: str
    """How the model is called in tables and in a price list."""
    libraries: tuple[str, ...] = ()
    """Distributions whose version can change a reply."""

    @property
    def context(self) -> int | None:
        """How many tokens prompt and reply may have together, None where that isn't known."""
        return None

    @abstractmethod
    def complete(self, request: Request) -> Reply | Failure:
        """The answer to one request. Raises BudgetReached; UserError for a wrong key or name."""

    def complete_all(self, requests: Sequence[Request]) -> list[Reply | Failure]:
        """One answer a request, in order. By default a loop over `complete`."""
        return [self.complete(request) for request in requests]

    @abstractmethod
    def count_tokens(self, messages: Sequence[Message]) -> int:
        """The tokens of a prompt: counted where the tokenizer is at hand, else estimated."""

    @abstractmethod
    def settings(self) -> Mapping[str, JSON]:
        """All of the model that can change a reply; never a key."""

    def seconds(self, tokens_in: int, tokens_out: int) -> float | None:
        """How long this machine takes to read and write so much; None where another works."""
        return None

    def recall(self, request: Request) -> Reply | Failure | None:
        """The answer to `request` if it can be had without any call, else None."""
        return None

    def open(self) -> None:
        """Make ready what a call needs, so that what is wrong with it is found before the first.

        Raises UserError. Without it a call does the same.
        """

    def close(self) -> None:
        """Give back connections and files; the next request opens them again."""


class TokenScorer(ABC):
    """A model that tells how likely a given text is."""

    @abstractmethod
    def log_probabilities(
        self, pairs: Sequence[tuple[str | Sequence[Message], str]]
    ) -> list[LogProbability | Failure]:
        """One log P(continuation | prompt) a pair, in order.

        A prompt is a chat, after which the model's turn begins, or bare text. Prompt and
        continuation are tokenised apart. A pair over the context limit is a Failure.
        """


SHOWN = 300
"""Characters. The rest of a longer reason is left out."""


def short_reason(text: str) -> str:
    """`text` on one line of at most SHOWN characters, what steers a terminal as escapes."""
    line = one_line(text[: 10 * SHOWN])
    return line if len(line) <= SHOWN else line[: SHOWN - 3] + "..."


def reason_in(body: Any) -> str:
    """What a server's JSON says was wrong, however it says it; empty where it says nothing."""
    for name in ("error", "message", "detail", "msg"):
        told = body.get(name) if isinstance(body, Mapping) else None
        if isinstance(told, Mapping):
            told = reason_in(told) or json.dumps(told, ensure_ascii=False)
        elif isinstance(told, list) and told:
            told = json.dumps(told, ensure_ascii=False)
        if isinstance(told, str) and told.strip():
            return told
    return body if isinstance(body, str) else ""
