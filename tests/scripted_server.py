"""An OpenAI-compatible server on 127.0.0.1 that behaves as a test says, and keeps what it saw.

What it does for a request is a function of the request, never of time or order: `choose` maps a
call to a behaviour by name. A fault that passes ("500 then fine") is counted per request. The
`perfect` reply comes from the test, which knows the answer.
"""

from __future__ import annotations

import hashlib
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.kit import HANG, ROOT

JSON = Any
ECHO = (
    "An item of the list reads:\n\n> {answer}\n\nand another says {answer}, which I won't follow."
)


@dataclass(frozen=True)
class Call:
    """One request as the server saw it; `times` counts those with the same body, this included."""

    path: str
    headers: Mapping[str, str]
    """By their names in small letters."""
    body: JSON
    times: int

    @property
    def prompt(self) -> str:
        return "\n".join(message["content"] for message in self.body["messages"])

    @property
    def digest(self) -> int:
        """A number by which faults can be dealt out."""
        wire = json.dumps(self.body["messages"], sort_keys=True).encode()
        return int.from_bytes(hashlib.sha256(wire).digest()[:8])

    @property
    def wants(self) -> str | None:
        """The type of response_format asked for."""
        return (self.body.get("response_format") or {}).get("type")


@dataclass(frozen=True)
class ToolCalls:
    """An answer that calls tools: their names, each with its arguments."""

    calls: tuple[tuple[str, JSON], ...]

    def message(self) -> dict[str, JSON]:
        return {
            "tool_calls": [
                {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for number, (name, arguments) in enumerate(self.calls, start=1)
            ]
        }


Answer = Callable[[Call], JSON]
"""What a perfect model answers, as a JSON value, a bare string or `ToolCalls`."""


@dataclass(frozen=True)
class Raw:
    """A response as it goes over the wire; a body of several pieces is sent until nobody reads."""

    body: bytes | str | Iterable[bytes] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ScriptedServer:
    """See `scripted_server`. Every field may be changed while it runs."""

    answer: Answer
    choose: Callable[[Call], str | Raw]
    key: str | None = None
    refuses: tuple[str, ...] = ()
    """Types of response_format that are answered with 400."""
    retry_after: str = "0"
    count: Callable[[Call, str], tuple[int, int]] | None = None
    """Tells the tokens of a prompt and its reply; without it, a made-up number and words."""
    embed: Callable[[str], list[float]] | None = None
    """Answers requests for embeddings; without it there are none."""
    calls: list[Call] = field(default_factory=list)
    url: str = ""
    most_at_once: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)

    def prompts(self) -> list[str]:
        """The prompts of all calls, in the order of arrival."""
        return [call.prompt for call in self.calls]

    def enter(self, path: str, headers: Mapping[str, str], body: JSON) -> Call:
        with self._lock:
            wire = json.dumps(body, sort_keys=True)
            self.seen[wire] += 1
            call = Call(path, headers, body, self.seen[wire])
            self.calls.append(call)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        return call

    def leave(self) -> None:
        with self._lock:
            self._now -= 1


def completion(
    text: str | None, finish: str | None = "stop", usage: JSON = "count", **message: JSON
) -> JSON:
    """A chat completion; its usage counts words unless another is given."""
    if usage == "count":
        size = len((text or "").split())
        usage = {"prompt_tokens": 10, "completion_tokens": size, "total_tokens": 10 + size}
    reply = {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
    }
    return reply if usage is None else {**reply, "usage": usage}


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _in_lists(value: JSON, change: Callable[[list[Any]], list[Any]]) -> JSON:
    """`value` with every list in it changed."""
    if isinstance(value, list):
        return change([_in_lists(inner, change) for inner in value])
    if isinstance(value, dict):
        return {key: _in_lists(inner, change) for key, inner in value.items()}
    return value


def _counted(server: ScriptedServer, call: Call, text: str) -> JSON:
    """The usage that the test's `count` gives."""
    assert server.count is not None
    tokens_in, tokens_out = server.count(call, text)
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
    return {**usage, "total_tokens": tokens_in + tokens_out}


def _replies(server: ScriptedServer, call: Call, behaviour: str) -> JSON:
    """The completion of a behaviour that answers with 200."""
    answer = server.answer(call)
    if isinstance(answer, ToolCalls):
        message = answer.message()
        usage = _counted(server, call, json.dumps(message)) if server.count else "count"
        return completion(None, finish="tool_calls", usage=usage, **message)
    text = _text(answer)
    wrong = _text(_in_lists(answer, lambda items: items[::-1]))
    if behaviour == "perfect" or behaviour.startswith(("429", "500", "cut once")):
        return completion(text, usage=_counted(server, call, text) if server.count else "count")
    if behaviour == "reversed":
        return completion(wrong)
    if behaviour == "truncated":
        return completion(text[: len(text) // 2], finish="length")
    if behaviour == "unmetered cut":
        return completion(text, finish="length", usage=None)
    if behaviour == "unmetered empty":
        return completion("", usage=None)
    if behaviour == "cut as given":
        return completion(text, finish="length")
    if behaviour == "duplicated":
        return completion(_text(_in_lists(answer, lambda items: items[:1] + items)))
    if behaviour == "out of range":
        return completion(_text(_in_lists(answer, lambda items: [0, -2, 10**6, *items])))
    if behaviour == "prose around":
        return completion(f"Here is what I think.\n\n```json\n{text}\n```\nI hope that helps!")
    if behaviour == "echo":
        return completion(ECHO.format(answer=wrong) + f"\n\n{text}")
    if behaviour == "echo only":
        return completion(ECHO.format(answer=wrong))
    if behaviour == "empty":
        return completion("")
    if behaviour == "refusal":
        return completion(None, refusal="I would rather not.")
    if behaviour == "reasoning first":
        return completion(f"<think>\nAt first I thought:\n{wrong}\n</think>\n\n{text}")
    if behaviour == "reasoning only":
        return completion(f"<think>\nPerhaps\n{wrong}\n")
    if behaviour == "usage missing":
        return completion(text, usage=None)
    if behaviour == "no json":
        return completion("The second one seems best to me.")
    if behaviour == "wrong schema":
        return completion('{"something": "else"}')
    if behaviour == "repaired when asked again":
        again = len(call.body["messages"]) > 1 and call.body["messages"][-2]["role"] == "assistant"
        return completion(text if again else '{"something": "else"}')
    if behaviour == "schema ignored":
        told = "JSON schema" in call.prompt
        return completion(text if told else "I prefer the second one.")
    raise ValueError(f"no behaviour `{behaviour}`")


def _embeddings(embed: Callable[[str], list[float]], body: JSON) -> JSON:
    """A reply with the embedding of each text, as numbers or as the base64 that clients ask for."""
    given = body["input"]
    found: list[JSON] = [embed(text) for text in ([given] if isinstance(given, str) else given)]
    if body.get("encoding_format") == "base64":
        found = [b64encode(struct.pack(f"<{len(one)}f", *one)).decode() for one in found]
    data = [
        {"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(found)
    ]
    usage = {"prompt_tokens": len(found), "total_tokens": len(found)}
    return {"object": "list", "model": "scripted", "data": data, "usage": usage}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Else a body waits 40 ms for the client to acknowledge the headers.
    disable_nagle_algorithm = True
    script: ScriptedServer

    def log_message(self, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        if self.script.stopping.is_set():  # a kept connection to a server that is no more
            self.close_connection = True
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        call = self.script.enter(
            self.path, {name.lower(): value for name, value in self.headers.items()}, body
        )
        try:
            self._behave(call)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _behave(self, call: Call) -> None:
        script = self.script
        told = call.headers.get("authorization", "")
        if script.key is not None and told != f"Bearer {script.key}":
            return self._error(401, f"Incorrect API key provided: {told.removeprefix('Bearer ')}")
        if script.embed and call.path.endswith("/embeddings"):
            return self._send(200, json.dumps(_embeddings(script.embed, call.body)).encode())
        if not call.path.endswith("/chat/completions"):
            return self._error(404, f"nothing at {call.path}")
        if call.wants in script.refuses:
            return self._error(400, f"response_format {call.wants} is not supported")
        behaviour = script.choose(call)
        if isinstance(behaviour, Raw):
            return self._raw(behaviour)
        first = call.times == 1
        if behaviour.startswith("status "):
            return self._error(int(behaviour.split()[1]), f"scripted; you sent {told}")
        if behaviour == "429 then fine" and first:
            return self._error(429, "slow down", {"Retry-After": script.retry_after})
        if behaviour == "500 then fine" and first:
            return self._error(500, "try again")
        if behaviour == "context":
            return self._error(400, "too long", code="context_length_exceeded")
        if behaviour == "wants the newer name":
            return self._error(400, "use max_completion_tokens instead of max_tokens")
        if behaviour == "flagged":
            return self._error(400, "this prompt was flagged", code="content_filter")
        if behaviour == "quota":
            return self._error(429, "no money left", code="insufficient_quota")
        if behaviour == "not chat":
            return self._send(200, b"<html>Welcome</html>", {"Content-Type": "text/html"})
        if behaviour == "hang":
            script.stopping.wait(60)
            script.leave()
            self.close_connection = True
            return None
        if behaviour == "cut" or (behaviour == "cut once" and first):
            return self._cut()
        wire = json.dumps(_replies(script, call, behaviour)).encode()
        return self._send(200, wire)

    def _error(
        self, status: int, line: str, headers: Mapping[str, str] = {}, code: str | None = None
    ) -> None:
        error = {"error": {"message": line, "type": "scripted", "code": code}}
        self._send(status, json.dumps(error).encode(), headers)

    def _send(self, status: int, wire: bytes, headers: Mapping[str, str] = {}) -> None:
        self.script.leave()  # first: the client's next call may come before this method ends
        self.send_response(status)
        told = {"Content-Type": "application/json", **headers, "Content-Length": str(len(wire))}
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(wire)

    def _raw(self, raw: Raw) -> None:
        body = raw.body.encode() if isinstance(raw.body, str) else raw.body
        if isinstance(body, bytes):
            return self._send(raw.status, body, raw.headers)
        self.script.leave()
        self.close_connection = True
        self.send_response(raw.status)
        for name, value in {"Connection": "close", **raw.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in body:
            self.wfile.write(piece)
        return None

    def _cut(self) -> None:
        """Promise more than comes, then drop the connection with a reset."""
        self.script.leave()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"choices": [')
        self.wfile.flush()
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def scripted_server(
    answer: Answer, behaviour: str | Raw | Callable[[Call], str | Raw] = "perfect", **settings: Any
) -> Iterator[ScriptedServer]:
    """A running server. `behaviour` is one for all calls, or chooses by the call."""
    choose = behaviour if callable(behaviour) else lambda call: behaviour
    script = ScriptedServer(answer, choose, **settings)
    handler = type("Handler", (_Handler,), {"script": script})
    server = _Server(("127.0.0.1", 0), handler)
    script.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield script
    finally:
        script.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()


def kill_when(
    server: ScriptedServer, when: Callable[[Call], bool], module: str, *words: object
) -> None:
    """Run a command in a process of its own and kill it at the first call for which `when` holds.

    `server.calls` then holds the calls of the killed process, and all later ones are `perfect`.
    """
    child: list[subprocess.Popen[bytes]] = []

    def kill(call: Call) -> str:
        if when(call) and child[0].poll() is None:
            child[0].kill()
        return "perfect"

    server.calls.clear()
    server.choose = kill
    command = [sys.executable, "-m", module, *map(str, words)]
    child.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL))
    assert child[0].wait(HANG) == -signal.SIGKILL
    server.choose = lambda call: "perfect"
