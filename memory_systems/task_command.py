"""From a command's options to what it prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from memory_systems.options import TaskOptions
from memory_systems.run import Outcome, R, Task, plan_task, run_task
from recallbed.harness.failures import with_reason
from recallbed.harness.fingerprint import canonical
from recallbed.harness.run_folder import PREDICTIONS
from recallbed.harness.terminal import note, say, say_json

LATER_CALLS = (
    "tokens out and cost are the most that may come; calls that hang on earlier replies are counted"
    " as far as those replies are stored, so that a run may make more"
)


def carry_out(options: TaskOptions, task: Task[R]) -> Outcome | None:
    """Run `task` and print what came of it, or after --dry-run what it takes.

    With --json stdout has JSON alone, and the lines go to stderr. None after a dry run.
    """
    if options.chats.dry_run:
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
