"""`python -m task1.run --system turns`: what a memory system finds in dialogues."""

from __future__ import annotations

from memory_systems.options import TaskOptions, task_options
from recallbed.harness.app import App

app = App()


@app.command()
@task_options
def run(options: TaskOptions) -> None:
    """Have a memory system read each dialogue, and write down what it remembers of it.

    The run folder holds predictions.jsonl, rows.jsonl with every operation, summary.json,
    manifest.json and the store, memory.sqlite. `--system extractive` is this task's own: it asks no
    model, and quotes the user turns that the retriever puts first.
    """
    from memory_systems.run import run_command
    from task1.extraction import extraction_task

    run_command(options, extraction_task(options))


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
