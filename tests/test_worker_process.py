"""Workers in real processes: what they answer, and every way in which they fail."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from memory_systems.external.protocol import (
    Capabilities,
    EmptyReply,
    ListReply,
    LoadReply,
    SearchReply,
)
from memory_systems.external.worker_process import (
    STDERR_KEPT,
    Limits,
    WorkerError,
    WorkerLost,
    WorkerProcess,
)
from recallbed.errors import UserError
from tests.kit import HANG

HERE = Path(__file__).parent
FAKE, FAULTY = HERE / "fake_worker.py", HERE / "faulty_worker.py"
PYTHON = Path(sys.executable)
LIMITS = Limits(HANG, HANG, reply_bytes=2_000_000, stderr_bytes=2_000_000)


@contextmanager
def started(
    folder: Path, script: Path = FAULTY, limits: Limits = LIMITS
) -> Iterator[WorkerProcess]:
    home = folder / "home"
    home.mkdir(exist_ok=True)
    worker = WorkerProcess(PYTHON, script, home, limits)
    try:
        yield worker
    finally:
        worker.kill()


@contextmanager
def opened(folder: Path, script: Path = FAULTY, limits: Limits = LIMITS) -> Iterator[WorkerProcess]:
    with started(folder, script, limits) as worker:
        open_store(worker, folder)
        yield worker


def open_store(worker: WorkerProcess, folder: Path) -> None:
    store = folder / "store"
    store.mkdir(exist_ok=True)
    where = {"base_url": "http://127.0.0.1:9/v1", "api_key": "key", "settings": {}}
    worker.ask("open", EmptyReply, folder=str(store), user="ann", **where)


def ingest(worker: WorkerProcess, *texts: str) -> None:
    turns = [{"role": "user", "text": text} for text in texts]
    worker.ask("ingest", EmptyReply, turns=turns, time="2025-01-01T00:00:00+00:00")


def texts(worker: WorkerProcess) -> list[str]:
    return [memory.text for memory in worker.ask("list", ListReply).memories]


def gone(pid: int) -> bool:
    """Whether a process ends; one that nobody waits for counts as ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_every_operation(tmp_path: Path) -> None:
    with opened(tmp_path, FAKE) as worker:
        assert (worker.hello.system, worker.hello.version) == ("notebook", "1.0")
        assert worker.hello.capabilities == Capabilities()
        given = [{"text": "my tea is oolong"}, {"text": "my bike is green"}]
        assert worker.ask("load", LoadReply, items=given).ids == ["1", "2"]
        ingest(worker, "my bike is red now", "my dog is called Pépé \u2028 🐶")
        wanted = ["my tea is oolong", "my bike is red now", "my dog is called Pépé \u2028 🐶"]
        assert texts(worker) == wanted
        hits = worker.ask("search", SearchReply, query="my red bike", k=2).hits
        assert [(hit.id, hit.score) for hit in hits] == [("2", 3), ("1", 1)]
        worker.ask("close", EmptyReply)
        open_store(worker, tmp_path)
        assert texts(worker) == wanted
        worker.ask("reset", EmptyReply)
        assert texts(worker) == []


def test_a_store_outlives_its_worker(tmp_path: Path) -> None:
    with opened(tmp_path, FAKE) as worker:
        ingest(worker, "my dog is old")
        worker.ask("close", EmptyReply)
        worker.kill()
    with opened(tmp_path, FAKE) as worker:
        assert texts(worker) == ["my dog is old"]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("exit 1", "the worker ended with code 1 during ingest"),
        ("kill itself", "the worker was ended by SIGKILL during ingest"),
        ("write garbage", "the worker wrote something other than a reply"),
        ("reply twice", "the worker wrote something other than a reply"),
        ("flood", "the worker flooded stderr (reason: during ingest)"),
        ("long line", "the worker's reply is too long (reason: to ingest)"),
    ],
)
def test_a_worker_is_lost(fault: str, cause: str, tmp_path: Path) -> None:
    with opened(tmp_path) as worker:
        with pytest.raises(WorkerLost) as lost:
            ingest(worker, f"fault {fault}")
        assert str(lost.value).startswith(cause)
        assert "\n" not in lost.value.cause
        assert not worker.running
        with pytest.raises(WorkerLost, match="was killed"):
            ingest(worker, "my dog is old")


def test_a_worker_that_hangs_is_lost_in_time(tmp_path: Path) -> None:
    with opened(tmp_path) as worker:
        worker.limits = replace(LIMITS, seconds=0.5)
        with pytest.raises(WorkerLost, match=r"no reply to ingest in 0\.5 s"):
            ingest(worker, "fault hang")
        assert not worker.running


def test_the_last_line_on_stderr_is_the_reason(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text("import sys\nprint('one')\nprint('two', file=sys.stderr)\nimport missing_one")
    with pytest.raises(WorkerLost) as lost, started(tmp_path, script):
        pass
    assert str(lost.value) == (
        "the worker ended with code 1 during start"
        " (reason: ModuleNotFoundError: No module named 'missing_one')"
    )


def test_a_worker_that_announces_nothing(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text("")
    with pytest.raises(WorkerLost, match="code 0 during start"), started(tmp_path, script):
        pass


def test_a_raised_error_leaves_the_worker(tmp_path: Path) -> None:
    with opened(tmp_path) as worker:
        with pytest.raises(WorkerError) as error:
            ingest(worker, "fault raise error")
        assert (error.value.type, error.value.text) == ("KeyError", "'no such note'")
        assert error.value.cause == "the system raised KeyError (reason: 'no such note')"
        ingest(worker, "my dog is old")
        assert texts(worker) == ["my dog is old"]


def test_prints_are_no_replies(tmp_path: Path) -> None:
    """Neither Python's, nor those of a child, nor those of native code."""
    with opened(tmp_path) as worker:
        ingest(worker, "fault print garbage", "my dog is old")
        assert texts(worker) == ["my dog is old"]
        assert "this is no reply\nnor is this\nnor this\n" in worker.stderr


def test_requests_are_no_input(tmp_path: Path) -> None:
    with opened(tmp_path) as worker:
        ingest(worker, "fault read input")
        assert worker.ask("list", ListReply).context == ["''", "b''"]


def test_the_end_of_stderr_is_kept(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text("print('x' * 500_000 + 'the end')\nraise SystemExit(3)")
    with pytest.raises(WorkerLost) as lost, started(tmp_path, script):
        pass
    assert lost.value.cause.startswith("the worker ended with code 3 during start (reason: xxx")
    assert len(lost.value.cause) < 300
    assert STDERR_KEPT == 65_536


def test_a_leaked_thread_does_not_keep_a_worker(tmp_path: Path) -> None:
    with opened(tmp_path) as worker:
        ingest(worker, "fault leak thread")
        worker.kill()
        assert not worker.running


@pytest.mark.skipif(sys.platform != "linux", reason="daemons are found in /proc")
@pytest.mark.parametrize("fault", ["leak child", "hang", "exit 1"])
def test_children_end_with_a_worker(fault: str, tmp_path: Path) -> None:
    with opened(tmp_path) as worker:
        ingest(worker, "fault leak child")
        child, daemon = map(int, worker.ask("list", ListReply).context)
        if fault != "leak child":
            worker.limits = replace(LIMITS, seconds=0.5)
            with pytest.raises(WorkerLost):
                ingest(worker, f"fault {fault}")
        worker.kill()
        assert gone(child)
        assert gone(daemon)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_ends_with_its_parent(busy: bool, tmp_path: Path) -> None:
    """A run that is killed cannot end its workers, and they may be in the middle of something."""
    marker = tmp_path / "killed"
    code = f"""
import os
from pathlib import Path
from tests.test_worker_process import ingest, opened
with opened(Path({str(tmp_path)!r})) as worker:
    print(worker._process.pid, flush=True)
    {f'ingest(worker, "fault kill parent once {marker}")' if busy else "os.kill(os.getpid(), 9)"}
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE.parent, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert marker.exists() == busy
    assert gone(int(done.stdout))


def test_a_worker_has_no_keys_and_no_proxies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "HTTPS_PROXY", "PYTHONPATH", "ANYTHING"):
        monkeypatch.setenv(name, "mine")
    with opened(tmp_path) as worker:
        ingest(worker, "fault show environment")
        found = dict(line.split("=", 1) for line in worker.ask("list", ListReply).context)
    assert found.pop("HOME") == str(tmp_path / "home")
    assert found.keys() - {"LC_CTYPE"} <= {
        *("HF_HUB_OFFLINE", "LANG", "OMP_NUM_THREADS", "PATH"),
        *("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUTF8", "TZ"),
    }
    assert (found["TZ"], found["PYTHONHASHSEED"], found["HF_HUB_OFFLINE"]) == ("UTC", "0", "1")


def test_no_system_reaches_the_network(tmp_path: Path) -> None:
    with opened(tmp_path) as worker:
        ingest(worker, "fault use network")
        shown = worker.ask("list", ListReply).context
        assert len(shown) == 6
        assert all("network refused" in line for line in shown)
        hosts = ["192.0.2.1", "example.org", "example.com", "telemetry.invalid", "192.0.2.2"]
        assert worker.refused == [*hosts, "2001:db8::1"]


def test_a_system_reaches_this_machine(tmp_path: Path) -> None:
    with opened(tmp_path) as worker:
        ingest(worker, "fault use loopback")
        assert worker.refused == []


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        ('{"hello": {"protocol": 2, "system": "a", "version": "1"}}', "protocol: Input should be"),
        ('{"hello": {"protocol": 1, "system": "a"}}', "version: Field required"),
        ('{"hello": {"protocol": 1, "system": "a", "version": 1}}', "version: Input should be"),
        (
            '{"hello": {"protocol": 1, "system": "a", "version": "", "capabilities": {"x": 1}}}',
            "capabilities.x: Extra inputs are not permitted",
        ),
        ('{"id": 1}', "the first message: Input should be"),
        ("[]", "the first message: []"),
        ("[" * 100_000, "the first message: [[["),
    ],
)
def test_a_hello_that_breaks_the_protocol(hello: str, reason: str, tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        f"import serve\nserve.replies.write({hello!r} + '\\n')\n"
        "serve.replies.flush()\nserve.requests.read()"
    )
    with pytest.raises(WorkerLost) as lost, started(tmp_path, script):
        pass
    assert reason in str(lost.value)


@pytest.mark.parametrize(
    ("method", "reply", "reason"),
    [
        ("list", "{'memories': [{'id': 1, 'text': 'a'}]}", "memories.0.id: Input should be"),
        ("list", "{'memories': [{'id': 'a'}]}", "memories.0.text: Field required"),
        ("list", "{'memories': 2 * [{'id': 'a', 'text': 'b'}]}", "an id is listed twice"),
        ("list", "[]", "memories: Field required"),
        ("list", "'all'", "Input should be"),
        ("list", "{'memories': [{'id': '', 'text': 'b'}]}", "memories.0.id: String should have"),
    ],
)
def test_a_reply_that_breaks_the_protocol(
    method: str, reply: str, reason: str, tmp_path: Path
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        "from serve import serve\nclass Odd:\n    def list(self):\n"
        f"        return {reply}\nserve(Odd(), system='odd', version='1')\n"
    )
    with started(tmp_path, script) as worker, pytest.raises(WorkerLost) as lost:
        worker.ask(method, ListReply)
    assert str(lost.value).startswith("the worker did not follow the protocol (reason: reply to")
    assert reason in str(lost.value)


def test_a_reply_that_is_no_json_is_an_error_of_the_system(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(
        "from serve import serve\nclass Odd:\n    def list(self):\n"
        "        return {'memories': {1, 2}}\nserve(Odd(), system='odd', version='1')\n"
    )
    with started(tmp_path, script) as worker:
        with pytest.raises(WorkerError, match="set is not JSON serializable"):
            worker.ask("list", ListReply)
        with pytest.raises(WorkerError, match="no operation is called sing"):
            worker.ask("sing", EmptyReply)
        with pytest.raises(WorkerError, match="has no attribute 'load'"):
            worker.ask("load", LoadReply, items=[])


def test_a_python_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        WorkerProcess(tmp_path / "python", FAKE, tmp_path)
    assert str(error.value) == f"{tmp_path / 'python'}: cannot be run (No such file or directory)"


def test_a_request_longer_than_a_pipe(tmp_path: Path) -> None:
    with opened(tmp_path, FAKE) as worker:
        text = "my note " + "very " * 200_000
        ingest(worker, text)
        assert texts(worker) == [text]
