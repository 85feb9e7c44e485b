"""What an audit finds: one verdict per row of its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from analysis.shortcut_scores import ShortcutScore
from analysis.statistics import Interval, rounded

Verdict = Literal["shortcut", "note", "clear", "not applicable"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""Worst first."""
LEVEL = 0.05
"""Of the p-value after Holm's correction."""
NEGLIGIBLE, STRONG = 0.01, 0.1
"""Shares of the way from chance to certainty: below the first is clear, from the second a
shortcut."""
RECALL = "recall@1"
QUERIES = "share of queries"
TEXTS = "share of texts"


@dataclass(frozen=True, slots=True)
class Example:
    """A place of a finding: the query, positions in its pool, and the text that was found.

    `how` says what is equal, similar or wrong.
    """

    query_id: str
    positions: tuple[int, ...] = ()
    how: str = ""
    text: str = ""
    similarity: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are known."""
        known = {key: value for key, value in asdict(self).items() if value not in (None, (), "")}
        found: dict[str, Any] = rounded(known)
        return found


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A finding in the cleaned view: how it was removed and what is left of it.

    `step` is None, and `reason` says why, if it cannot be removed without other texts or pools.
    `verdict` is that of the cleaned view.
    """

    step: str | None
    verdict: Verdict | None = None
    value: float | None = None
    chance: float | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        found: dict[str, Any] = rounded(asdict(self))
        return found


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of an audit.

    `value` is recall@1 of a ranker, or a share (`unit` says of what); `chance` is that of a random
    order of the same pools. `recall` holds other depths of a ranker. `holm` is its p-value,
    corrected for all rankers, and `by` what a ranker ranks by, in words. `examples` are the places,
    in the order of the file.
    """

    name: str
    group: str
    verdict: Verdict
    text: str
    unit: str = RECALL
    value: float | None = None
    interval: Interval | None = None
    chance: float | None = None
    recall: Mapping[int, float] = field(default_factory=dict)
    holm: float | None = None
    by: str = ""
    cleaned: Cleaned | None = None
    examples: tuple[Example, ...] = ()

    def to_json(self, examples: bool = True) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        found: dict[str, Any] = rounded(
            {
                "name": self.name,
                "group": self.group,
                "verdict": self.verdict,
                "text": self.text,
                "by": self.by,
                "unit": self.unit,
                "value": self.value,
                "interval": None if self.interval is None else self.interval.to_json(),
                "chance": self.chance,
                "recall": {str(k): value for k, value in self.recall.items()},
                "holm": self.holm,
                "cleaned": None if self.cleaned is None else self.cleaned.to_json(),
            }
        )
        if examples:
            found["examples"] = [example.to_json() for example in self.examples]
        return found


def verdict_of(score: ShortcutScore) -> Verdict:
    """Return the verdict of a ranker.

    `not applicable` if it says nothing about any pool; `clear` if recall@1 is not above chance
    after Holm's correction, or by less than `NEGLIGIBLE` of the way from chance to certainty;
    `shortcut` from `STRONG` of the way; `note` between.
    """
    if score.holm is None:
        return "not applicable"
    if score.holm >= LEVEL or score.lift < NEGLIGIBLE:
        return "clear"
    return "shortcut" if score.lift >= STRONG else "note"


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Return the findings by verdict, then by how far they are above chance."""

    def above(one: Finding) -> float:
        return (one.value or 0.0) - (one.chance or 0.0)

    return sorted(findings, key=lambda one: (VERDICTS.index(one.verdict), -above(one), one.name))
