"""`python -m task1.run --system turns`: what a memory system finds in dialogues."""

from __future__ import annotations

from memory_systems.options import TaskOptions
from recallbed.harness.app import App
from recallbed.harness.run_options import KEPT

app = App()


@app.command(
    on_stop=KEPT,
    examples=(
        "recallbed task1 run --system turns",
        "recallbed task1 run --system mem0-like --chat-model openai:MODEL --limit 20",
    ),
)
def run(options: TaskOptions) -> None:
    """Extract memories from dialogues with a memory system.

    Writes predictions.jsonl, rows.jsonl with every operation, summary.json, manifest.json and the
    store, memory.sqlite. --system extractive asks no model: it quotes the user turns that the
    retriever ranks first.
    """
    from memory_systems.run import run_command
    from task1.extraction import extraction_task

    run_command(options, extraction_task(options))


if __name__ == "__main__":
    app()
