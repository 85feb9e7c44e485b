"""Was the memory used? The paper's way to score task 3, beside exact recall@1.

What is looked for is the reference's own memory, whatever memory a prediction selects: that is
what the paper's judge was shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

from analysis.statistics import Bootstrap
from indexes.tokens import MultilingualTokens, Tokens
from recallbed.corpus.records import Task3Row
from recallbed.harness.failures import Failures

_MARK = re.compile(r"\s*\[ERROR:[^\]]*\]?")
THRESHOLD = 0.2
"""The paper's: from this overlap on a memory counts as used where there is no judge."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a prediction row says: its answer, and the reason that it gives; "" where missing."""

    answer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Use:
    """Whether the gold memory was used; None where that couldn't be judged, for `cause`.

    `differ` tells whether the votes of a judge differ, None where fewer than two came.
    """

    used: bool | None
    cause: str = ""
    differ: bool | None = None


@cache
def _tokens(text: str) -> Tokens:
    return MultilingualTokens()(text)


def overlap(memory: str, reason: str) -> float:
    """The share of the memory's distinct tokens that stand in the reason too, 0 to 1.

    Tokens are those of the multilingual BM25 without stopwords; of a memory that is nothing but
    stopwords, all count. An annotator's mark at its end is no part of what it says. 0 for a
    memory without tokens.
    """
    content, every = _tokens(_MARK.sub("", memory))
    own = set(content or every)
    said = set(_tokens(reason).every)
    return len(own & said) / len(own) if own else 0.0


def by_overlap(memory: str, words: Words) -> Use:
    """Used, where the reason holds at least THRESHOLD of the memory."""
    return Use(overlap(memory, words.reason) >= THRESHOLD)


def use_figures(
    rows: Sequence[Task3Row],
    uses: Mapping[str, Use],
    correct: Mapping[str, bool],
    seed: int = 0,
) -> dict[str, Any]:
    """How often the memory was used, with intervals over sessions, and beside exact recall@1.

    `uses` and `correct` are by benchmark_id, of the queries that have a prediction. The unjudged
    are a category of their own: `over_judged` leaves them out, and in `unanswered_as_unused` only
    queries without a prediction count as unused.
    """
    there = [row for row in rows if row.benchmark_id in uses]
    judged = [row for row in there if uses[row.benchmark_id].used is not None]
    unjudged = {row.benchmark_id for row in there} - {row.benchmark_id for row in judged}
    counted = [row for row in rows if row.benchmark_id not in unjudged]
    causes = Failures(uses[name].cause for name in unjudged).counts
    cross = Counter(
        ("used" if uses[row.benchmark_id].used else "not_used")
        + ("_and_correct" if correct[row.benchmark_id] else "_and_not_correct")
        for row in judged
    )
    differ = [one.differ for row in there if (one := uses[row.benchmark_id]).differ is not None]
    names = [a + b for a in ("used", "not_used") for b in ("_and_correct", "_and_not_correct")]
    return {
        "asked": len(rows),
        "answered": len(there),
        "judged": len(judged),
        "unjudged": dict(sorted(causes.items())),
        "over_judged": _rate(judged, uses, seed),
        "unanswered_as_unused": _rate(counted, uses, seed),
        "votes_differ": sum(differ) / len(differ) if differ else None,
        "beside_exact_match": {name: cross[name] for name in names},
    }


def _rate(rows: Sequence[Task3Row], uses: Mapping[str, Use], seed: int) -> dict[str, Any] | None:
    if not rows:
        return None
    values = np.array([bool((one := uses.get(r.benchmark_id)) and one.used) for r in rows], float)
    found = asdict(Bootstrap([row.session_id for row in rows], seed).interval(values))
    return {k: v if isinstance(v, str) else round(v, 6) for k, v in found.items()}


def describe_use(figures: Mapping[str, Any]) -> Iterator[str]:
    """The figures as lines of text."""
    yield (
        f"the gold memory was used, by {figures['by']}: {figures['answered']} with a row,"
        f" {figures['judged']} judged, {sum(figures['unjudged'].values())} unjudged"
    )
    for name, key in (
        ("used, over the judged", "over_judged"),
        ("used, unanswered as unused", "unanswered_as_unused"),
    ):
        if (found := figures[key]) is not None:
            interval = f"95 % [{found['low']:.4f}, {found['high']:.4f}] {found['method']}"
            yield f"  {name:<38} {found['mean']:.4f}  {interval}"
    for name, count in figures["beside_exact_match"].items():
        yield f"    {name.replace('_', ' '):<36} {count}"
    if figures["votes_differ"] is not None:
        yield f"  {'share of queries whose votes differ':<38} {figures['votes_differ']:.4f}"
    for cause, count in figures["unjudged"].items():
        yield f"    unjudged, {cause}: {count}"
