"""`python -m task2.run --system replace`: what memories become after a new dialogue."""

from __future__ import annotations

from memory_systems.options import TaskOptions, task_options
from recallbed.harness.app import App

app = App()


@app.command()
@task_options
def run(options: TaskOptions) -> None:
    """Give a memory system memories and a new dialogue, and write down what it then remembers.

    The run folder holds predictions.jsonl, rows.jsonl with every operation, summary.json,
    manifest.json and the store, memory.sqlite. `--system copy` and `--system replace` are this
    task's own: they ask no model.
    """
    from memory_systems.run import run_command
    from task2.update import update_task

    run_command(options, update_task(options))


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
