"""A process that runs a memory system, and the operations that it is asked for."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO, TypeVar

from pydantic import ValidationError

from memory_systems.external.protocol import Hello, ProtocolMessage
from recallbed.chat_models.base import JSON
from recallbed.errors import UserError
from recallbed.harness.failures import with_reason

M = TypeVar("M", bound=ProtocolMessage)
SERVE = Path(str(files("memory_systems"))) / "external" / "workers" / "serve.py"
STDERR_KEPT = 65_536
_CHUNK = 65_536
_SECONDS_TO_END = 5.0
_TICK = 0.1
"""Seconds between two looks at whether the process still runs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one operation: seconds, bytes of its reply, and bytes on stderr meanwhile.

    `start_seconds` bounds the time from the start to the first message.
    """

    seconds: float = 600.0
    start_seconds: float = 600.0
    reply_bytes: int = 64 * 2**20
    stderr_bytes: int = 64 * 2**20


class WorkerFault(Exception):
    """An operation without a usable reply. `cause` counts it, with a reason in parentheses."""

    def __init__(self, cause: str, reason: str = "") -> None:
        self.cause = with_reason(cause, reason)
        super().__init__(self.cause)


class WorkerLost(WorkerFault):
    """The worker ended, was silent for too long, or did not follow the protocol. It was killed."""


class WorkerError(WorkerFault):
    """The system raised an exception of the class `type`."""

    def __init__(self, type: str, text: str) -> None:  # noqa: A002
        self.type, self.text = type, text
        super().__init__(f"the system raised {_line(type)}", _line(text))


class WorkerProcess:
    """A worker in a session and an environment of its own, started by the constructor.

    `python` runs the worker file `script` in `folder`, which is also its home. `kept_open` are file
    descriptors that stay open as long as the worker or a child of it runs. It serves one thread.
    Raises WorkerLost if its first message does not come, UserError if `python` cannot be run.
    """

    def __init__(
        self,
        python: Path,
        script: Path,
        folder: Path,
        limits: Limits = Limits(),
        kept_open: Sequence[int] = (),
    ) -> None:
        self.limits = limits
        self.refused: list[str] = []
        """Hosts outside this machine that the system tried to reach, which was refused."""
        self._number, self._unread, self._stderr = 0, b"", bytearray()
        self._killed = False
        try:
            self._process = subprocess.Popen(
                [python, "-P", "-s", SERVE, script.resolve()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=_environment(folder),
                bufsize=0,
                pass_fds=kept_open,
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"{python}: cannot be run ({error.strerror})") from error
        for pipe in self._pipes:
            os.set_blocking(pipe.fileno(), False)
        seconds = limits.start_seconds
        try:
            first = self._object(self._exchange(b"", seconds, "start"), "the first message")
            self.hello = self._checked(Hello, first.get("hello"), "the first message")
        except BaseException:
            self.kill()
            raise

    @property
    def running(self) -> bool:
        """Whether the process can be asked something."""
        return not self._killed and not self._ended()

    @property
    def stderr(self) -> str:
        """The end of what it wrote to stderr, at most 64 KB."""
        with suppress(BlockingIOError, ValueError):  # nothing more, or closed
            for _ in range(16):  # a flood has no end
                self._keep(os.read(self._pipes[2].fileno(), _CHUNK))
        return self._stderr.decode("utf-8", "replace")

    def ask(self, op: str, reply: type[M], **args: JSON) -> M:
        """Return the reply to an operation. Raises WorkerLost; WorkerError if the system raised."""
        self._number += 1
        request = {"id": self._number, "op": op, "args": args}
        line = json.dumps(request).encode() + b"\n"
        try:
            answer = self._object(self._exchange(line, self.limits.seconds, op), f"reply to {op}")
            if answer.get("id") != self._number:
                raise self._lost("the worker wrote something other than a reply", f"after {op}")
            refused = answer.get("refused")
            self.refused += map(str, refused) if isinstance(refused, list) else ()
            error = answer.get("error")
            if isinstance(error, dict):
                raise WorkerError(str(error.get("type")), str(error.get("text")))
            return self._checked(reply, answer.get("ok"), f"reply to {op}")
        except WorkerError:
            raise
        except BaseException:  # Ctrl-C too: the reply would be taken for that of the next operation
            self.kill()
            raise

    def kill(self) -> None:
        """End the process, its group and the daemons that it started, and wait for its end.

        The worker does so itself as soon as the pipes are closed. If it cannot, its group is killed
        after a few seconds.
        """
        if self._killed:
            return
        self._killed = True
        for pipe in self._pipes:
            pipe.close()
        deadline = time.monotonic() + _SECONDS_TO_END
        while not self._ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        # The group exists until its leader is waited for, so that nobody else has its number.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def _pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        process = self._process
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert None not in (stdin, stdout, stderr)
        return stdin, stdout, stderr  # type: ignore[return-value]

    def _ended(self) -> bool:
        """Whether the process ended; it is not waited for, see `kill`."""
        if self._process.returncode is not None:
            return True
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, flags) is not None

    def _exchange(self, line: bytes, seconds: float, op: str) -> bytes:
        """Write `line` and return the line that comes back, reading stderr all the while."""
        if self._killed:
            raise WorkerLost("the worker was killed")
        stdin, stdout, stderr = self._pipes
        deadline = time.monotonic() + seconds
        unsent, read, noise = memoryview(line), bytearray(self._unread), 0
        searched = 0
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stderr, selectors.EVENT_READ)
            if line:
                selector.register(stdin, selectors.EVENT_WRITE)
            while True:
                ended = self._ended()  # before reading: its last words are still read
                ready = selector.select(0 if ended else _TICK)
                for key, _ in ready:
                    if key.fileobj is stdin:
                        unsent = unsent[_written(stdin, unsent) :]
                        if not unsent:
                            selector.unregister(stdin)
                        continue
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is stderr:
                        noise += len(chunk)
                        self._keep(chunk)
                    else:
                        read += chunk
                end = read.find(b"\n", searched)
                searched = len(read)
                if end >= 0:
                    self._unread = bytes(read[end + 1 :])
                    return bytes(read[:end])
                if len(read) > self.limits.reply_bytes:
                    raise self._lost("the worker's reply is too long", f"to {op}")
                if noise > self.limits.stderr_bytes:
                    raise self._lost("the worker flooded stderr", f"during {op}")
                if ended and not ready:
                    raise self._lost(f"the worker {self._ending()} during {op}")
                if time.monotonic() > deadline:
                    raise self._lost(f"no reply to {op} in {seconds:g} s")

    def _keep(self, chunk: bytes) -> None:
        self._stderr += chunk
        del self._stderr[:-STDERR_KEPT]

    def _ending(self) -> str:
        status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        assert status is not None
        if status.si_code == os.CLD_EXITED:
            return f"ended with code {status.si_status}"
        with suppress(ValueError):
            return f"was ended by {signal.Signals(status.si_status).name}"
        return f"was ended by signal {status.si_status}"

    def _lost(self, cause: str, reason: str = "") -> WorkerLost:
        """A fault with `reason`, or else with the last line on stderr, which often explains it."""
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        return WorkerLost(cause, reason or (_line(lines[-1]) if lines else ""))

    def _object(self, line: bytes, what: str) -> Mapping[str, JSON]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            shown = _line(line[:200].decode("utf-8", "replace"))
            raise self._lost("the worker wrote something other than a reply", f"{what}: {shown}")
        return found

    def _checked(self, model: type[M], value: JSON, what: str) -> M:
        try:
            return model.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise self._lost(
                "the worker did not follow the protocol",
                _line(f"{what}: {place and f'{place}: '}{first['msg']}"),
            ) from None


def _environment(folder: Path) -> dict[str, str]:
    """The whole environment of a worker: no keys and no proxies of the user."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **kept,
        "HOME": str(folder),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        "TZ": "UTC",
    }


def _written(pipe: IO[bytes], data: memoryview) -> int:
    """How many bytes of `data` the pipe took; all of it if nobody reads any more."""
    try:
        return os.write(pipe.fileno(), data[:_CHUNK])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)


def _line(text: str) -> str:
    """`text` on one line of at most 200 characters, safe to print and to store."""
    line = " ".join(text.split()).encode("utf-8", "replace").decode()
    return line if len(line) <= 200 else line[:199] + "…"
