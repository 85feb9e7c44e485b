"""Run a worker file: JSON lines on stdin and stdout. Standard library only, Python 3.11 or newer.

    python -P serve.py WORKER.py

A worker file imports `serve` from `serve` and ends with a call of it. The protocol's pipes are out
of the reach of all that it imports, and so is the network.
"""

import concurrent.futures
import errno
import hashlib
import importlib.metadata
import importlib.util
import ipaddress
import json
import os
import select
import shutil
import signal
import socket
import sys
import threading
import traceback
import types
import uuid
from typing import Any, TextIO

PROTOCOL = 1
OPERATIONS = ("open", "reset", "load", "ingest", "list", "search", "close")
LOOK_UPS = ("getaddrinfo", "gethostbyname", "gethostbyaddr", "getnameinfo")
SENDS = ("connect", "sendto", "sendmsg")
requests: TextIO
replies: TextIO
refused: list[str] = []
"""Hosts that the system tried to reach since the last reply."""
ids_lock = threading.Lock()
ids_made = ("", 0)


def main(path: str) -> None:
    """Run the worker file until stdin ends. Leaked threads and exit handlers cannot keep it."""
    take_pipes()
    refuse_network()
    adopt_orphans()
    threading.Thread(target=end_with_parent, daemon=True).start()
    code = 1
    try:
        run_worker(path)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        kill_daemons()
        os._exit(code)


def serve(worker: Any, *, system: str, version: str, **capabilities: Any) -> None:
    """Announce the system, then answer every request line with one reply line.

    Capabilities: `reopen`, `load` and `search`, which are true, and `reason` if one is not.
    """
    about = {"system": system, "version": version, "capabilities": capabilities}
    replies.write(json.dumps({"hello": {"protocol": PROTOCOL, **about}}) + "\n")
    replies.flush()
    opened: dict[str, Any] = {}
    for line in requests:
        request = json.loads(line)
        op, args = request["op"], request["args"]
        try:
            if op not in OPERATIONS:
                raise ValueError(f"no operation is called {op}")
            if op == "reset" and not hasattr(worker, "reset"):
                worker.close()
                remove_content(opened["folder"])
                reply = worker.open(**opened)
            else:
                reply = getattr(worker, op)(**args)
            opened = args if op == "open" else opened
            text = json.dumps({"id": request["id"], "ok": reply or {}, **take_refused()})
        except Exception as error:
            traceback.print_exc()
            fault = {"type": type(error).__name__, "text": str(error)[:2000]}
            text = json.dumps({"id": request["id"], "error": fault, **take_refused()})
        sys.stderr.flush()
        replies.write(text + "\n")
        replies.flush()


def take_pipes() -> None:
    """Move the protocol's pipes, so that no library reads, prints or hands them to a child."""
    global requests, replies
    requests = os.fdopen(os.dup(0), encoding="ascii")
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr


def end_with_parent() -> None:
    """Kill this process and its children when the other end of the requests' pipe is closed."""
    poll = select.poll()
    poll.register(requests.fileno(), 0)
    poll.poll()
    kill_daemons()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of daemons that the system starts, so that they are found."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    except (ImportError, OSError, AttributeError):
        pass


def kill_daemons() -> None:
    """Kill all descendants of this process, where /proc lists them, whatever their group."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                # The name of the program, in parentheses, may hold anything.
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    for pid in found - {os.getpid()}:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def refuse_network() -> None:
    """Let every look-up and connection fail except those to this machine, for good."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if not event.startswith("socket."):
            return
        name = event[len("socket.") :]
        if name in LOOK_UPS:
            host = args[0][0] if name == "getnameinfo" else args[0]
            if not is_local(host):
                refused.append(text_of(host))
                raise socket.gaierror(socket.EAI_NONAME, f"network refused: {text_of(host)}")
        elif name in SENDS and isinstance(args[1], tuple) and not is_local(args[1][0]):
            refused.append(text_of(args[1][0]))
            raise PermissionError(errno.EACCES, f"network refused: {refused[-1]}")

    sys.addaudithook(hook)


def is_local(host: Any) -> bool:
    """Return whether a host, as a name or an address, is this machine."""
    name = text_of(host)
    if name in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def text_of(host: Any) -> str:
    """Return a host as text; none is empty."""
    if isinstance(host, (bytes, bytearray)):
        return bytes(host).decode("ascii", "replace")
    return "" if host is None else str(host)


def run_worker(path: str) -> None:
    """Run the worker file as a module, which may import this one as `serve`."""
    sys.modules["serve"] = sys.modules[__name__]
    spec = importlib.util.spec_from_file_location("worker", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["worker"] = module
    spec.loader.exec_module(module)


def repeat_ids(seed: str) -> None:
    """Let uuid.uuid4 return ids that depend on `seed` and on how many were made since this call.

    Systems put random ids into prompts, which then are never found in a cache of replies. Call it
    before the system is imported, then at each operation that stores something, with a seed of all
    that the operation depends on: the same seed for another state of the store could give an id
    that the store holds.
    """
    global ids_made
    with ids_lock:
        ids_made = (seed, 0)
    uuid.uuid4 = repeated_id


def repeated_id() -> uuid.UUID:
    """Return the next id of the seed."""
    global ids_made
    with ids_lock:
        ids_made = (ids_made[0], ids_made[1] + 1)
        return uuid.UUID(bytes=hashlib.sha256(repr(ids_made).encode()).digest()[:16], version=4)


class OneThread(concurrent.futures.ThreadPoolExecutor):
    """Does one thing after the other, in the order in which they are given.

    It replaces the pools of a system, so that two runs store and ask in the same order.
    """

    def __init__(self, *sizes: Any, **settings: Any) -> None:
        super().__init__(max_workers=1)


class GatewayEncoder:
    """What systems use of SentenceTransformer, without torch: the gateway makes the embeddings.

    `client` is the OpenAI client to ask; set it when a store is opened.
    """

    client: Any = None

    def __init__(self, *names: Any, **settings: Any) -> None:
        pass

    def encode(self, texts: list[str], **settings: Any) -> Any:
        """Return a numpy array with one row of float32 for each text."""
        import numpy

        given = self.client.embeddings.create(model="embedder", input=list(texts))
        return numpy.array([one.embedding for one in given.data], dtype=numpy.float32)


def stand_in(name: str, **parts: Any) -> None:
    """Let `import name` find a module that holds only `parts`, for a package that is not needed."""
    module = types.ModuleType(name)
    vars(module).update(parts)
    sys.modules[name] = module


def pairs(turns: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return what the user said with what was replied; turns without the other have a blank."""
    found: list[tuple[str, str]] = []
    said: list[str] = []
    for turn in turns:
        if turn["role"] == "user":
            said.append(turn["text"])
        else:
            found.append(("\n".join(said) or " ", turn["text"]))
            said = []
    return [*found, ("\n".join(said), " ")] if said else found


def tokenizer_files() -> str:
    """Return the value of TIKTOKEN_CACHE_DIR with which tiktoken downloads nothing.

    The package litellm carries the files of its encodings.
    """
    package = importlib.metadata.distribution("litellm")
    return str(package.locate_file("litellm/litellm_core_utils/tokenizers"))


def take_refused() -> dict[str, list[str]]:
    """Return the refused hosts as a field of a reply, none if there were none."""
    found = refused[:]
    del refused[: len(found)]
    return {"refused": found} if found else {}


def remove_content(folder: str) -> None:
    """Remove all that a folder holds."""
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


if __name__ == "__main__":
    main(sys.argv[1])
