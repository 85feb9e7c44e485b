"""`python -m task2.score PREDICTIONS.jsonl`: updated memories against the references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from judges.options import kept_if_judged
from memory_scoring.score_options import ScoreOptions
from recallbed.harness.app import App
from retrievers.options import RetrieverOptions

if TYPE_CHECKING:
    from memory_scoring.answers import Answers
    from recallbed.corpus.records import Task2Row

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
    from memory_scoring.command import carry_out
    from recallbed.errors import UserError
    from task2.tables import more_tables

    if retrievers.setting and not retrievers.retriever:
        raise UserError("--set needs a --retriever")
    answers = _read(options)
    carry_out(options, answers, lambda: _report(answers, options, retrievers), more_tables)


def score_file(
    options: ScoreOptions, retrievers: RetrieverOptions = NO_RETRIEVERS
) -> dict[str, Any]:
    """What --json prints.

    Raises DataError for faulty data or a split without references, and UserError where no line of
    the file answers a session, for faulty settings of a retriever, or where the judge could not
    judge one session.
    """
    return _report(_read(options), options, retrievers)


def _read(options: ScoreOptions) -> Answers[Task2Row]:
    from task2.predictions import read_update_rows

    return read_update_rows(options.predictions, options.data, options.split)


def _report(
    answers: Answers[Task2Row], options: ScoreOptions, retrievers: RetrieverOptions
) -> dict[str, Any]:
    from memory_scoring.scoring import score_answers
    from task2.actions import Update, action_figures

    scored = score_answers(answers, options, lambda row: row.new_dialogue)
    updates = [
        Update(
            session=answers.rows[name].session_id,
            given=answers.rows[name].memories,
            gold=answers.gold(name),
            predicted=answers.items[name],
            pairs=pairs,
        )
        for name, pairs in scored.pairs.items()
    ]
    return {
        **scored.report,
        "actions": action_figures(updates, options.seed, by_text=options.scorer == "match"),
        "localisation": _localisation(answers, options, retrievers),
    }


def _localisation(
    answers: Answers[Task2Row], options: ScoreOptions, retrievers: RetrieverOptions
) -> list[dict[str, Any]]:
    """One entry a retriever, over all sessions: it hangs on no prediction."""
    if not retrievers.retriever:
        return []
    from retrievers.registry import build_retrievers
    from task2.localisation import localisation

    built = build_retrievers(retrievers.configurations, retrievers.context(options.seed))
    rows = answers.rows.values()
    return [localisation(rows, label, one, options.seed) for label, one in built.items()]


if __name__ == "__main__":
    app()
