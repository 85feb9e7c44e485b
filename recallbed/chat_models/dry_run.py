"""What a run would send, told before anything is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from recallbed.chat_models.base import JSON, Cause, ChatModel, Failure, Message, Reply, Request
from recallbed.chat_models.budget import Prices
from recallbed.harness.plan import Plan


class DryRun(ChatModel):
    """Stands in for `model` and sends nothing: what isn't stored fails as `not sent`.

    A caller whose later requests hang on earlier replies has to go on after such a failure, and
    then the plan counts those that it made.
    """

    def __init__(self, model: ChatModel, prices: Prices | None = None) -> None:
        self._model, self._prices = model, prices or Prices()
        self.name, self.libraries = model.name, model.libraries
        self._calls: set[bytes] = set()
        self._stored: set[bytes] = set()
        self._tokens_in = self._tokens_out = 0

    @property
    def context(self) -> int | None:
        """The model's own."""
        return self._model.context

    def complete(self, request: Request) -> Reply | Failure:
        """The stored answer, or a failure of cause NOT_SENT; counted once for equal requests."""
        known = self._model.recall(request)
        if known is not None:
            self._stored.add(_digest(request))
            return known
        digest = _digest(request)
        if digest not in self._calls:
            self._calls.add(digest)
            self._tokens_in += self._model.count_tokens(request.messages)
            self._tokens_out += request.max_tokens
        return Failure(Cause.NOT_SENT, "a dry run sends nothing")

    def plan(self) -> Plan:
        """What all the requests so far come to."""
        price = self._prices.by_model.get(self.name)
        cost = None if price is None else price.of(self._tokens_in, self._tokens_out)
        sizes = (self._tokens_in, self._tokens_out)
        seconds = self._model.seconds(*sizes) if self._calls else None
        return Plan(len(self._calls), len(self._stored), *sizes, cost, seconds)

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """What the model itself says."""
        return self._model.count_tokens(messages)

    def settings(self) -> Mapping[str, JSON]:
        """Those of the model."""
        return self._model.settings()

    def recall(self, request: Request) -> Reply | Failure | None:
        """The model's own stored answer."""
        return self._model.recall(request)

    def close(self) -> None:
        """Close the model."""
        self._model.close()


def _digest(request: Request) -> bytes:
    """A request in 32 bytes: a plan may count thousands of prompts of a thousand memories each."""
    schema = request.schema and f"{request.schema.__module__}.{request.schema.__qualname__}"
    parts = (request.messages, schema, request.max_tokens, request.temperature)
    told = repr((*parts, request.seed, request.sample))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()
