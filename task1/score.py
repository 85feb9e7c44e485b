"""`python -m task1.score PREDICTIONS`: extracted memories against the references."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judges.options import kept_if_judged
from memory_scoring.score_options import ScoreOptions
from recallbed.harness.app import App

if TYPE_CHECKING:
    from memory_scoring.predictions import PredictedSessions
    from memory_scoring.report import MemoryReport
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
    from memory_scoring.scoring import print_scores

    sessions = _read(options)
    print_scores(options, sessions, lambda: _score(sessions, options))


def score_extraction(options: ScoreOptions) -> MemoryReport[Task1Row]:
    """Score predictions without printing.

    Raise DataError for faulty data or a split without references, and UserError if no line of the
    file answers a session, or the judge could not judge one.
    """
    return _score(_read(options), options)


def _read(options: ScoreOptions) -> PredictedSessions[Task1Row]:
    from memory_scoring.predictions import read_predicted_sessions
    from recallbed.corpus.tracks import TASK1

    return read_predicted_sessions(options.predictions, options.data, options.split, TASK1)


def _score(sessions: PredictedSessions[Task1Row], options: ScoreOptions) -> MemoryReport[Task1Row]:
    from memory_scoring.scoring import score_sessions

    return score_sessions(sessions, options, lambda row: row.dialogue)


if __name__ == "__main__":
    app()
