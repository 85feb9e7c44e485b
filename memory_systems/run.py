"""A run of a memory system over the rows of a task: each row a user of its own, done afresh."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from memory_systems.base import Action, MemorySystem, Operation, SystemContext, SystemFailure
from memory_systems.item_json import item_json, operations_json, writable
from memory_systems.options import TaskOptions
from memory_systems.registry import MEMORY_SYSTEMS, build_system, describe_system
from memory_systems.store import MemoryStore
from recallbed.chat_models.base import ChatModel
from recallbed.chat_models.dry_run import Plan
from recallbed.chat_models.session import Chats, open_chats
from recallbed.errors import UserError
from recallbed.harness.cause import cause_of
from recallbed.harness.failures import Failures, with_reason
from recallbed.harness.files import file_name, write_atomically
from recallbed.harness.fingerprint import canonical, code_identity, short_hash, versions
from recallbed.harness.item_run import Done, is_item_row, run_items
from recallbed.harness.progress import progress
from recallbed.harness.run_folder import PREDICTIONS, SUMMARY, RunFolder, encode_row, open_run
from recallbed.harness.terminal import note, say, say_json
from retrievers.registry import build_retrievers, describe_retriever

JSON = Any


def ingest_result(system: MemorySystem, operations: Sequence[Operation]) -> dict[str, JSON]:
    """`memory_items` as they are now, oldest first, and the `operations` of the dialogue."""
    return {
        "memory_items": [item_json(item) for item in system.memories()],
        "operations": operations_json(operations),
        "unknown_labels": system.unknown_labels,
    }


def summarise_ingests(results: Sequence[JSON]) -> dict[str, JSON]:
    """Sums over all results: memories at the end, operations by action, labels of nothing."""
    actions = Counter(one["action"] for result in results for one in result["operations"])
    return {
        "memories": sum(len(result["memory_items"]) for result in results),
        "operations": {action.value: actions[action.value] for action in Action},
        "unknown_labels": sum(result["unknown_labels"] for result in results),
    }


class Parts:
    """Use `open_parts`. `models` holds the chat models that anyone here asked for, by name."""

    def __init__(self, options: TaskOptions, class_name: str, chats: Chats) -> None:
        self._options, self._class_name, self._chats = options, class_name, chats
        self.models: dict[str, ChatModel] = {}
        self.chat = self._named(options.chat_model) if options.chat_model else None
        configurations, self._label = options.retrievers.configurations, options.retrievers.chosen
        run = options.retrievers.context(options.seed, chats=self._named)
        self._configuration = next(c for c in configurations if c.label == self._label)
        self.retriever = build_retrievers(configurations, run)[self._label]
        self._context = SystemContext(self.retriever, self.chat, None, options.seed)

    def _named(self, name: str) -> ChatModel:
        self.models[name] = self._chats(name)
        return self.models[name]

    @contextmanager
    def stored_in(self, path: Path) -> Iterator[None]:
        """Meanwhile systems keep their memories in the file `path`, and not in themselves.

        It is made here, and held open: SQLite tidies up whenever a file is left by its last user.
        """
        store, outside = MemoryStore(path), self._context
        try:
            store.users()
            self._context = replace(outside, store=path)
            yield
        finally:
            self._context = outside
            store.close()

    def system(self) -> MemorySystem:
        """A new instance."""
        return build_system(self._class_name, self._options.system_settings, self._context)

    def fingerprint(self) -> dict[str, JSON]:
        """All of the parts that can change a result."""
        chat, system = self.chat, self.system()
        libraries = {"numpy", *self.retriever.libraries, *(chat.libraries if chat else ())}
        return {
            "system": dict(describe_system(self._class_name, system)),
            "retriever": {
                "label": self._label,
                **describe_retriever(self._configuration, self.retriever),
            },
            "chat_model": chat and {"name": chat.name, **chat.settings()},
            "code": code_identity(),
            "libraries": versions(sorted(libraries)),
            "seed": self._options.seed,
        }

    def described(self) -> dict[str, JSON]:
        """For a summary: who did it, and with what."""
        about = (inspect.getdoc(MEMORY_SYSTEMS.find(self._class_name)) or "").partition("\n")[0]
        return {
            "system": self._options.system,
            "about": about if self.models else f"no model: {about}",
            "retriever": f"{self._label} ({self._configuration.name})",
            "chat_models": sorted(self.models),
        }

    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        """What the tokens of all rows cost: 0 without a model, None where that isn't known.

        Rows don't say which model their tokens went to, so a price is needed and one model alone.
        """
        if not self.models:
            return 0.0
        [first, *others] = self.models.values()
        price = None if others else self._chats.prices.by_model.get(first.name)
        return None if price is None else price.of(tokens_in, tokens_out)


def open_parts(options: TaskOptions, systems: Mapping[str, str], chats: Chats) -> Parts:
    """The parts of a run; raises UserError for what can't be built.

    `systems` are classes of the task's own by the names that they have in its options.
    """
    name = options.system
    if ":" not in name and name not in (*systems, *MEMORY_SYSTEMS.names()):
        raise UserError(
            f"--system {name}: no memory system is called that here (there are:"
            f" {', '.join(sorted((*systems, *MEMORY_SYSTEMS.names())))});"
            " your own is named package.module:Class"
        )
    parts = Parts(options, systems.get(name, name), chats)
    parts.system().close()  # so that a faulty setting is told before anything else is done
    return parts


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
    with open_chats(options.chat) as chats:
        parts = open_parts(options, task.systems, chats)
        fingerprint = {
            "task": task.name,
            "data": dict(task.data),
            "settings": dict(task.settings),
            **parts.fingerprint(),
        }
        path, on_existing = options.run.out, options.run.on_existing
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
                    in_flight=options.chat.in_flight,
                    retry_failed=options.run.retry_failed,
                    keep_going=options.run.keep_going,
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
    with open_chats(replace(options.chat, dry_run=True)) as chats:
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
    return Done(
        result,
        **system.take_usage().counts,
        error=None if error is None else " ".join(writable(error).split()),
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


LATER_CALLS = (
    "tokens out and cost are the most that may come; calls that hang on earlier replies are counted"
    " as far as those replies are stored, so that a run may make more"
)


def run_command(options: TaskOptions, task: Task[R]) -> Outcome | None:
    """Run `task` and print what came of it, or after --dry-run what it takes.

    With --json stdout has JSON alone, and the lines go to stderr. None after a dry run.
    """
    if options.chat.dry_run:
        plans = plan_task(options, task)
        if options.as_json:
            say_json(canonical({name: asdict(plan) for name, plan in plans.items()}))
        else:
            say(*(plan.line(name) for name, plan in plans.items()), LATER_CALLS)
        return None
    outcome = run_task(options, task)
    if options.as_json:
        say_json(canonical(outcome.summary))
    tell = note if options.as_json else say
    tell(*report(outcome.summary))
    note(f"{outcome.path / PREDICTIONS}: {outcome.summary['predictions']} rows")
    return outcome


def report(summary: Mapping[str, Any]) -> Iterator[str]:
    """A summary in a few lines."""
    models = ", ".join(summary["chat_models"])
    name, rows = summary["task"], summary["rows"]
    if summary["data"]["sample"]:
        yield "The embedded sample, not AlpsBench: its figures say that all works, and no more"
    yield f"{name}: {summary['system']} over {summary['retriever']}{models and f', {models}'}"
    yield summary["about"]
    yield f"{rows['attempted']} rows, {rows['done']} done"
    for cause, count in rows["failed"].items():
        yield f"  failed: {with_reason(cause, rows.get('reasons', {}).get(cause, ''))}: {count}"
    if "operations" in summary:
        counts = ", ".join(f"{n} {action}" for action, n in summary["operations"].items())
        yield f"{summary['memories']} memories; {counts}"
    if summary["calls"]:
        cost = "unknown" if summary["cost"] is None else f"{summary['cost']:.4f}"
        yield (
            f"{summary['calls']} calls, {summary['tokens_in']} tokens in,"
            f" {summary['tokens_out']} out, cost {cost}"
        )
