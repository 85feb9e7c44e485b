"""`python -m task2.score PREDICTIONS`: updated memories against the references."""

from __future__ import annotations

from typing import TYPE_CHECKING

from judges.options import kept_if_judged
from memory_scoring.score_options import ScoreOptions
from recallbed.harness.app import App
from retrievers.options import RetrieverOptions

if TYPE_CHECKING:
    from memory_scoring.predictions import PredictedSessions
    from recallbed.corpus.records import Task2Row
    from task2.report import UpdateReport

app = App()
NO_RETRIEVERS = RetrieverOptions()


@app.command(
    on_stop=kept_if_judged,
    examples=(
        "recallbed task2 score runs/a/predictions.jsonl",
        "recallbed task2 score FILE.jsonl --scorer exact --retriever bm25",
    ),
)
def score(options: ScoreOptions, retrievers: RetrieverOptions) -> None:
    """Score updated memories: precision, recall and F1.

    Figures are averages over sessions. Also reports the actions (retention, addition,
    modification), and with --retriever whether it ranks the memory that must change first.
    Sessions without a valid row are counted by cause and left out of every average. A faulty line
    does not stop the rest.
    """
    from memory_scoring.scoring import print_scores
    from recallbed.errors import UserError
    from task2.report import update_report

    if (retrievers.setting or retrievers.unseen) and not retrievers.retriever:
        raise UserError("--set and --unseen need a --retriever")
    sessions = _read(options)
    print_scores(options, sessions, lambda: update_report(sessions, options, retrievers))


def score_update(
    options: ScoreOptions, retrievers: RetrieverOptions = NO_RETRIEVERS
) -> UpdateReport:
    """Score predictions without printing.

    Raise DataError for faulty data or a split without references, and UserError if no line of the
    file answers a session, and as `update_report` does.
    """
    from task2.report import update_report

    return update_report(_read(options), options, retrievers)


def _read(options: ScoreOptions) -> PredictedSessions[Task2Row]:
    """The references call the list `answer`, and so may a file, as in the public scorer."""
    from memory_scoring.predictions import read_predicted_sessions
    from recallbed.corpus.tracks import TASK2

    keys = ("memory_items", "answer")
    return read_predicted_sessions(options.predictions, options.data, options.split, TASK2, keys)


if __name__ == "__main__":
    app()
