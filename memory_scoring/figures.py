"""From sessions with their pairs to figures: means over sessions, pooled counts, breakdowns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.statistics import Bootstrap, Floats
from memory_scoring.pairs import Pair, coverage
from memory_scoring.similar import algorithmic_score, mean_score
from memory_scoring.similarity import text_similarity
from recallbed.corpus.records import MemoryItem

JSON = Any


@dataclass(frozen=True, slots=True)
class Matched:
    """One session: its gold and predicted memories and the one-to-one pairs between them."""

    session: str
    gold: tuple[MemoryItem, ...]
    predicted: tuple[MemoryItem, ...]
    pairs: tuple[Pair, ...]

    @property
    def coverage(self) -> tuple[float, float, float]:
        """Precision, recall and F1 of this session."""
        return coverage(len(self.pairs), len(self.predicted), len(self.gold))

    @property
    def text_similarities(self) -> list[float]:
        """Of each pair, how alike its two texts are, 0 to 1."""
        return [
            text_similarity(self.gold[i].text, self.predicted[j].text) for i, j, _ in self.pairs
        ]

    @property
    def quality(self) -> tuple[float, float]:
        """The mean pair score of this session, and its algorithmic score."""
        if not self.gold and not self.predicted:
            return 1.0, 100.0
        return mean_score(self.pairs), algorithmic_score(self.pairs, self.coverage[2])


def figures(sessions: Sequence[Matched], *, graded: bool, seed: int = 0) -> dict[str, JSON]:
    """Precision, recall and F1 averaged over sessions, each with its 95 % interval.

    `graded` adds pair score and algorithmic score, which mean something only where pairs have
    scores of their own. All are None over no session. `text_similarity` is the mean over all pairs,
    with an interval over sessions and the number of `pairs`: a pair may rest on label, type and
    confidence alone. It is None over no pair.
    """
    names = ["precision", "recall", "f1", *(["pair_score", "algorithmic_score"] if graded else [])]
    if not sessions:
        return {
            "sessions": 0,
            **dict.fromkeys(names),
            "intervals": {},
            "pooled": pooled([]),
            "text_similarity": None,
        }
    values = np.array([(*one.coverage, *(one.quality if graded else ())) for one in sessions])
    bootstrap = Bootstrap([one.session for one in sessions], seed)
    intervals = {
        name: _interval(bootstrap, values[:, i], 100.0 if name == "algorithmic_score" else 1.0)
        for i, name in enumerate(names)
    }
    return {
        "sessions": len(sessions),
        **{name: interval.pop("mean") for name, interval in intervals.items()},
        "intervals": intervals,
        "pooled": pooled(sessions),
        "text_similarity": _text_similarity(sessions, seed),
    }


def _text_similarity(sessions: Sequence[Matched], seed: int) -> dict[str, JSON] | None:
    found = [(one.session, value) for one in sessions for value in one.text_similarities]
    if not found:
        return None
    values = np.array([value for _, value in found])
    return {**_interval(Bootstrap([name for name, _ in found], seed), values), "pairs": len(found)}


def pooled(sessions: Sequence[Matched]) -> dict[str, JSON]:
    """Counts over all sessions together, and precision, recall and F1 of these."""
    matched = sum(len(one.pairs) for one in sessions)
    predicted = sum(len(one.predicted) for one in sessions)
    gold = sum(len(one.gold) for one in sessions)
    found = dict(
        zip(("precision", "recall", "f1"), coverage(matched, predicted, gold), strict=True)
    )
    return {
        "gold": gold,
        "predicted": predicted,
        "matched": matched,
        **{name: round(value, 6) for name, value in found.items()},
    }


def breakdown(
    sessions: Sequence[Matched], group: Callable[[MemoryItem], str], seed: int = 0
) -> dict[str, JSON]:
    """Recall of the gold memories and precision of the predicted ones of each group.

    Over memories, not over sessions. `recall` counts a gold memory that was paired with anything,
    `recall_as_such` one that was paired with a memory of its own group. Groups by number of gold
    memories, then by name; a figure over no memory is None.
    """
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
    names = sorted({*golds, *predictions}, key=lambda name: (-len(golds.get(name, ())), name))
    return {name: _group(golds.get(name, []), predictions.get(name, []), seed) for name in names}


def _group(
    golds: Sequence[tuple[str, bool, bool]], predictions: Sequence[tuple[str, bool]], seed: int
) -> dict[str, JSON]:
    found: dict[str, JSON] = {
        **{"gold": len(golds), "predicted": len(predictions)},
        **{"recall": None, "recall_as_such": None, "precision": None},
    }
    if golds:
        bootstrap = Bootstrap([session for session, _, _ in golds], seed)
        for at, name in ((1, "recall"), (2, "recall_as_such")):
            found[name] = _interval(bootstrap, np.array([row[at] for row in golds], float))
    if predictions:
        bootstrap = Bootstrap([session for session, _ in predictions], seed)
        found["precision"] = _interval(bootstrap, np.array([hit for _, hit in predictions], float))
    return found


def _interval(bootstrap: Bootstrap, values: Floats, scale: float = 1.0) -> dict[str, JSON]:
    found: Mapping[str, JSON] = asdict(bootstrap.interval(values, (0.0, scale)))
    return {k: v if isinstance(v, str) else round(v, 6) for k, v in found.items()}
