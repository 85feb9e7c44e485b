"""The store of one user, opened in a worker and watched by the gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from memory_systems.attempt import Attempt
from memory_systems.base import SystemFailure
from memory_systems.external.pool import WorkerPool
from memory_systems.external.protocol import EmptyReply
from memory_systems.external.store_folder import StoreFolder
from memory_systems.external.witness import GAVE_UP, Taken, Witness
from memory_systems.external.worker_process import Limits, WorkerFault, WorkerProcess
from recallbed.chat_models.base import JSON
from recallbed.harness.terminal import debugging, note

T = TypeVar("T")
_LINES_SHOWN = 40
"""Last lines on a worker's stderr that --debug shows after a fault."""


class StoreSession:
    """Lets a worker open `files`, those of `user`, as they were after operation `number`.

    `settings` are passed to the worker's `open`, `limits` bound its operations.
    """

    def __init__(
        self,
        pool: WorkerPool,
        files: StoreFolder,
        witness: Witness,
        user: str,
        number: int,
        settings: Mapping[str, JSON],
        limits: Limits,
    ) -> None:
        self.files, self.number = files, number
        self._pool, self._witness, self._user = pool, witness, user
        self._settings, self._limits = dict(settings), limits
        self._worker: WorkerProcess | None = None
        self._token = ""
        self._is_ready = self._is_open = False

    def run(self, attempt: Attempt, work: Callable[[WorkerProcess], T]) -> T:
        """Return the result of `work` if neither we nor the gateway saw a fault in it.

        After a fault the worker is gone, and the next one finds the files of operation `number`.
        Raises SystemFailure, and the BudgetReached or UserError that the gateway met.
        """
        fault: WorkerFault | None = None
        try:
            result = work(self._opened())
        except WorkerFault as error:
            fault = error
            if debugging() and self._worker is not None:
                note(*self._worker.stderr.splitlines()[-_LINES_SHOWN:])
            self.abandon()
        except BaseException:
            self.abandon()
            attempt.usage += self._taken().usage
            raise
        taken = self._taken()
        attempt.usage += taken.usage
        if taken.error or taken.failures:
            self.abandon()
        if taken.error:
            raise taken.error
        # Calls that ended with the worker are not why it ended.
        causes = [cause for cause in taken.failures if not (fault and cause == GAVE_UP)]
        causes += [fault.cause] if fault else []
        if causes:
            raise SystemFailure(causes[0], attempt.usage) from fault
        return result

    def close_store(self) -> None:
        """Let the worker close the store, so that its files are whole, and serve another row.

        Raises WorkerFault.
        """
        if self._worker is None:
            return
        if self._is_open:
            self._worker.ask("close", EmptyReply)
            self._is_open = False
        self._pool.give_back(self._worker)
        self._worker = None

    def reset(self, attempt: Attempt) -> None:
        """Remove all memories: by the worker if it has the store open, else with the files."""
        self.number = 0
        if self._is_open:
            with suppress(SystemFailure):  # then the worker is gone, and the files are removed
                self.run(attempt, lambda worker: worker.ask("reset", EmptyReply))
        if self._is_open:
            self.files.drop_before(0)
        else:
            self.files.remove()
            self._is_ready = False

    def abandon(self) -> None:
        """Kill the worker; its files are brought back when they are needed."""
        if self._worker is not None:
            self._worker.kill()
            self._pool.give_back(self._worker)
            self._worker = None
        self._is_ready = self._is_open = False

    def leave(self) -> None:
        """Close the store and give the worker back."""
        try:
            self.close_store()
        except WorkerFault:
            self.abandon()
        if self._token:
            self._witness.forget(self._token)
            self._token = ""
        self.files.remove_live()
        self._is_ready = False

    def _opened(self) -> WorkerProcess:
        if self._worker is not None and not self._worker.running:
            self.abandon()  # it ended between two operations
        if not self._token:
            self._token = self._witness.register()
        if self._worker is None:
            self._worker = self._pool.take()
            self._worker.limits = self._limits
        if not self._is_open:
            if not self._is_ready:
                self.files.prepare(self.number)
                self._is_ready = True
            self._worker.ask(
                "open",
                EmptyReply,
                folder=str(self.files.live),
                user=self._user,
                base_url=self._witness.url,
                api_key=self._token,
                settings=self._settings,
            )
            self._is_open = True
        return self._worker

    def _taken(self) -> Taken:
        return self._witness.take(self._token) if self._token else Taken()
