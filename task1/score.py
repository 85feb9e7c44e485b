"""`python -m task1.score PREDICTIONS.jsonl`: extracted memories against the references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judges.options import kept_if_judged
from memory_scoring.score_options import ScoreOptions
from recallbed.harness.app import App

if TYPE_CHECKING:
    from memory_scoring.answers import Answers
    from recallbed.corpus.records import Task1Row

app = App()


@app.command(
    on_stop=kept_if_judged,
    examples=(
        "recallbed task1 score runs/a/predictions.jsonl",
        "recallbed task1 score FILE.jsonl --scorer judge --judge-model openai:MODEL",
    ),
)
def score(options: ScoreOptions) -> None:
    """Score extracted memories: precision, recall and F1.

    Figures are averages over sessions. Sessions without a valid row are counted by cause and left
    out of every average. A faulty line does not stop the rest.
    """
    from memory_scoring.command import carry_out

    answers = _read(options)
    carry_out(options, answers, lambda: _report(answers, options))


def score_file(options: ScoreOptions) -> dict[str, Any]:
    """What --json prints.

    Raises DataError for faulty data or a split without references, and UserError where no line of
    the file answers a session, or the judge could not judge one.
    """
    return _report(_read(options), options)


def _read(options: ScoreOptions) -> Answers[Task1Row]:
    from memory_scoring.answers import read_answers
    from recallbed.corpus.task1 import TASK1

    return read_answers(options.predictions, options.data, options.split, TASK1)


def _report(answers: Answers[Task1Row], options: ScoreOptions) -> dict[str, Any]:
    from memory_scoring.scoring import score_answers

    return score_answers(answers, options, lambda row: row.dialogue).report


if __name__ == "__main__":
    app()
