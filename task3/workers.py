"""Scoring in several processes, with the results of one."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess

from recallbed.errors import UserError
from task3.scoring import Finished, Place, Scorer

_scorer: Scorer | None = None


def _start(frozen: bytes) -> None:
    global _scorer
    # Ctrl-C is the parent's to answer; and a worker must not outlive a parent that was killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, args=(parent_process(),), daemon=True).start()
    _scorer = pickle.loads(frozen)


def _follow(parent: BaseProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(places: Sequence[Place]) -> list[Finished]:
    assert _scorer is not None
    return _scorer.run(places)


def run_tasks(
    scorer: Scorer, tasks: Sequence[Sequence[Place]], workers: int
) -> Iterator[list[Finished]]:
    """The finished rows of each task, in the order of `tasks`, whatever the number of workers.

    Workers are spawned, never forked: a CUDA context or a thread pool doesn't survive a fork. They
    receive the prepared retriever as a pickle. Raises UserError where it can't be pickled, or a
    worker dies.
    """
    if workers == 1 or len(tasks) < 2:
        yield from map(scorer.run, tasks)
        return
    try:
        frozen = pickle.dumps(scorer)
    except UserError as error:
        raise UserError(f"{scorer.label}: {error}") from None
    except Exception as error:
        raise UserError(
            f"{scorer.label}: cannot be sent to worker processes ({error}). Use --workers 1"
        ) from error
    pool = ProcessPoolExecutor(
        min(workers, len(tasks)), get_context("spawn"), initializer=_start, initargs=(frozen,)
    )
    try:
        yield from pool.map(_work, tasks)
    except BrokenProcessPool:
        raise UserError(
            f"{scorer.label}: a worker process died; its own message stands above. A script that"
            " starts workers needs `if __name__ == '__main__':`. Or use --workers 1"
        ) from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
