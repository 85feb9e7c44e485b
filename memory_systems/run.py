"""Runs of a memory system over the rows of a task; each row has its own user."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from typing_extensions import override

from memory_systems.base import (
    Action,
    MemorySystem,
    Operation,
    SystemContext,
    SystemFailure,
    item_json,
    operations_json,
)
from memory_systems.options import TaskOptions
from memory_systems.own_search import OwnSearch, own_search
from memory_systems.registry import MEMORY_SYSTEMS, build_system, describe_system
from memory_systems.shared import Shared
from memory_systems.store import MemoryStore
from recallbed.chat_models.base import ChatModel
from recallbed.chat_models.session import Chats, open_chats
from recallbed.corpus.layout import SAMPLE_NOTE
from recallbed.errors import UserError
from recallbed.harness.experiment import Outcome, execute, plan
from recallbed.harness.failures import Failures, cause_of, with_reason
from recallbed.harness.files import write_atomically
from recallbed.harness.fingerprint import canonical
from recallbed.harness.input_text import clean_text
from recallbed.harness.item_run import Done, ItemExperiment
from recallbed.harness.plan import Plan, print_plans
from recallbed.harness.run_folder import PREDICTIONS, RunFolder, encode_row
from recallbed.harness.terminal import note, say, say_json
from retrievers.registry import build_retrievers, describe_retriever
from retrievers.unseen import unseen_rows

JSON = Any


class SessionRow(Protocol):
    """A row of a task, which belongs to a session."""

    @property
    def session_id(self) -> str:
        """The session."""


R = TypeVar("R", bound=SessionRow)
STORE = "memory.sqlite"


@dataclass(frozen=True, slots=True)
class Task(Generic[R]):
    """What a task adds to a run.

    `rows` are its rows by benchmark_id, in file order; `data` describes them in the fingerprint,
    `settings` everything else of the task that can change a result. `work` processes a row with an
    empty system; its result is JSON, and a SystemFailure fails only that row. `predictions`
    returns the prediction rows of a row and its result (official ones for tasks 1 and 2).
    `summarise` computes further keys of the summary from all results. `systems` are memory systems
    of this task only, as package.module:Class, by name.
    """

    name: str
    rows: Mapping[str, R]
    data: Mapping[str, JSON]
    work: Callable[[MemorySystem, R], JSON]
    predictions: Callable[[R, JSON], Sequence[JSON]]
    summarise: Callable[[Sequence[JSON]], Mapping[str, JSON]] = lambda results: {}
    systems: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, JSON] = field(default_factory=dict)


class TaskRun(ItemExperiment, Generic[R]):
    """The rows of `task`, each processed by a new instance of the memory system of `options`.

    Raises UserError for a system, a retriever or a setting that cannot be built, and for rows of
    sessions that the retriever was trained on, which --unseen leaves out.
    """

    measured = "rows could be done"

    def __init__(self, options: TaskOptions, task: Task[R], chats: Chats) -> None:
        self.options, self.task, self.chats = options, task, chats
        name = options.system
        if ":" not in name and name not in (*task.systems, *MEMORY_SYSTEMS.names()):
            known = ", ".join(sorted((*task.systems, *MEMORY_SYSTEMS.names())))
            raise UserError(
                f"--system {name}: no memory system has this name. Choose one of {known}, or your"
                " own as package.module:Class"
            )
        self._class_name = task.systems.get(name, name)
        self._models: dict[str, ChatModel] = {}
        """Chat models of the system and its retriever, by name."""
        self.chat = self._model(options.chat_model) if options.chat_model else None
        configurations = [own_search(one) or one for one in options.retrievers.configurations]
        self._label = options.retrievers.chosen
        run = options.retrievers.context(options.seed, chats=self._model)
        self._configuration = next(c for c in configurations if c.label == self._label)
        self.retriever = build_retrievers(configurations, run)[self._label]
        self._keep_unseen(options.retrievers.unseen)
        self._context = SystemContext(self.retriever, self.chat, None, options.seed)
        system = self._system()  # so that a wrong setting ends the run before it starts
        system.close()
        self._replies_lead_to_calls = system.replies_lead_to_calls
        if isinstance(self.retriever, OwnSearch) and not system.searches:
            raise UserError(
                f"--retriever {self._configuration.name}: {name} has no search of its own."
                " Choose a retriever, such as bm25"
            )
        self.name, self.in_flight = f"{task.name}-{options.system}", options.chat.in_flight
        self.libraries = {"numpy", *system.libraries, *self.retriever.libraries}
        self.libraries |= {*self.chat.libraries} if self.chat else set()
        self.seed = options.seed

    def _keep_unseen(self, leave_out: bool) -> None:
        """Leave out the rows of sessions that the retriever was trained on."""
        names = list(self.task.rows)
        sessions = [("", self.task.rows[name].session_id) for name in names]
        kept = unseen_rows([(self._label, self.retriever)], sessions, leave_out)
        if len(kept) == len(names):
            return
        rows = {names[i]: self.task.rows[names[i]] for i in kept}
        unseen = {"left_out": len(names) - len(kept), "rows": list(rows)}
        self.task = replace(self.task, rows=rows, data={**self.task.data, "unseen": unseen})

    def _model(self, name: str) -> ChatModel:
        self._models[name] = self.chats(name)
        return self._models[name]

    def _system(self) -> MemorySystem:
        return build_system(self._class_name, self.options.system_settings, self._context)

    @property
    @override
    def label(self) -> str:
        return f"{self.task.name} {self.options.system}"

    @override
    def fingerprint(self) -> Mapping[str, JSON]:
        chat = self.chat
        return {
            "task": self.task.name,
            "data": dict(self.task.data),
            "settings": dict(self.task.settings),
            "system": dict(describe_system(self._class_name, self._system())),
            "retriever": {
                "label": self._label,
                **describe_retriever(self._configuration, self.retriever),
            },
            "chat_model": chat and {"name": chat.name, **chat.settings()},
        }

    @override
    @contextmanager
    def opened(self, folder: RunFolder) -> Iterator[None]:
        """Keep the systems' memories in a file of the folder during the run.

        The file stays open: SQLite checkpoints it whenever its last user closes it.
        """
        if not folder.rows:  # the folder may hold the store of other rows
            for file in folder.path.glob(f"{STORE}*"):
                file.unlink()
        path = folder.path / STORE
        store = MemoryStore(path)
        try:
            store.users()
            with self._shared(path):
                yield
        finally:
            store.close()

    @override
    def rehearse(self) -> None:
        with self._shared(None):
            super().rehearse()

    @contextmanager
    def _shared(self, store: Path | None) -> Iterator[None]:
        """Let the systems use `store` and have workers in common."""
        outside = self._context
        with Shared() as shared:
            try:
                self._context = replace(outside, store=store, shared=shared)
                yield
            finally:
                self._context = outside

    @override
    def items(self) -> Mapping[str, Callable[[], Done]]:
        return {name: partial(self._do, name) for name in self.task.rows}

    def _do(self, name: str) -> Done:
        """Process one row; what an interrupted run left of it is removed first."""
        system = self._system()
        result, error = None, None
        try:
            system.open(name)
            system.clear()
            result = writable(self.task.work(system, self.task.rows[name]))
        except SystemFailure as failure:
            error = str(failure.cause)
        except (UserError, OSError, MemoryError):
            raise
        except Exception as crash:  # in a user's class: counted as a failure
            error = cause_of(crash)
        finally:
            try:
                system.discard_files()  # no row is worked on again
            finally:
                system.close()
        return Done(
            result,
            **system.take_usage().counts,
            error=None if error is None else " ".join(writable(error).split()),
        )

    @override
    def figures(self, folder: RunFolder) -> Mapping[str, JSON]:
        done = [row for row in folder.rows if row["error"] is None]
        lines = [
            encode_row(prediction)
            for row in done
            for prediction in self.task.predictions(self.task.rows[row["item"]], row["result"])
        ]
        write_atomically(folder.path / PREDICTIONS, b"".join(lines))
        failures = Failures(row["error"] for row in folder.rows)
        about = (inspect.getdoc(MEMORY_SYSTEMS.find(self._class_name)) or "").partition("\n")[0]
        return {
            "task": self.task.name,
            "data": dict(self.task.data),
            "system": self.options.system,
            "about": about if self._models else f"no model: {about}",
            "retriever": f"{self._label} ({self._configuration.name})",
            "chat_models": sorted(self._models),
            "rows": {
                "attempted": len(folder.rows),
                "done": len(done),
                "failed": dict(failures.counts.most_common()),
                "reasons": failures.reasons,
            },
            "predictions": len(lines),
            **self.task.summarise([row["result"] for row in done]),
        }

    @override
    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        # Rows do not record which model used their tokens: unknown if there are two.
        if not self._models:
            return 0.0
        [first, *others] = self._models.values()
        price = None if others else self.chats.prices.by_model.get(first.name)
        return None if price is None else price.of(tokens_in, tokens_out)

    @override
    def plans(self) -> Mapping[str, Plan]:
        plans = self.chats.plans()
        unknown = self._replies_lead_to_calls and any(one.calls for one in plans.values())
        return {name: replace(one, at_least=unknown) for name, one in plans.items()}


def run_command(options: TaskOptions, task: Task[R]) -> Outcome[Mapping[str, JSON]] | None:
    """Run `task` and print a report, or the plans after --dry-run, which returns None.

    With --json stdout has JSON only, and the report goes to stderr. Raise UserError for invalid
    options, BudgetReached, and as `execute`.
    """
    with open_chats(options.chat) as chats:
        experiment = TaskRun(options, task, chats)
        if options.chat.dry_run:
            print_plans(plan(experiment), options.as_json)
            return None
        outcome = execute(experiment, options.run)
    if options.as_json:
        say_json(canonical(outcome.summary))
    show = note if options.as_json else say
    show(*describe_run(outcome.summary))
    note(f"{outcome.path / PREDICTIONS}: {outcome.summary['predictions']} rows")
    return outcome


def describe_run(summary: Mapping[str, Any]) -> Iterator[str]:
    """Return the report of a summary as lines."""
    models = ", ".join(summary["chat_models"])
    name, rows = summary["task"], summary["rows"]
    if summary["data"]["sample"]:
        yield SAMPLE_NOTE
    yield f"{name}: {summary['system']} over {summary['retriever']}{models and f', {models}'}"
    yield summary["about"]
    yield f"{rows['attempted']} rows, {rows['done']} done"
    for cause, count in rows["failed"].items():
        yield f"  failed: {with_reason(cause, rows.get('reasons', {}).get(cause, ''))}: {count}"
    if "operations" in summary:
        counts = ", ".join(f"{n} {action}" for action, n in summary["operations"].items())
        yield f"{summary['memories']} memories; {counts}"
    for what, count in summary.get("cut", {}).items():
        yield f"{count} {what}"
    if summary["calls"]:
        cost = "unknown" if summary["cost"] is None else f"{summary['cost']:.4f}"
        yield (
            f"{summary['calls']} calls, {summary['tokens_in']} tokens in,"
            f" {summary['tokens_out']} out, cost {cost}"
        )


def writable(value: JSON) -> JSON:
    """Return `value` as it can be written as UTF-8 JSON, whatever a model or a user's class gave.

    Lone surrogates become U+FFFD; numbers that are not finite become null.
    """
    if isinstance(value, str):
        return clean_text(value, Counter())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {writable(key): writable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [writable(inner) for inner in value]
    return value


def ingest_result(system: MemorySystem, operations: Sequence[Operation]) -> dict[str, JSON]:
    """Return the result of a dialogue: `memory_items`, oldest first, and `operations`."""
    return {
        "memory_items": [item_json(item) for item in system.memories()],
        "operations": operations_json(operations),
        "unknown_labels": system.unknown_labels,
        **({"cut": dict(sorted(system.cut.items()))} if system.cut else {}),
    }


def summarise_ingests(results: Sequence[JSON]) -> dict[str, JSON]:
    """Return sums over results: memories at the end, operations by action, unknown labels."""
    cut = sum((Counter(result.get("cut", {})) for result in results), Counter[str]())
    actions = Counter(one["action"] for result in results for one in result["operations"])
    return {
        "memories": sum(len(result["memory_items"]) for result in results),
        "operations": {action.value: actions[action.value] for action in Action},
        "unknown_labels": sum(result["unknown_labels"] for result in results),
        **({"cut": dict(sorted(cut.items()))} if cut else {}),
    }
