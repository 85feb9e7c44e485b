"""Exact match: the selected id of every query against the gold, and what that comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.statistics import Interval, mean_interval
from recallbed.corpus.predictions import (
    FAULTY,
    NULL_OR_EMPTY,
    MatchCounts,
    Matching,
    PredictionFile,
    Selection,
    Tally,
    describe_tallies,
    match_predictions,
    meant_ids,
)
from recallbed.corpus.records import Task3Row
from recallbed.errors import UserError
from task3.used_memory import UseRates

ANSWERS = ("correct", "wrong", "not_in_pool")


def match_selections(
    rows: Sequence[Task3Row], file: PredictionFile[Selection]
) -> Matching[Selection]:
    """Match predictions with queries, each of which must have its gold.

    Raise UserError if no query is answered.
    """
    by_name = {row.benchmark_id: row for row in rows}

    def judge(name: str, selection: Selection) -> tuple[str, str]:
        row = by_name[name]
        if selection.selected is None:
            return FAULTY, selection.fault
        if not selection.selected:
            return NULL_OR_EMPTY, ""
        meant = meant_ids(selection.selected, row.memory_ids)
        assert row.gold is not None
        if not meant:
            return "not_in_pool", ""
        return ("correct" if row.memory_ids[row.gold] in meant else "wrong"), ""

    lines = {name: row.line for name, row in by_name.items()}
    return match_predictions(file, lines, judge, ANSWERS)


@dataclass(frozen=True, slots=True)
class ExactMatch:
    """Accuracies with 95 % intervals over sessions; None over no query."""

    counts: MatchCounts
    over_answered: Interval | None
    unanswered_as_wrong: Interval | None

    def to_json(self) -> dict[str, Any]:
        """Return counts, accuracies and causes."""
        counts = self.counts.to_json()
        causes = counts.pop("causes")
        return {
            **counts,
            "accuracy_over_answered": self.over_answered and self.over_answered.to_json(),
            "accuracy_unanswered_as_wrong": self.unanswered_as_wrong
            and self.unanswered_as_wrong.to_json(),
            "causes": causes,
        }


def exact_match(
    rows: Sequence[Task3Row], matching: Matching[Selection], seed: int = 0
) -> ExactMatch:
    """Return the accuracies over `rows`."""
    right = {row.benchmark_id: matching.of[row.benchmark_id].cause == "correct" for row in rows}
    answered = [row for row in rows if matching.of[row.benchmark_id].cause in ANSWERS]
    over, all_of_them = (
        mean_interval([right[r.benchmark_id] for r in group], [r.session_id for r in group], seed)
        for group in (answered, rows)
    )
    return ExactMatch(matching.counts(list(right)), over, all_of_them)


@dataclass(frozen=True, slots=True)
class SelectionReport:
    """The scores of a file; those `without_excluded` queries if some were to be left out."""

    matching: Matching[Selection]
    split: str
    size: int
    shared_gold_ids: int
    all: ExactMatch
    use: UseRates | None = None
    excluded: int | None = None
    without_excluded: ExactMatch | None = None
    use_without_excluded: UseRates | None = None

    @property
    def incomplete(self) -> Tally:
        """The rows without answer or reason, which are scored all the same."""
        found = Tally()
        for row in self.matching.file.predictions:
            if row.value is None or row.value.answer is None or row.value.reason is None:
                found.add(row.line)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return what --json prints; scores that were not asked for are left out."""
        more = {
            "excluded": self.excluded,
            "without_excluded": self.without_excluded and self.without_excluded.to_json(),
            "use": self.use and self.use.to_json(),
            "use_without_excluded": self.use_without_excluded
            and self.use_without_excluded.to_json(),
        }
        return {
            **self.matching.header(),
            "split": self.split,
            "size": self.size,
            "without_answer_or_reason": self.incomplete.to_json(),
            "shared_gold_ids": self.shared_gold_ids,
            "all": self.all.to_json(),
            **{name: value for name, value in more.items() if value is not None},
        }

    def lines(self) -> Iterator[str]:
        """Return the report as lines of text."""
        file, asked = self.matching.file, self.all.counts.asked
        where = f"{self.split}, task3/d{self.size}"
        yield f"{file.source}: {file.lines} lines, scored on {where}"
        yield f"all {asked} queries"
        yield from _scores(self.all)
        yield from self.use.lines() if self.use else ()
        if self.without_excluded is not None:
            left = self.without_excluded.counts.asked
            yield f"without the {self.excluded} excluded, {left} queries"
            yield from _scores(self.without_excluded)
            yield (
                f"  if every excluded gold is wrong, a perfect system gets {left / asked:.4f}"
                f" ({left} / {asked}) on all"
            )
            yield from self.use_without_excluded.lines() if self.use_without_excluded else ()
        yield from self.matching.unmatched_lines()
        if self.incomplete.count:
            yield f"scored all the same, without answer or reason: {self.incomplete.text()}"
        if self.shared_gold_ids:
            yield (
                f"note: in {self.shared_gold_ids} pools other memories have the gold's id too, and"
                " choosing one of those counts as correct"
            )


def _scores(scores: ExactMatch) -> Iterator[str]:
    counts = scores.counts
    correct = counts.causes["correct"].count
    for name, found, n in (
        ("accuracy over answered queries", scores.over_answered, counts.answered),
        ("accuracy, unanswered as wrong", scores.unanswered_as_wrong, counts.asked),
    ):
        if found is None:
            yield f"  {name:<38} none was answered"
        else:
            yield f"  {name:<38} {found.mean:.4f}  ({correct} / {n})  {found}"
    share = f"{counts.coverage:.4f}  ({counts.answered} / {counts.asked})"
    yield f"  {'coverage, answered / asked':<38} {share}"
    yield from describe_tallies(counts.causes, "    ")


def shared_gold_ids(rows: Sequence[Task3Row]) -> int:
    """Count the pools in which other memories have the gold's id: a match proves less there."""
    counts = (Counter(row.memory_ids)[row.memory_ids[row.gold or 0]] for row in rows)
    return sum(count > 1 for count in counts)


def read_exclusions(path: Path, known: Collection[str]) -> frozenset[str]:
    """Read benchmark_ids to leave out, one per line; blank lines and lines with # are ignored.

    Raise UserError for a file that is not UTF-8 text, and for ids that are not among `known`.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}. Save it as UTF-8") from None
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if name and not name.startswith("#"):
            lines.setdefault(name, number)
    unknown = [name for name in lines if name not in known]
    if unknown:
        shown = ", ".join(f"`{name[:60]}` (line {lines[name]})" for name in unknown[:3])
        raise UserError(f"{path}: {len(unknown)} of {len(lines)} ids are not in the split: {shown}")
    return frozenset(lines)
