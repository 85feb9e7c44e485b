"""Estimate of what a run would send."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from typing_extensions import override

from recallbed.chat_models.base import JSON, Cause, ChatModel, Failure, Message, Reply, Request
from recallbed.chat_models.budget import Prices
from recallbed.harness.plan import Plan


class DryRun(ChatModel):
    """Replaces `model` and sends nothing: requests without a stored reply fail as `not sent`.

    If later requests depend on earlier replies, the caller continues after such a failure, and the
    plan counts the requests that it made.
    """

    def __init__(self, model: ChatModel, prices: Prices | None = None) -> None:
        self._model, self._prices = model, prices or Prices()
        self.name, self.libraries = model.name, model.libraries
        self._calls: set[bytes] = set()
        self._stored: set[bytes] = set()
        self._tokens_in = self._tokens_out = 0

    @property
    @override
    def context(self) -> int | None:
        return self._model.context

    @override
    def complete(self, request: Request) -> Reply | Failure:
        """Return the stored answer, or a failure of cause NOT_SENT, counted once if repeated."""
        known = self._model.recall(request)
        if known is not None:
            self._stored.add(_digest(request))
            return known
        digest = _digest(request)
        if digest not in self._calls:
            self._calls.add(digest)
            self._tokens_in += self._model.count_tokens(request.prompt)
            self._tokens_out += request.max_tokens
        return Failure(Cause.NOT_SENT, "a dry run sends nothing")

    def plan(self) -> Plan:
        """Return the calls, tokens, cost and seconds of all requests so far."""
        price = self._prices.by_model.get(self.name)
        cost = None if price is None else price.of(self._tokens_in, self._tokens_out)
        sizes = (self._tokens_in, self._tokens_out)
        seconds = self._model.seconds(*sizes) if self._calls else None
        return Plan(len(self._calls), len(self._stored), *sizes, cost, seconds)

    @override
    def count_tokens(self, messages: Sequence[Message]) -> int:
        return self._model.count_tokens(messages)

    @override
    def settings(self) -> Mapping[str, JSON]:
        return self._model.settings()

    @override
    def recall(self, request: Request) -> Reply | Failure | None:
        return self._model.recall(request)

    @override
    def close(self) -> None:
        self._model.close()


def _digest(request: Request) -> bytes:
    """A hash of the request: a plan may count thousands of prompts of a thousand memories each."""
    schema = request.schema and f"{request.schema.__module__}.{request.schema.__qualname__}"
    parts = (request.prompt, schema, request.max_tokens, request.temperature)
    text = repr((*parts, request.seed, request.sample))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
