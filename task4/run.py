"""`python -m task4.run --system mem0 --chat-model openai:M`: answers from what was remembered."""

from __future__ import annotations

from typing import Annotated

import typer

from memory_systems.options import TaskOptions, task_options
from recallbed.harness.app import App

app = App()


@app.command()
@task_options
def run(
    options: TaskOptions,
    ability: Annotated[
        list[int] | None,
        typer.Option(
            help="1 persona awareness, 2 preference following, 3 virtual-reality awareness,"
            " 4 constraint following, 5 emotional intelligence. May be repeated. Default: all."
        ),
    ] = None,
) -> None:
    """Have a memory system read each history and answer the questions that follow.

    The run folder holds predictions.jsonl, rows.jsonl with memories, operations, answers and hits,
    summary.json, manifest.json and the store, memory.sqlite. `--limit` takes the first rows of each
    ability. `gold-memory` is the paper's control: it is given the reference's memories.
    `extractive` is this task's own: it asks no model, and quotes the user turn that the retriever
    puts first.
    """
    from memory_systems.run import run_command
    from task4.utilization import utilization_task

    run_command(options, utilization_task(options, ability or ()))


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
