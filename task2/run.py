"""`python -m task2.run --system replace`: what memories become after a new dialogue."""

from __future__ import annotations

from memory_systems.options import TaskOptions
from recallbed.harness.app import App
from recallbed.harness.run_options import KEPT

app = App()


@app.command(
    on_stop=KEPT,
    examples=(
        "recallbed task2 run --system replace",
        "recallbed task2 run --system mem0-like --chat-model openai:MODEL --limit 20",
    ),
)
def run(options: TaskOptions) -> None:
    """Update memories after a new dialogue with a memory system.

    Writes predictions.jsonl, rows.jsonl with every operation, summary.json, manifest.json and the
    store, memory.sqlite. --system copy and --system replace ask no model.
    """
    from memory_systems.run import run_command
    from task2.update import update_task

    run_command(options, update_task(options))


if __name__ == "__main__":
    app()
