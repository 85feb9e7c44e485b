"""The workers of a run, each used by one row at a time and by many in turn."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from memory_systems.external.store_folder import StoreFolder
from memory_systems.external.worker_process import Limits, WorkerLost, WorkerProcess
from recallbed.errors import UserError

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
        self._root.mkdir(parents=True, exist_ok=True)
        self._lock_file = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._lock_file, self._root)
        except BaseException:
            os.close(self._lock_file)
            raise
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
        return StoreFolder(self._root / "users" / name)

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
        with self._changing:
            workers = [*self._idle, *self._used]
            self._idle.clear()
            self._used.clear()
        for worker in workers:
            worker.kill()
        shutil.rmtree(self._homes, ignore_errors=True)
        os.close(self._lock_file)
        if self._temporary:
            shutil.rmtree(self._root, ignore_errors=True)

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
                self.python, self.script, home, self.limits, kept_open=[self._lock_file]
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _lock(file: int, root: Path) -> None:
    """Lock an open file. The lock ends with the last process that holds `file`, workers too."""
    import fcntl  # POSIX alone has it

    deadline = time.monotonic() + _SECONDS_FOR_LOCK
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise UserError(f"{root} is used by another process. Wait for its end") from None
            time.sleep(0.1)
