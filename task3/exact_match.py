"""Predictions against references: every query falls under one cause, and causes become figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.statistics import Bootstrap
from recallbed.corpus.predictions import Prediction, Tally, meant_ids
from recallbed.corpus.records import Task3Row
from recallbed.errors import UserError

ANSWERED = ("correct", "wrong", "not_in_pool")
CAUSES = (*ANSWERED, "null_or_empty", "faulty", "repeated", "missing")


@dataclass(frozen=True, slots=True)
class QueryVerdict:
    """What became of one query: its cause, the lines it rests on, and a fault's message.

    The lines are those of its prediction rows; of a missing query, its line in model_input.
    """

    cause: str
    lines: tuple[int, ...]
    fault: str = ""


def judge(
    rows: Sequence[Task3Row], predictions: Sequence[Prediction]
) -> tuple[dict[str, QueryVerdict], Tally]:
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


def _verdict(row: Task3Row, given: Sequence[Prediction]) -> QueryVerdict:
    if not given:
        return QueryVerdict("missing", (row.line,))
    lines = tuple(prediction.line for prediction in given)
    if len(given) > 1:
        return QueryVerdict("repeated", lines)
    [prediction] = given
    if prediction.selected is None:
        return QueryVerdict("faulty", lines, prediction.fault)
    if not prediction.selected:
        return QueryVerdict("null_or_empty", lines)
    meant = meant_ids(prediction.selected, row.memory_ids)
    if not meant:
        return QueryVerdict("not_in_pool", lines)
    assert row.gold is not None
    right = row.memory_ids[row.gold] in meant
    return QueryVerdict("correct" if right else "wrong", lines)


def figures(
    rows: Sequence[Task3Row], verdicts: Mapping[str, QueryVerdict], seed: int = 0
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
    rows: Sequence[Task3Row], verdicts: Mapping[str, QueryVerdict], seed: int
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


def read_exclusions(path: Path, known: Collection[str]) -> frozenset[str]:
    """The benchmark_ids of a text file, one a line, blank lines and lines that start with # aside.

    Raises UserError for a file that isn't UTF-8 text, and for ids that are not among `known`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}. Save it as UTF-8") from None
    places: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if name and not name.startswith("#"):
            places.setdefault(name, number)
    unknown = [name for name in places if name not in known]
    if unknown:
        shown = ", ".join(f"`{name[:60]}` (line {places[name]})" for name in unknown[:3])
        raise UserError(
            f"{path}: {len(unknown)} of {len(places)} ids are no query of this split: {shown}"
        )
    return frozenset(places)
