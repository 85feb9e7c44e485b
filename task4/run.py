"""`python -m task4.run --system llm --chat-model openai:M`: answers from what was remembered."""

from __future__ import annotations

from memory_systems.options import TaskOptions
from recallbed.harness.app import App
from recallbed.harness.run_options import KEPT
from task4.options import Abilities

app = App()


@app.command(
    on_stop=KEPT,
    examples=(
        "recallbed task4 run --system extractive",
        "recallbed task4 run --system mem0-like --chat-model openai:MODEL --ability 1",
    ),
)
def run(options: TaskOptions, ability: Abilities = ()) -> None:
    """Answer questions from what a memory system remembers.

    Writes predictions.jsonl, rows.jsonl with memories, operations, answers and hits, summary.json,
    manifest.json and the store, memory.sqlite. --limit takes the first rows of each ability.
    --system gold-memory is the paper's control: it is given the reference's memories. --system
    extractive asks no model: it quotes the user turn that the retriever ranks first.
    """
    from memory_systems.run import run_command
    from task4.utilization import utilization_task

    run_command(options, utilization_task(options, ability))


if __name__ == "__main__":
    app()
