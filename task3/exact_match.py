"""Predictions against references: every query falls under one cause, and causes become figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.statistics import Bootstrap
from recallbed.corpus.predictions import Prediction, Tally, meant_ids
from recallbed.corpus.records import Task3Row

ANSWERED = ("correct", "wrong", "not_in_pool")
CAUSES = (*ANSWERED, "null_or_empty", "faulty", "repeated", "missing")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one query: its cause, the lines it rests on, and a fault's message.

    The lines are those of its prediction rows; of a missing query, its line in model_input.
    """

    cause: str
    lines: tuple[int, ...]
    fault: str = ""


def judge(
    rows: Sequence[Task3Row], predictions: Sequence[Prediction]
) -> tuple[dict[str, Verdict], Tally]:
    """The verdict on each query by benchmark_id, and the prediction rows that belong to none.

    Every row must have its gold.
    """
    given: dict[str, list[Prediction]] = {row.benchmark_id: [] for row in rows}
    unknown = Tally()
    for prediction in predictions:
        if prediction.benchmark_id in given:
            given[prediction.benchmark_id].append(prediction)
        else:
            unknown.add(prediction.line)
    return {row.benchmark_id: _verdict(row, given[row.benchmark_id]) for row in rows}, unknown


def _verdict(row: Task3Row, given: Sequence[Prediction]) -> Verdict:
    if not given:
        return Verdict("missing", (row.line,))
    lines = tuple(prediction.line for prediction in given)
    if len(given) > 1:
        return Verdict("repeated", lines)
    [prediction] = given
    if prediction.selected is None:
        return Verdict("faulty", lines, prediction.fault)
    if not prediction.selected:
        return Verdict("null_or_empty", lines)
    meant = meant_ids(prediction.selected, row.memory_ids)
    if not meant:
        return Verdict("not_in_pool", lines)
    assert row.gold is not None
    right = row.memory_ids[row.gold] in meant
    return Verdict("correct" if right else "wrong", lines)


def figures(
    rows: Sequence[Task3Row], verdicts: Mapping[str, Verdict], seed: int = 0
) -> dict[str, Any]:
    """Accuracies with 95 % intervals over sessions, coverage, and the tally of each cause.

    An accuracy over no query at all is None.
    """
    causes = {cause: Tally() for cause in CAUSES}
    for row in rows:
        verdict = verdicts[row.benchmark_id]
        causes[verdict.cause].add(*verdict.lines, fault=verdict.fault)
    answered = [row for row in rows if verdicts[row.benchmark_id].cause in ANSWERED]
    return {
        "asked": len(rows),
        "answered": len(answered),
        "coverage": round(len(answered) / len(rows), 6) if rows else None,
        "accuracy_over_answered": _accuracy(answered, verdicts, seed),
        "accuracy_unanswered_as_wrong": _accuracy(rows, verdicts, seed),
        "causes": {cause: tally.as_json() for cause, tally in causes.items()},
    }


def _accuracy(
    rows: Sequence[Task3Row], verdicts: Mapping[str, Verdict], seed: int
) -> dict[str, Any] | None:
    if not rows:
        return None
    values = np.array([verdicts[row.benchmark_id].cause == "correct" for row in rows], float)
    found = asdict(Bootstrap([row.session_id for row in rows], seed).interval(values))
    return {k: v if isinstance(v, str) else round(v, 6) for k, v in found.items()}


def shared_gold_ids(rows: Sequence[Task3Row]) -> int:
    """In how many pools the gold's id stands on other memories too: there a match proves less."""
    counts = (Counter(row.memory_ids)[row.memory_ids[row.gold or 0]] for row in rows)
    return sum(count > 1 for count in counts)
