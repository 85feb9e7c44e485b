"""The workers of a run, each used by one row at a time and by many in turn."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from memory_systems.external.store_folder import StoreFolder
from memory_systems.external.worker_process import Limits, WorkerLost, WorkerProcess
from recallbed.errors import UserError

_LOCK, _USERS = "lock", "users"
_SECONDS_FOR_LOCK = 30.0


class WorkerPool:
    """At most `size` workers of one system, and the folder `root` with the files of its users.

    Workers are started when they are needed. A `root` of None is a temporary folder, removed at the
    end. Safe in threads. Raises UserError if another process uses `root`; workers that a killed
    process left end by themselves, and are waited for.
    """

    def __init__(
        self,
        python: Path,
        script: Path,
        root: Path | None,
        size: int,
        limits: Limits,
    ) -> None:
        self.python, self.script, self.limits = python, script, limits
        self._temporary = root is None
        self._root = Path(tempfile.mkdtemp(prefix="recallbed-")) if root is None else root.resolve()
        self._lock = _locked(self._root / _LOCK)
        self._homes = self._root / "homes"
        shutil.rmtree(self._homes, ignore_errors=True)
        self._homes.mkdir()
        self._free, self._changing = threading.BoundedSemaphore(size), threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._used: set[WorkerProcess] = set()
        self._started, self._has_run = 0, False

    def folder(self, user: str) -> StoreFolder:
        """Return the place of a user's files."""
        name = hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        return StoreFolder(self._root / _USERS / name)

    @property
    def workers(self) -> list[WorkerProcess]:
        """All that were started and did not end."""
        with self._changing:
            return [*self._idle, *self._used]

    def take(self) -> WorkerProcess:
        """Return a worker without an open store, waiting until one is free.

        Raises WorkerLost if it does not start, UserError if none ever did.
        """
        self._free.acquire()
        try:
            worker = self._idle_worker() or self._start()
        except BaseException:
            self._free.release()
            raise
        with self._changing:
            self._used.add(worker)
        return worker

    def give_back(self, worker: WorkerProcess) -> None:
        """Take back a worker whose store is closed, or one that was killed."""
        reusable = worker.running and worker.hello.capabilities.reopen
        with self._changing:
            self._used.discard(worker)
            if reusable:
                self._idle.append(worker)
        if not reusable:
            worker.kill()
        self._free.release()

    def close(self) -> None:
        """End all workers, and remove what belongs to them alone."""
        for worker in self.workers:
            worker.kill()
        shutil.rmtree(self._root if self._temporary else self._homes, ignore_errors=True)
        with suppress(OSError):  # it holds files of users
            (self._root / _USERS).rmdir()
        if not self._temporary and os.listdir(self._root) == [_LOCK]:
            shutil.rmtree(self._root)
        os.close(self._lock)

    def _idle_worker(self) -> WorkerProcess | None:
        while True:
            with self._changing:
                if not self._idle:
                    return None
                worker = self._idle.pop()
            if worker.running:
                return worker
            worker.kill()  # it ended by itself while nobody used it: nothing is lost

    def _start(self) -> WorkerProcess:
        with self._changing:
            self._started += 1
            home = self._homes / str(self._started)
        home.mkdir()
        try:
            worker = WorkerProcess(
                self.python, self.script, home, self.limits, kept_open=[self._lock]
            )
        except WorkerLost as error:
            if self._has_run:
                raise
            raise UserError(
                f"{self.script.name} does not start with {self.python}: {error.cause}"
            ) from error
        self._has_run = True
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _locked(path: Path) -> int:
    """Return the descriptor of a lock file. Raises UserError if another process keeps the lock.

    It is free again when the last process that has the descriptor ended, workers too.
    """
    import fcntl  # POSIX alone has it

    deadline = time.monotonic() + _SECONDS_FOR_LOCK
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        except (BlockingIOError, FileNotFoundError):  # or the one who had the lock removed it
            if time.monotonic() > deadline:
                os.close(file)
                raise UserError(f"{path} is locked by another process. Wait for its end") from None
        os.close(file)
        time.sleep(0.1)
