"""Chat model at an OpenAI-compatible address: hosted, vLLM, llama.cpp's server, Ollama."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from recallbed.chat_models.base import (
    JSON,
    BudgetReached,
    Cause,
    ChatModel,
    Failure,
    Message,
    Reply,
    Request,
    Rung,
    Usage,
)
from recallbed.chat_models.budget import (
    Budget,
    Prices,
    Reservation,
    estimate_messages,
    estimate_text,
)
from recallbed.chat_models.cache import ReplyCache, Stored, key_of
from recallbed.chat_models.call_errors import check_certificates, client_fault, read_error
from recallbed.chat_models.pace import Pace, backoff
from recallbed.chat_models.responses import Trouble, read_completion
from recallbed.chat_models.sent_options import (
    AS_REQUESTED,
    Temperature,
    at_temperature,
    temperature_setting,
)
from recallbed.chat_models.server import BackgroundLoop, choose_address, choose_key
from recallbed.chat_models.structured import (
    Ask,
    Conversation,
    RawReply,
    converse,
    replied,
    reply_parts,
    schema_of,
    strict_schema,
)
from recallbed.errors import UserError
from recallbed.harness.progress import call_made

LADDER = (Rung.STRICT, Rung.JSON_MODE, Rung.PLAIN)
# A last rung that was reached by failures is settled too: else a model that never succeeds would
# be tried at every rung for every request, one at a time.
_SETTLING = (Cause.SCHEMA, Cause.NO_JSON)
_OF_THE_FORMAT = (Cause.BAD_REQUEST, Cause.SCHEMA)
"""Causes with which a server refuses the format or the model's reply in it."""
GIVE_UP_AFTER = 20
"""Failed requests after which a run ends if none was ever answered; retries included."""
_UNANSWERED = (
    *(Cause.TIMEOUT, Cause.RATE_LIMITED, Cause.SERVER_ERROR, Cause.CONNECTION),
    *(Cause.BAD_REQUEST, Cause.FORBIDDEN),
)
_PROBE = Request((Message("user", "Reply with the word OK."),), max_tokens=16, temperature=None)
"""Distinguishes a refused key or an unknown model from one refused prompt."""


@dataclass(slots=True)
class _Batch:
    """Requests that stop together: after the first error no further call of them is sent."""

    error: UserError | None = None

    def check(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass
class _Engine:
    """State of one process: the event loop, the connections, and the calls in progress."""

    process: int
    loop: BackgroundLoop
    client: Any
    slots: asyncio.Semaphore
    pace: Pace
    under_way: dict[bytes, asyncio.Task[RawReply | Failure]] = field(default_factory=dict)
    reserved: set[asyncio.Future[None]] = field(default_factory=set)
    rungs: dict[bytes, Rung] = field(default_factory=dict)
    probing: dict[bytes, _Probing] = field(default_factory=dict)
    admission: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Probing:
    """Limits who may try rungs: one request, until trouble other than the format; then `most`.

    Else a server that hangs would receive one request at a time. Of several that try, the first in
    their order settles the rung, as if they had tried one after the other: runs are repeatable.
    """

    def __init__(self, most: int) -> None:
        self.turns, self._others = asyncio.Semaphore(1), most - 1
        self._running: list[asyncio.Future[None]] = []

    def widen(self) -> None:
        for _ in range(self._others):
            self.turns.release()
        self._others = 0

    @contextmanager
    def trying(self) -> Iterator[list[asyncio.Future[None]]]:
        """Yield the ends of those that began earlier and are still trying."""
        earlier = list(self._running)
        done = asyncio.get_running_loop().create_future()
        self._running.append(done)
        try:
            yield earlier
        finally:
            self._running.remove(done)
            done.set_result(None)


class OpenAIModel(ChatModel):
    """`model` at `base_url`, with `max_in_flight` calls at once and `requests_per_minute` started.

    A call that ends in a timeout (`timeout` seconds for the whole call), a lost connection, 408,
    409, 429 or 5xx is repeated up to `retries` times, first after `first_wait` seconds or the time
    of Retry-After. A wrong key, an unknown model and an unreachable address raise UserError, and so
    do GIVE_UP_AFTER failed requests if none was ever answered: every further call would fail in the
    same way. An account without credit raises BudgetReached. `extra_body` is sent unchanged;
    `temperature` replaces that of every request, None omits it. Without a `cache` no reply is kept.
    """

    libraries = ("openai", "pydantic")

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        key_env: str | None = None,
        cache: ReplyCache | Path | None = None,
        budget: Budget | None = None,
        prices: Prices | None = None,
        max_in_flight: int = 8,
        requests_per_minute: float | None = None,
        timeout: float = 120.0,
        retries: int = 5,
        first_wait: float = 1.0,
        context: int | None = None,
        extra_body: Mapping[str, JSON] | None = None,
        temperature: Temperature = AS_REQUESTED,
        seed: int = 0,
    ) -> None:
        if max_in_flight < 1:
            raise UserError(f"max_in_flight {max_in_flight}: must be at least 1")
        if not timeout > 0:
            raise UserError(f"timeout {timeout}: must be more than 0 seconds")
        if retries < 0 or not first_wait >= 0:
            raise UserError(f"retries {retries}, first_wait {first_wait}: must not be negative")
        self.name, self._context = model, context
        self.address = choose_address(base_url)
        self._key = choose_key(api_key, key_env, self.address)
        self._cache = ReplyCache(cache) if isinstance(cache, Path) else cache
        self.budget = budget or Budget()
        self._price = (prices or Prices()).by_model.get(model)
        self.budget.check_price(model, self._price)
        self._max_in_flight, self._per_minute = max_in_flight, requests_per_minute
        Pace(requests_per_minute)  # an invalid rate is refused now and not at the first call
        self._timeout, self._retries, self._first_wait = timeout, retries, first_wait
        self._extra_body, self._seed = dict(extra_body or {}), seed
        self._temperature = temperature
        self._length_name = "max_tokens"
        self._reached = self._answered = self._admitted = False
        self._unanswered = 0
        self._engine: _Engine | None = None
        self._starting = threading.Lock()
        self.sent = 0
        """Calls sent, retries included."""

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r}, base_url={self.address!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None, "_starting": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._starting = threading.Lock()

    @property
    def context(self) -> int | None:
        """Return the value that was given: no server of this kind reports it."""
        return self._context

    def settings(self) -> Mapping[str, JSON]:
        """Return the model, its address and the additional fields."""
        found = {"model": self.name, "address": self.address, "extra_body": self._extra_body}
        return found | temperature_setting(self._temperature)

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Return an estimate: only the server has the tokenizer."""
        return estimate_messages(messages)

    def complete(self, request: Request) -> Reply | Failure:
        """Answer one request, from the cache or the server."""
        return self.complete_all([request])[0]

    def complete_all(self, requests: Sequence[Request]) -> list[Reply | Failure]:
        """Return one answer per request, in order; equal ones are sent once.

        If a budget or a user's mistake ends it, calls in progress are completed and stored.
        """
        engine = self._start()
        return engine.loop.run(self._all(engine, requests))

    def recall(self, request: Request) -> Reply | Failure | None:
        """Return the cached answer, None if a call would be needed."""
        cache = self._cache
        if cache is None:
            return None
        request = self._as_sent(request)
        known = None if request.schema is None else cache.rung(self._rung_key(request))
        return replied(_conversation(request, known), lambda ask: self._stored(request, ask))

    def open(self) -> None:
        """Start the client. Raise UserError for unusable proxies or certificates."""
        self._start()

    def close(self) -> None:
        """Close connections and the cache; the next request opens them again."""
        if self._engine is not None and self._engine.process == os.getpid():
            self._engine.loop.run(self._engine.client.close())
            self._engine.loop.close()
        self._engine = None
        if self._cache is not None:
            self._cache.close()

    def _start(self) -> _Engine:
        with self._starting:
            # A fork copies the engine but not its thread.
            if self._engine is not None and self._engine.process == os.getpid():
                return self._engine
            try:
                from openai import AsyncOpenAI

                from recallbed.chat_models.http_client import BoundedClient
            except ImportError:
                raise UserError(
                    "chat models on a server need one more package."
                    " Run: pip install 'recallbed[llm]'"
                ) from None
            check_certificates()
            try:
                client = AsyncOpenAI(
                    base_url=self.address,
                    api_key=self._key.value,
                    max_retries=0,
                    timeout=self._timeout,
                    http_client=BoundedClient(self._timeout),
                )
            except Exception as error:  # of anything that the environment names
                raise UserError(client_fault(error, self._key.masked)) from None
            slots = asyncio.Semaphore(self._max_in_flight)
            pace = Pace(self._per_minute)
            self._engine = _Engine(os.getpid(), BackgroundLoop(), client, slots, pace)
            return self._engine

    async def _all(self, engine: _Engine, requests: Sequence[Request]) -> list[Reply | Failure]:
        batch = _Batch()

        async def one(request: Request) -> Reply | Failure | None:
            try:
                return self._counted(await self._answer(engine, batch, self._as_sent(request)))
            except UserError as error:
                batch.error = batch.error or error
                return None

        answers = await asyncio.gather(*map(one, requests))
        batch.check()
        return [answer for answer in answers if answer is not None]

    async def _answer(self, engine: _Engine, batch: _Batch, request: Request) -> Reply | Failure:
        """Answer at the rung that works, which the first request determines alone."""
        if request.schema is None:
            return (await self._converse(engine, batch, request, None))[0]
        place = self._rung_key(request)
        if self._rung(engine, place) is None:
            probing = engine.probing.setdefault(place, _Probing(self._max_in_flight))
            async with probing.turns:
                if self._rung(engine, place) is None:
                    with probing.trying() as earlier:
                        answer, rung = await self._converse(engine, batch, request, None)
                        if earlier:
                            await asyncio.wait(earlier)
                        if self._rung(engine, place) is None:
                            settled = isinstance(answer, Reply) or answer.cause in _SETTLING
                            if rung is not None and settled:
                                cache = self._cache
                                kept = cache.keep_rung(place, rung) if cache else rung
                                engine.rungs[place] = kept
                            return answer
                        if rung is self._rung(engine, place):
                            return answer
        rung = self._rung(engine, place)
        assert rung is not None
        return (await self._converse(engine, batch, request, rung))[0]

    async def _converse(
        self, engine: _Engine, batch: _Batch, request: Request, settled: Rung | None
    ) -> tuple[Reply | Failure, Rung | None]:
        """The answer, and its rung."""
        conversation = _conversation(request, settled)
        ask = next(conversation)
        while True:
            came = await self._reply(engine, batch, request, ask)
            try:
                ask = conversation.send(came)
            except StopIteration as end:
                answer: Reply | Failure = end.value
                return answer, ask.rung

    def _as_sent(self, request: Request) -> Request:
        request = _encodable(at_temperature(request, self._temperature))
        if request.passthrough is None or self._context is None:
            return request
        # Other programs allow as long a reply as the model they were written for can give.
        left = self._context - self.count_tokens(request.prompt)
        return replace(request, max_tokens=min(request.max_tokens, left)) if left > 0 else request

    def _rung(self, engine: _Engine, place: bytes) -> Rung | None:
        if place not in engine.rungs and self._cache is not None:
            stored = self._cache.rung(place)
            if stored is not None:
                engine.rungs[place] = stored
        return engine.rungs.get(place)

    def _rung_key(self, request: Request) -> bytes:
        # A server may accept one schema and refuse another, so each is tried.
        return key_of({**self.settings(), "schema": schema_of(request)})

    def _cache_key(self, request: Request, ask: Ask) -> bytes:
        return key_of({**reply_parts(self.settings(), request, ask), "rung": ask.rung})

    def _stored(self, request: Request, ask: Ask) -> RawReply | None:
        found = self._cache.get(self._cache_key(request, ask)) if self._cache else None
        return None if found is None else RawReply(found.text, found.usage, from_cache=True)

    async def _reply(
        self, engine: _Engine, batch: _Batch, request: Request, ask: Ask
    ) -> RawReply | Failure:
        """One reply: stored, of an equal call in progress, or of a new call."""
        stored = self._stored(request, ask)
        if stored is not None:
            return stored
        key = self._cache_key(request, ask)
        task = engine.under_way.get(key)
        if task is not None:
            came = await asyncio.shield(task)
            return replace(came, from_cache=True) if isinstance(came, RawReply) else came
        task = asyncio.create_task(self._call(engine, batch, request, ask, key))
        engine.under_way[key] = task
        try:
            return await task
        finally:
            engine.under_way.pop(key, None)

    async def _call(
        self, engine: _Engine, batch: _Batch, request: Request, ask: Ask, key: bytes
    ) -> RawReply | Failure:
        """Call until there is a reply or no retry is left; a reply is stored before it is used."""
        used = Usage()
        async with engine.slots:
            for attempt in count(1):
                came = await self._attempt(engine, batch, request, ask)
                if isinstance(came, RawReply):
                    if self._cache is None:
                        return came
                    stored = self._cache.put(key, Stored(came.text, came.usage))
                    return RawReply(stored.text, stored.usage)
                trouble = came
                used += trouble.failure.usage
                if trouble.failure.cause not in _OF_THE_FORMAT:
                    self._share_probing(engine, request)
                if not came.again or attempt > self._retries:
                    break
                wait = backoff(self._seed, key.hex(), attempt, self._first_wait)
                if came.retry_after is not None:
                    # The limit applies to the key, not to this call: all wait.
                    engine.pace.hold(came.retry_after)
                    wait = max(wait, came.retry_after)
                await asyncio.sleep(wait)
            if trouble.denial and not await self._is_admitted(engine, batch):
                raise UserError(trouble.denial)
        if trouble.unreachable and not self._reached:
            raise UserError(f"no server answers at {self.address} ({trouble.failure.detail})")
        return replace(trouble.failure, usage=used)

    def _share_probing(self, engine: _Engine, request: Request) -> None:
        """Let other requests try rungs too: what delays this one is not the format."""
        if request.schema is None:
            return
        probing = engine.probing.get(self._rung_key(request))
        if probing is not None:  # else the rung is known
            probing.widen()

    async def _is_admitted(self, engine: _Engine, batch: _Batch) -> bool:
        """Whether the server accepts the key and the model, so that it refused only one prompt.

        An answered call shows it; before any, _PROBE is sent.
        """
        async with engine.admission:
            if not (self._answered or self._admitted):
                ask = Ask(_PROBE.messages, None)
                came = await self._attempt(engine, batch, _PROBE, ask)
                self._admitted = isinstance(came, RawReply) or came.denial is None
            return self._answered or self._admitted

    def _counted(self, answer: Reply | Failure) -> Reply | Failure:
        """`answer`. Raise UserError for the last of too many failures before the first answer."""
        if self._answered or isinstance(answer, Reply) or answer.cause not in _UNANSWERED:
            return answer
        self._unanswered += 1
        if self._unanswered < GIVE_UP_AFTER:
            return answer
        raise UserError(
            f"{self.address}: the first {self._unanswered} requests failed, retries included (the"
            f" last: {answer.cause}: {answer.detail}). Check the server and the options, then run"
            " this again to resume; failed rows are tried again with --retry-failed"
        )

    async def _attempt(
        self, engine: _Engine, batch: _Batch, request: Request, ask: Ask
    ) -> RawReply | Trouble:
        """One call, within the budget and the rate limit."""
        tokens_in = estimate_messages(request.prompt if request.passthrough else ask.messages)
        held = await self._reserve(engine, batch, tokens_in, request.max_tokens)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        engine.reserved.add(done)
        # A server that reports no usage may bill everything that the call allowed.
        whole = Usage(1, unreported=1, estimated_in=tokens_in, estimated_out=request.max_tokens)
        used = Usage()
        try:
            await asyncio.sleep(engine.pace.turn())
            batch.check()
            used = whole

            def estimate(text: str) -> Usage:
                size = estimate_text(text)
                return Usage(1, unreported=1, estimated_in=tokens_in, estimated_out=size)

            came = await self._post(engine, request, ask)
            if isinstance(came, Trouble):
                used = Usage() if came.free else whole
                return came
            try:
                passed = request.passthrough is not None
                reply, usage = read_completion(came, self._key.masked, estimate, passed)
            except Exception as error:  # anything that one reply causes is a failure of its call
                return self._trouble(error)
            used = usage if usage.calls and not usage.unreported else whole
            if isinstance(reply, RawReply) or reply.failure.cause is not Cause.SERVER_ERROR:
                self._answered = True
            return reply
        finally:
            try:
                self.budget.settle(held, used, self._price)
            finally:
                engine.reserved.discard(done)
                done.set_result(None)
                call_made()

    async def _reserve(
        self, engine: _Engine, batch: _Batch, tokens_in: int, tokens_out: int
    ) -> Reservation:
        """Reserve a part of the budget, waiting for calls that may use less than reserved.

        The first call within a budget is sent alone, since it shows what this server bills.
        """
        while True:
            batch.check()
            alone = self.budget.bounded and not self.budget.measured
            try:
                if not (alone and engine.reserved):
                    return self.budget.reserve(tokens_in, tokens_out, self._price)
            except BudgetReached:
                if not engine.reserved:
                    raise
            await asyncio.wait(engine.reserved, return_when=asyncio.FIRST_COMPLETED)

    async def _post(self, engine: _Engine, request: Request, ask: Ask) -> bytes | Trouble:
        """The body of the completion, or Trouble.

        Raise UserError if no further call can succeed.
        """
        from openai import APIStatusError

        self.sent += 1
        length_name = self._length_name
        parameters = self._parameters(request, ask)
        try:
            async with asyncio.timeout(self._timeout):
                # Raw: the library would turn any JSON into something that looks like a completion.
                response = await engine.client.chat.completions.with_raw_response.create(
                    **parameters
                )
                body: bytes = response.content
        except Exception as error:  # anything that one reply causes is a failure of its call
            self._reached = self._reached or isinstance(error, APIStatusError)
            trouble = self._trouble(error)
            if trouble.length_name and length_name == "max_tokens":
                self._length_name = "max_completion_tokens"
                return await self._post(engine, request, ask)
            return trouble
        self._reached = True
        return body

    def _trouble(self, error: Exception) -> Trouble:
        """Classify an error of a call. Raise UserError if no further call can succeed."""
        try:
            return read_error(error, self.name, self.address, self._key.masked)
        except UserError:
            raise
        except Exception as worse:  # the error itself cannot be read
            line = f"the reply cannot be read ({type(error).__name__}, {type(worse).__name__})"
            return Trouble(Failure(Cause.SERVER_ERROR, line), again=True)

    def _parameters(self, request: Request, ask: Ask) -> dict[str, JSON]:
        sent: dict[str, JSON] = {
            "model": self.name,
            "messages": [{"role": m.role, "content": m.content} for m in ask.messages],
            self._length_name: request.max_tokens,
        }
        if request.temperature is not None:
            sent["temperature"] = request.temperature
        if request.seed is not None:
            sent["seed"] = request.seed
        if request.passthrough is not None:
            sent |= request.passthrough.fields
        elif ask.rung is Rung.JSON_MODE:
            sent["response_format"] = {"type": "json_object"}
        elif ask.rung is Rung.STRICT and request.schema is not None:
            wanted = {
                "name": request.schema.__name__,
                "strict": True,
                "schema": strict_schema(request.schema),
            }
            sent["response_format"] = {"type": "json_schema", "json_schema": wanted}
        if self._extra_body:
            sent["extra_body"] = self._extra_body
        return sent


def _conversation(request: Request, settled: Rung | None) -> Conversation:
    """The conversation over all rungs, or from the rung that is known to work."""
    rungs = LADDER if settled is None else LADDER[LADDER.index(settled) :]
    return converse(request, rungs, settled=settled is not None)


def _encodable(request: Request) -> Request:
    """The request without lone surrogates, which cannot be sent."""
    messages = tuple(
        Message(m.role, m.content.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        for m in request.messages
    )
    return replace(request, messages=messages)
