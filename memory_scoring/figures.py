"""Figures of sessions with their pairs: means over sessions, pooled counts, breakdowns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.statistics import Bootstrap, Interval, mean_interval, rounded
from memory_scoring.pairing import Pair, algorithmic_score, coverage, mean_score
from memory_scoring.similarity import text_similarity
from recallbed.corpus.records import MemoryItem

JSON = Any
OF_100 = ("algorithmic_score", "review_score", "blended_score")


@dataclass(frozen=True, slots=True)
class SessionPairs:
    """One session: its gold and predicted memories and the one-to-one pairs between them.

    `review` is a judge's `review_score`, None without a judge that reviews.
    """

    session: str
    gold: tuple[MemoryItem, ...]
    predicted: tuple[MemoryItem, ...]
    pairs: tuple[Pair, ...]
    review: float | None = None

    @property
    def coverage(self) -> tuple[float, float, float]:
        """Precision, recall and F1 of this session."""
        return coverage(len(self.pairs), len(self.predicted), len(self.gold))

    @property
    def text_similarities(self) -> list[float]:
        """The similarity of the two texts of each pair, 0 to 1."""
        return [
            text_similarity(self.gold[i].text, self.predicted[j].text) for i, j, _ in self.pairs
        ]

    @property
    def quality(self) -> tuple[float, float]:
        """The mean pair score of this session, and its algorithmic score."""
        if not self.gold and not self.predicted:
            return 1.0, 100.0
        return mean_score(self.pairs), algorithmic_score(self.pairs, self.coverage[2])

    @property
    def reviewed(self) -> tuple[float, ...]:
        """The score of the review and the blended score; nothing without a review."""
        if self.review is None:
            return ()
        from judges.memory_reviews import blended_score  # its replies are pydantic's

        return self.review, blended_score(self.quality[1], self.review)


@dataclass(frozen=True, slots=True)
class Pooled:
    """Counts over all sessions together."""

    gold: int
    predicted: int
    matched: int

    @property
    def rates(self) -> dict[str, float]:
        """Precision, recall and F1 of the counts."""
        values = coverage(self.matched, self.predicted, self.gold)
        return dict(zip(("precision", "recall", "f1"), values, strict=True))

    def to_json(self) -> dict[str, JSON]:
        """Return counts and rates."""
        found: dict[str, JSON] = rounded({**asdict(self), **self.rates})
        return found


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """Means over sessions with their 95 % intervals; None over no session.

    `text_similarity` is the mean over all `pairs`, with an interval over sessions: a pair may be
    based on label, type and confidence only. None over no pair.
    """

    sessions: int
    means: Mapping[str, Interval | None]
    pooled: Pooled
    text_similarity: Interval | None
    pairs: int

    def mean(self, name: str) -> float | None:
        """Return a mean by its name, such as `f1`."""
        found = self.means[name]
        return None if found is None else found.mean

    def to_json(self) -> dict[str, JSON]:
        """Return the means by name, their intervals beneath `intervals`, and the rest."""
        intervals = {name: one.to_json() for name, one in self.means.items() if one is not None}
        means = {
            name: intervals[name].pop("mean") if one else None for name, one in self.means.items()
        }
        text = self.text_similarity
        return {
            "sessions": self.sessions,
            **means,
            "intervals": intervals,
            "pooled": self.pooled.to_json(),
            "text_similarity": text and {**text.to_json(), "pairs": self.pairs},
        }


def figures(
    sessions: Sequence[SessionPairs], *, graded: bool, reviewed: bool = False, seed: int = 0
) -> SessionFigures:
    """Return precision, recall and F1 averaged over sessions.

    `graded` adds pair score and algorithmic score, which need pairs with scores of their own;
    `reviewed` adds the score of the reviews and the blended score.
    """
    names = [
        *("precision", "recall", "f1"),
        *(("pair_score", "algorithmic_score") if graded else ()),
        *(("review_score", "blended_score") if reviewed else ()),
    ]
    means: dict[str, Interval | None] = dict.fromkeys(names)
    if sessions:
        values = np.array(
            [(*one.coverage, *(one.quality if graded else ()), *one.reviewed) for one in sessions]
        )
        bootstrap = Bootstrap([one.session for one in sessions], seed)
        for i, name in enumerate(names):
            highest = 100.0 if name in OF_100 else 1.0
            means[name] = bootstrap.interval(values[:, i], (0.0, highest))
    texts = [(value, one.session) for one in sessions for value in one.text_similarities]
    similarity = mean_interval([value for value, _ in texts], [name for _, name in texts], seed)
    pooled = Pooled(
        gold=sum(len(one.gold) for one in sessions),
        predicted=sum(len(one.predicted) for one in sessions),
        matched=sum(len(one.pairs) for one in sessions),
    )
    return SessionFigures(len(sessions), means, pooled, similarity, len(texts))


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Recall of the gold memories and precision of the predicted ones of a group, over memories.

    `recall` counts a gold memory that was paired with anything, `recall_as_such` one that was
    paired with a memory of its own group. A figure over no memory is None.
    """

    gold: int
    predicted: int
    recall: Interval | None
    recall_as_such: Interval | None
    precision: Interval | None

    def to_json(self) -> dict[str, JSON]:
        """Return the counts and figures."""
        found: dict[str, JSON] = rounded(asdict(self))
        return found


def figures_by_group(
    sessions: Sequence[SessionPairs], group: Callable[[MemoryItem], str], seed: int = 0
) -> dict[str, GroupFigures]:
    """Return the figures of each group, by number of gold memories, then by name."""
    golds: dict[str, list[tuple[str, bool, bool]]] = {}
    predictions: dict[str, list[tuple[str, bool]]] = {}
    for one in sessions:
        of_gold = {pair.gold: pair.predicted for pair in one.pairs}
        paired = set(of_gold.values())
        for i, item in enumerate(one.gold):
            name = group(item)
            same = i in of_gold and group(one.predicted[of_gold[i]]) == name
            golds.setdefault(name, []).append((one.session, i in of_gold, same))
        for j, item in enumerate(one.predicted):
            predictions.setdefault(group(item), []).append((one.session, j in paired))
    found = {}
    for name in sorted({*golds, *predictions}, key=lambda n: (-len(golds.get(n, ())), n)):
        wanted, given = golds.get(name, []), predictions.get(name, [])
        clusters = [row[0] for row in wanted]
        found[name] = GroupFigures(
            gold=len(wanted),
            predicted=len(given),
            recall=mean_interval([row[1] for row in wanted], clusters, seed),
            recall_as_such=mean_interval([row[2] for row in wanted], clusters, seed),
            precision=mean_interval([row[1] for row in given], [row[0] for row in given], seed),
        )
    return found
