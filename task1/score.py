"""`python -m task1.score PREDICTIONS.jsonl`: extracted memories against the references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.app import App
from task1.score_options import ScoreOptions, score_options

if TYPE_CHECKING:
    from corpus.records import Task1Row
    from task1.answers import Answers

app = App()


@app.command()
@score_options
def score(options: ScoreOptions) -> None:
    """Score predicted memories: precision, recall and F1 averaged over sessions.

    Sessions without a sound row are counted by cause and enter no average. No fault of one line
    stops the rest.
    """
    from task1.command import carry_out

    answers = _read(options)
    carry_out(options, answers, lambda: _report(answers, options))


def score_file(options: ScoreOptions) -> dict[str, Any]:
    """What --json prints.

    Raises DataError for faulty data or a split without references, and UserError where no line of
    the file answers a session, or the judge could not judge one.
    """
    return _report(_read(options), options)


def _read(options: ScoreOptions) -> Answers[Task1Row]:
    from corpus.task1 import TASK1
    from task1.answers import read_answers

    return read_answers(options.predictions, options.data, options.split, TASK1)


def _report(answers: Answers[Task1Row], options: ScoreOptions) -> dict[str, Any]:
    from task1.scoring import score_answers

    return score_answers(answers, options, lambda row: row.dialogue).report


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
