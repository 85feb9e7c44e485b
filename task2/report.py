"""The report on updated memories: the list as in task 1, its actions, and localisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memory_scoring.predictions import PredictedSessions
from memory_scoring.report import MemoryReport, number, with_interval
from memory_scoring.score_options import ScoreOptions
from memory_scoring.scoring import score_sessions
from recallbed.corpus.records import Task2Row
from recallbed.harness.text_table import TextTable
from retrievers.options import RetrieverOptions
from task2.actions import SessionUpdate, UpdateFigures, action_figures
from task2.localisation import Localisation, localisation


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """The scores of a file of updated memories."""

    memories: MemoryReport[Task2Row]
    actions: UpdateFigures
    localisations: Sequence[Localisation]

    def to_json(self) -> dict[str, Any]:
        """Return what --json prints."""
        return {
            **self.memories.to_json(),
            "actions": self.actions.to_json(),
            "localisation": [found.to_json() for found in self.localisations],
        }

    def lines(self) -> Iterator[str]:
        """Return what was scored, and what was not."""
        return self.memories.lines()

    def tables(self) -> Iterator[TextTable]:
        """Return the figures of the list, the actions and, per retriever, localisation."""
        yield from self.memories.tables()
        table = TextTable(
            f"actions over memories; {self.actions.dropped} given memories dropped,"
            f" {self.actions.text_not_closer} actions wrong because of their text only",
            ("action", "gold", "predicted", "correct", "precision", "recall", "F1"),
        )
        for name, found in self.actions.by_action.items():
            means = [one and one.mean for one in (found.precision, found.recall)]
            counts = (found.gold, found.predicted, found.correct)
            table.add(name, *counts, *map(number, means), number(found.f1))
        yield table
        if not self.localisations:
            return
        table = TextTable(
            "localisation: is the memory that must change ranked first?",
            (
                *("retriever", "R@1 [95 %]", "worst-best", "E[RR] [95 %]", "chance"),
                *("attempted", "scored", "failed"),
            ),
        )
        for one in self.localisations:
            table.add(
                one.retriever,
                with_interval(one.recall),
                "-" if one.bounds is None else f"{one.bounds[0]:.3f}-{one.bounds[1]:.3f}",
                with_interval(one.reciprocal_rank),
                number(one.chance),
                *(one.attempted, len(one.ranks), sum(one.failed.values())),
            )
        yield table
        for one in self.localisations:
            causes = {**one.left_out, **{f"failed: {k}": n for k, n in one.failed.items()}}
            if causes:
                table = TextTable(f"{one.retriever}: sessions in no mean", ("reason", "sessions"))
                for cause, count in causes.items():
                    table.add(cause, count)
                yield table


def update_report(
    sessions: PredictedSessions[Task2Row],
    options: ScoreOptions,
    retrievers: RetrieverOptions,
) -> UpdateReport:
    """Score the lists and their actions; localisation is over all sessions of the split.

    Raise UserError for faulty settings of a retriever, or if the judge judged no session.
    """
    report = score_sessions(sessions, options, lambda row: row.new_dialogue)
    updates = [
        SessionUpdate(
            sessions.rows[name].session_id,
            sessions.rows[name].memories,
            *sessions.sides[name],
            pairs,
        )
        for name, pairs in report.pairs.items()
    ]
    actions = action_figures(updates, options.seed, by_text=options.by_similarity)
    return UpdateReport(report, actions, _localisations(sessions, options.seed, retrievers))


def _localisations(
    sessions: PredictedSessions[Task2Row], seed: int, options: RetrieverOptions
) -> list[Localisation]:
    if not options.retriever:
        return []
    from retrievers.registry import build_retrievers
    from retrievers.unseen import unseen_rows

    built = build_retrievers(options.configurations, options.context(seed))
    every = list(sessions.rows.values())
    asked = [("", row.session_id) for row in every]
    rows = [every[i] for i in unseen_rows(built.items(), asked, options.unseen)]
    return [localisation(rows, label, one, seed) for label, one in built.items()]
