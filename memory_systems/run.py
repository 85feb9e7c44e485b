"""A run of a memory system over the rows of a task: each row a user of its own, done afresh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from memory_systems.base import MemorySystem, SystemFailure
from memory_systems.item_json import writable
from memory_systems.options import TaskOptions
from memory_systems.task_parts import Parts, open_parts
from recallbed.chat_models.dry_run import Plan
from recallbed.chat_models.session import open_chats
from recallbed.errors import UserError
from recallbed.harness.cause import cause_of
from recallbed.harness.failures import Failures
from recallbed.harness.files import file_name, write_atomically
from recallbed.harness.fingerprint import canonical, short_hash
from recallbed.harness.item_run import Done, is_item_row, run_items
from recallbed.harness.progress import progress
from recallbed.harness.run_folder import PREDICTIONS, SUMMARY, RunFolder, encode_row, open_run

JSON = Any
R = TypeVar("R")
STORE = "memory.sqlite"


@dataclass(frozen=True, slots=True)
class Task(Generic[R]):
    """What a task adds to a run.

    `rows` are its rows by benchmark_id, in file order; `data` says in the fingerprint which they
    are, `settings` whatever else of the task can change a result. `work` does a row with a system
    that was opened for it and knows nothing yet; its result is JSON, and a SystemFailure fails that
    row alone. `predictions` makes the prediction rows of a row and its result (official ones for
    tasks 1 and 2). `summarise` adds to the summary what it finds in all results. `systems` are
    memory systems of this task alone, as package.module:Class, by the names that they have here.
    """

    name: str
    rows: Mapping[str, R]
    data: Mapping[str, JSON]
    work: Callable[[MemorySystem, R], JSON]
    predictions: Callable[[R, JSON], Sequence[JSON]]
    summarise: Callable[[Sequence[JSON]], Mapping[str, JSON]] = lambda results: {}
    systems: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where a finished run lies, and its summary (the content of summary.json)."""

    path: Path
    summary: Mapping[str, JSON]


def run_task(options: TaskOptions, task: Task[R]) -> Outcome:
    """Do every row of `task`, or what is left of them; write rows, predictions and summary.

    Raises UserError for faulty options, for a folder that holds another run, where the budget is
    reached, and where not one row could be done.
    """
    with open_chats(options.chats) as chats:
        parts = open_parts(options, task.systems, chats)
        fingerprint = {
            "task": task.name,
            "data": dict(task.data),
            "settings": dict(task.settings),
            **parts.fingerprint(),
        }
        path, on_existing = options.out, options.on_existing
        if path is None:
            name = file_name(f"{task.name}-{options.system}")[:60]
            path = Path("runs") / f"{name}-{short_hash(fingerprint)}"
            on_existing = "resume" if on_existing == "refuse" else on_existing
        with open_run(path, fingerprint, on_existing, sound=is_item_row) as folder:
            if not folder.rows:  # a store of other rows may lie there
                for file in path.glob(f"{STORE}*"):
                    file.unlink()
            with parts.stored_in(path / STORE):
                run_items(
                    folder,
                    {name: partial(_do, parts, task, name) for name in task.rows},
                    label=f"{task.name} {options.system}",
                    in_flight=options.chats.in_flight,
                    retry_failed=options.retry_failed,
                    keep_going=options.keep_going,
                )
            summary = _finish(folder, task, parts)
    if not summary["rows"]["done"]:
        failures = Failures(row["error"] for row in folder.rows)
        raise UserError(f"{path}: not one of {len(task.rows)} rows could be done ({failures})")
    return Outcome(path, summary)


def plan_task(options: TaskOptions, task: Task[R]) -> Mapping[str, Plan]:
    """By the models' names, what `run_task` would send. Nothing is sent, and no folder written.

    Raises UserError as `run_task` does, and where no model would be asked.
    """
    with open_chats(replace(options.chats, dry_run=True)) as chats:
        parts = open_parts(options, task.systems, chats)
        with progress(f"{task.name}, dry run", len(task.rows)) as advance:
            for name in task.rows:
                _do(parts, task, name)
                advance(1)
        plans = chats.plans()
    if not plans:
        raise UserError("--dry-run: nothing here asks a chat model")
    return plans


def _do(parts: Parts, task: Task[R], name: str) -> Done:
    """One row, by a system of its own; what an interrupted run left of it is forgotten first."""
    system = parts.system()
    result, error = None, None
    try:
        system.open(name)
        system.clear()
        result = writable(task.work(system, task.rows[name]))
    except SystemFailure as failure:
        error = str(failure.cause)
    except (UserError, OSError, MemoryError):
        raise
    except Exception as crash:  # of anyone's class: counted like a failure, in its words
        error = cause_of(crash)
    finally:
        system.close()
    used = system.take_usage()
    return Done(
        result,
        used.calls,
        used.estimate_in,
        used.estimate_out,
        None if error is None else " ".join(writable(error).split()),
    )


def _finish(folder: RunFolder, task: Task[R], parts: Parts) -> dict[str, JSON]:
    done = [row for row in folder.rows if row["error"] is None]
    lines = [
        encode_row(prediction)
        for row in done
        for prediction in task.predictions(task.rows[row["item"]], row["result"])
    ]
    write_atomically(folder.path / PREDICTIONS, b"".join(lines))
    failures = Failures(row["error"] for row in folder.rows)
    calls, tokens_in, tokens_out = (
        sum(row[key] for row in folder.rows) for key in ("calls", "tokens_in", "tokens_out")
    )
    summary = {
        "task": task.name,
        "data": dict(task.data),
        **parts.described(),
        "rows": {
            "attempted": len(folder.rows),
            "done": len(done),
            "failed": dict(failures.counts.most_common()),
            "reasons": failures.reasons,
        },
        "predictions": len(lines),
        **task.summarise([row["result"] for row in done]),
        "calls": calls,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
        "cost": parts.cost(tokens_in, tokens_out),
    }
    write_atomically(folder.path / SUMMARY, canonical(summary) + "\n")
    return summary
