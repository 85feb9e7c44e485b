"""The report on predicted memory lists of tasks 1 and 2: as JSON, and as lines and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from analysis.statistics import Interval
from judges.run import Verdicts
from judges.summary import JudgeSummary, rate
from memory_scoring.figures import GroupFigures, SessionFigures
from memory_scoring.pairing import Pair
from memory_scoring.predictions import PredictedSessions, R
from recallbed.corpus.layout import SAMPLE_NOTE
from recallbed.corpus.predictions import describe_tallies
from recallbed.harness.text_table import TextTable

JSON = Any
GROUPS_SHOWN = 12
"""Groups in a table: task 2's references have some ninety top-level labels."""


def with_interval(found: Interval | None) -> str:
    """Return a mean with its interval; "-" for none."""
    if found is None:
        return "-"
    digits = 2 if found.high > 1 else 4
    mean, low, high = (f"{value:.{digits}f}" for value in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]"


def number(value: float | None) -> str:
    """Return four decimals; "-" for none."""
    return "-" if value is None else f"{value:.4f}"


@dataclass(frozen=True, slots=True)
class MemoryReport(Generic[R]):
    """The scores of a file, and the `pairs` of each scored session that they rest on."""

    sessions: PredictedSessions[R]
    scorer: str
    assign: str | None
    verdicts: Verdicts | None
    pairs: Mapping[str, tuple[Pair, ...]]
    figures: SessionFigures
    by_type: Mapping[str, GroupFigures]
    by_label: Mapping[str, GroupFigures]
    by_language: Mapping[str, SessionFigures]

    @property
    def unanswered_as_wrong(self) -> dict[str, float]:
        """Precision, recall and F1 with 0 for unanswered sessions; unjudged ones are left out."""
        matching = self.sessions.matching
        unjudged = len(matching.values) - self.figures.sessions
        share = self.figures.sessions / (len(matching.of) - unjudged)
        means = {key: self.figures.mean(key) or 0.0 for key in ("precision", "recall", "f1")}
        return {key: mean * share for key, mean in means.items()}

    @property
    def judged(self) -> JudgeSummary | None:
        """The counts of the judge, without a score: pairs are scored, not verdicts."""
        return None if self.verdicts is None else rate(list(self.verdicts.of.values()), None)

    def to_json(self) -> dict[str, JSON]:
        """Return what --json prints."""
        inputs, matching = self.sessions.inputs, self.sessions.matching
        report: dict[str, JSON] = {
            "task": inputs.track,
            "split": inputs.split,
            "sample": inputs.sample,
            **matching.header(),
            **matching.counts().to_json(),
            "members_left_out": self.sessions.left_out.to_json(),
            "memories_without_value": self.sessions.without_value.to_json(),
            "scorer": self.scorer,
        }
        if self.assign is not None:
            report["assign"] = self.assign
        if self.verdicts is not None and self.judged is not None:
            prompts = sorted({verdict.prompt for verdict in self.verdicts.of.values()})
            report["judge"] = {**self.verdicts.facts, "prompts": prompts, **self.judged.as_json()}
            del report["judge"]["score"]
        return {
            **report,
            **self.figures.to_json(),
            "unanswered_as_wrong": {k: round(v, 6) for k, v in self.unanswered_as_wrong.items()},
            "by_type": {name: group.to_json() for name, group in self.by_type.items()},
            "by_label": {name: group.to_json() for name, group in self.by_label.items()},
            "by_language": {name: group.to_json() for name, group in self.by_language.items()},
        }

    def lines(self) -> Iterator[str]:
        """Return what was scored, and every line that was not."""
        inputs, matching = self.sessions.inputs, self.sessions.matching
        counts = matching.counts()
        if inputs.sample:
            yield SAMPLE_NOTE
        yield (
            f"{matching.file.source}: {matching.file.lines} lines, {inputs.track} of split"
            f" {inputs.split}, {counts.answered} of {counts.asked} sessions answered"
        )
        how = f", {self.assign} assignment" if self.assign else ""
        yield f"scorer {self.scorer}{how}: {self.figures.sessions} sessions scored"
        yield from describe_tallies(counts.causes)
        yield from matching.unmatched_lines()
        for name, tally in (
            ("members of lists left out, not objects", self.sessions.left_out),
            ("memories without value", self.sessions.without_value),
        ):
            if tally.count:
                yield f"  {name}: {tally.text()}"
        if self.verdicts is not None and self.judged is not None:
            judged = self.judged
            model = self.verdicts.facts["model"]
            yield f"judge {model}: {judged.judged} of {judged.asked} sessions judged"
            yield from (f"  unjudged: {cause}: {n}" for cause, n in judged.unjudged.items())
            if judged.disagreement is not None:
                yield f"  votes differ in {judged.disagreement:.1%} of {judged.voted}"

    def tables(self) -> Iterator[TextTable]:
        """Return the figures, and their breakdowns by type, label and language."""
        columns: tuple[str, ...] = ("figure", "mean [95 %]", "pooled", "unanswered as wrong")
        table = TextTable("over sessions", columns)
        found = self.figures
        for name, interval in found.means.items():
            table.add(
                name.replace("_", " "),
                with_interval(interval),
                number(found.pooled.rates.get(name)),
                number(self.unanswered_as_wrong.get(name)),
            )
        table.add("text similarity of the pairs", with_interval(found.text_similarity), "-", "-")
        yield table
        for key, groups in (("type", self.by_type), ("label", self.by_label)):
            columns = (
                "gold",
                "recall [95 %]",
                f"recall, same {key}",
                "predicted",
                "precision [95 %]",
            )
            hidden = len(groups) - GROUPS_SHOWN
            more = f" ({hidden} smaller ones are in --json only)" if hidden > 0 else ""
            table = TextTable(f"over memories, by {key}{more}", (key, *columns))
            for name, group in list(groups.items())[:GROUPS_SHOWN]:
                table.add(
                    name,
                    group.gold,
                    with_interval(group.recall),
                    number(group.recall_as_such.mean if group.recall_as_such else None),
                    group.predicted,
                    with_interval(group.precision),
                )
            yield table
        columns = ("language", "sessions", "precision", "recall", "F1 [95 %]")
        table = TextTable("over sessions, by language", columns)
        for name, one in self.by_language.items():
            table.add(
                name,
                one.sessions,
                number(one.mean("precision")),
                number(one.mean("recall")),
                with_interval(one.means["f1"]),
            )
        yield table
