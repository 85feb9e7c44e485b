"""The command `recallbed`, whose sub-commands are loaded when they are called.

This is the composition root: `COMMANDS` names modules of all packages as text, so that nothing of
them is imported, neither for `recallbed --help` nor by the packages that `recallbed` holds. Task 3
is the default: its commands have no prefix, those of the other tasks are `recallbed taskN VERB`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

from recallbed.harness.app import App, Group
from recallbed.harness.terminal import say


@dataclass(frozen=True, slots=True)
class Entry:
    """A sub-command: its module, or the sub-commands that it has itself; and its help."""

    module: str | Mapping[str, Entry]
    help: str


COMMANDS: Mapping[str, Entry] = {
    "sweep": Entry("task3.sweep", "Measure recall of retrievers as distractors are added."),
    "tune": Entry("task3.tune", "Fit a retriever's settings by cross-validation."),
    "predict": Entry("task3.predict", "Write a retriever's choices as official predictions."),
    "score": Entry("task3.score", "Score predictions of task 3 by exact match."),
    "answer": Entry(
        "task3.answer", "Have a chat model choose a memory of each pool and answer with it."
    ),
    "task1": Entry(
        {
            "run": Entry("task1.run", "Extract memories from dialogues with a memory system."),
            "score": Entry("task1.score", "Score extracted memories: precision, recall and F1."),
            "published": Entry(
                "task1.published", "Compare scores of recorded answers with the leaderboard."
            ),
        },
        "Task 1, extraction of memories.",
    ),
    "task2": Entry(
        {
            "run": Entry("task2.run", "Update memories after a new dialogue with a memory system."),
            "score": Entry("task2.score", "Score updated memories: precision, recall and F1."),
        },
        "Task 2, update of memories.",
    ),
    "task4": Entry(
        {
            "run": Entry("task4.run", "Answer questions from what a memory system remembers."),
            "score": Entry(
                "task4.score", "Score answers: verdicts, retrieval and over-personalization."
            ),
        },
        "Task 4, use of memories in answers.",
    ),
    "compare": Entry(
        "analysis.compare",
        "Compare retrievers on the same pools, or memory systems or models, in pairs.",
    ),
    "paper-table": Entry(
        "analysis.paper_table", "Make Table 2, 3 or 4 of the AlpsBench paper from finished runs."
    ),
    "waterfall": Entry(
        "analysis.waterfall", "Show where the questions of task 4 lost their gold memory."
    ),
    "show": Entry(
        "analysis.show",
        "Show queries of a sweep: golds, their ranks, and the memories ranked first.",
    ),
    "errors": Entry(
        "analysis.errors",
        "List the misses of a retriever: the gold, what was ranked first, and why.",
    ),
    "table": Entry("analysis.table", "Show results of sweeps as a table."),
    "curves": Entry("analysis.curves", "Draw recall against the number of distractors."),
    "frontier": Entry(
        "analysis.frontier", "Draw recall against tokens, cost or milliseconds per query."
    ),
    "report": Entry("analysis.report", "Write what runs show as one page that needs no network."),
    "breakdown": Entry("analysis.breakdown", "Break a metric down by groups of queries."),
    "leaderboard": Entry(
        "analysis.leaderboard", "Collect finished sweeps into one sorted page and a CSV."
    ),
    "export": Entry("analysis.export", "Write a run as files that other tools read."),
    "import": Entry("analysis.importing", "Import TREC runs or official predictions as a run."),
    "validate": Entry(
        "recallbed.corpus.validate", "Check every row of a release, a data file or predictions."
    ),
    "audit": Entry(
        "analysis.audit", "Look for shortcuts in data: what finds the gold without reading it."
    ),
    "convert": Entry("recallbed.corpus.convert", "Convert another benchmark to a data file."),
    "index": Entry(
        {
            "build": Entry("indexes.build", "Build a searchable store of memories."),
            "copy": Entry("indexes.copy", "Copy a store into a Milvus collection."),
            "search": Entry("indexes.search", "Search a store of memories."),
        },
        "Stores of memories that can be searched.",
    ),
    "store": Entry("indexes.store", "Show or prune the embedding store."),
    "train": Entry(
        {
            "fit": Entry("training.fit", "Train a retriever on your own labelled memories."),
            "adapter": Entry("training.adapter", "Train two linear maps over frozen embeddings."),
            "finetune": Entry(
                "training.finetune", "Fine-tune a sentence encoder on queries and their memories."
            ),
            "reranker": Entry(
                "training.reranker",
                "Learn to combine retrievers and to order their best candidates.",
            ),
            "learning-curve": Entry(
                "training.learning_curve", "Measure what more training sessions bring."
            ),
        },
        "Retrievers that learn.",
    ),
    "install-system": Entry(
        "memory_systems.install",
        "Install an external memory system in an environment of its own.",
    ),
    "history": Entry("memory_systems.history", "Show the users and operations of a memory store."),
    "agreement": Entry("judges.agreement", "Compare two or three sets of verdicts."),
    "annotators": Entry("memory_scoring.annotators", "Compare the memory lists of two annotators."),
    "recorded": Entry("judges.recorded", "Read the benchmark's recorded verdicts."),
}


class LazyGroup(Group):
    """A group whose sub-commands are imported when one of them is called."""

    entries: Mapping[str, Entry] = COMMANDS

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        return list(self.entries)

    def listed(self, ctx: Any) -> list[tuple[str, str]]:
        """The names with their help, nothing imported."""
        return [(name, entry.help) for name, entry in self.entries.items()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, imported now; None if there is none."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        if isinstance(entry.module, str):
            return get_command(import_module(entry.module).app)
        group = LazyGroup(name=cmd_name, help=entry.help, no_args_is_help=True)
        group.entries = entry.module
        return group


app = App(cls=LazyGroup, no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        from recallbed import __version__

        say(f"recallbed {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Measure memory retrieval: how recall falls as distractors are added.

    The commands of task 3 have no prefix; tasks 1, 2 and 4 are `recallbed taskN VERB`.
    """


if __name__ == "__main__":
    app()
