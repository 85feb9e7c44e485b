"""`python -m task2.score PREDICTIONS.jsonl`: updated memories against the references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memory_scoring.score_options import ScoreOptions, score_options
from recallbed.harness.app import AllowCode, App

if TYPE_CHECKING:
    from memory_scoring.answers import Answers
    from recallbed.corpus.records import Task2Row
    from recallbed.harness.configurations import Configuration

app = App()


@app.command()
@score_options
def score(
    options: ScoreOptions,
    retriever: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[LABEL=]NAME",
            help="Does it rank the memory that must change first? May be repeated.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="LABEL.KEY=VALUE",
            help="A retriever's setting; @FILE for a file of them. May be repeated.",
        ),
    ] = None,
    allow_code: AllowCode = False,
) -> None:
    """Score updated memories: precision, recall and F1 of the whole list, averaged over sessions.

    Beside them the actions (retention, addition, modification), and with --retriever whether it
    ranks the memory that must change first. Sessions without a sound row are counted by cause and
    enter no average. No fault of one line stops the rest.
    """
    from memory_scoring.command import carry_out
    from recallbed.errors import UserError
    from recallbed.harness.configurations import parse_configurations
    from task2.tables import more_tables

    if setting and not retriever:
        raise UserError("--set goes with --retriever")
    chosen = parse_configurations(retriever, setting or [], allow_code) if retriever else ()
    answers = _read(options)
    carry_out(options, answers, lambda: _report(answers, options, chosen), more_tables)


def score_file(options: ScoreOptions, retrievers: Sequence[Configuration] = ()) -> dict[str, Any]:
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
    answers: Answers[Task2Row], options: ScoreOptions, retrievers: Sequence[Configuration]
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
    answers: Answers[Task2Row], options: ScoreOptions, retrievers: Sequence[Configuration]
) -> list[dict[str, Any]]:
    """One entry a retriever, over all sessions: it hangs on no prediction."""
    if not retrievers:
        return []
    from indexes.embedding_store import choose_store
    from retrievers.base import RunContext
    from retrievers.registry import build_retrievers
    from task2.localisation import localisation

    built = build_retrievers(retrievers, RunContext(options.seed, store=lambda: choose_store(None)))
    rows = answers.rows.values()
    return [localisation(rows, label, one, options.seed) for label, one in built.items()]


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
