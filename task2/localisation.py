"""Whether the retriever ranks the memory that must change first.

The pool is the given memories. Each user turn of the new dialogue is a query of its own, and a
memory's score is its best over the turns: only one of them says what changed. The gold is the given
memory that the references modify.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.metrics import Recall, above_tied, recall_at, reciprocal_rank
from analysis.statistics import Interval, mean_interval
from recallbed.corpus.records import Memory, Task2Row
from retrievers.base import NotScored, Retriever, RetrieverError
from task2.actions import changed_positions

JSON = Any


@dataclass(frozen=True, slots=True)
class GoldRank:
    """The rank of the memory that must change, in one session's pool."""

    session: str
    pool: int
    above: int
    tied: int


@dataclass(frozen=True, slots=True)
class Localisation:
    """Ranks of one retriever over sessions with one memory to change among several.

    Sessions without a change, with several, or with a pool of one (where any retriever is right)
    are counted in `left_out`, those that the retriever fails on in `failed`, by cause.
    """

    retriever: str
    settings: Mapping[str, JSON]
    attempted: int
    ranks: Sequence[GoldRank]
    failed: Mapping[str, int]
    left_out: Mapping[str, int]
    seed: int = 0

    @property
    def recall(self) -> Interval | None:
        """Recall@1 in expectation over ties."""
        return self._mean([recall_at(1, rank.above, rank.tied) for rank in self.ranks])

    @property
    def reciprocal_rank(self) -> Interval | None:
        """Reciprocal rank in expectation over ties."""
        return self._mean([reciprocal_rank(rank.above, rank.tied) for rank in self.ranks])

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Recall@1 with the gold last, and first, among its ties."""
        if not self.ranks:
            return None
        found = [Recall(1).bounds([(rank.above, rank.tied)]) for rank in self.ranks]
        worst, best = (sum(side) / len(found) for side in zip(*found, strict=True))
        return worst, best

    @property
    def chance(self) -> float | None:
        """Recall@1 of a random order."""
        pools = [1 / rank.pool for rank in self.ranks]
        return sum(pools) / len(pools) if pools else None

    def _mean(self, values: Sequence[float]) -> Interval | None:
        return mean_interval(values, [rank.session for rank in self.ranks], self.seed)

    def to_json(self) -> dict[str, JSON]:
        """Return counts and figures."""
        found: dict[str, JSON] = {
            "retriever": self.retriever,
            "settings": dict(self.settings),
            "attempted": self.attempted,
            "scored": len(self.ranks),
            "failed": dict(self.failed),
            "left_out": dict(self.left_out),
            "recall@1": None,
            "reciprocal_rank": self.reciprocal_rank and self.reciprocal_rank.to_json(),
            "chance": self.chance and round(self.chance, 6),
        }
        if self.recall is not None and self.bounds is not None:
            worst, best = (round(bound, 6) for bound in self.bounds)
            found["recall@1"] = {**self.recall.to_json(), "worst": worst, "best": best}
            found["tied"] = sum(rank.tied > 1 for rank in self.ranks)
        return found


def localisation(
    rows: Iterable[Task2Row], label: str, retriever: Retriever, seed: int = 0
) -> Localisation:
    """Rank the memory that must change in each session.

    A session fails if one of its turns does. Raise UserError as `Retriever.results` does.
    """
    asked, left_out = [], Counter[str]()
    for row in rows:
        targets = changed_positions(row.memories, row.gold or ())
        if len(targets) != 1:
            left_out["without a change" if not targets else "several changes"] += 1
        elif len(row.memories) < 2:
            left_out["trivial: one memory"] += 1
        elif not any(turn.role == "user" for turn in row.new_dialogue):
            left_out["without a user turn"] += 1
        else:
            asked.append((row, targets[0]))
    retriever.prepare_for(
        label,
        (query for row, _ in asked for query in _queries(row)),
        (memory for row, _ in asked for memory in _pool(row)),
    )
    ranks: list[GoldRank] = []
    failed: Counter[str] = Counter()
    for row, target in asked:
        try:
            scores = best_over_turns(retriever, _queries(row), _pool(row))
        except RetrieverError as error:
            failed[error.cause] += 1
            continue
        ranks.append(GoldRank(row.session_id, len(row.memories), *above_tied(scores, target)))
    return Localisation(
        retriever=label,
        settings=dict(retriever.settings()),
        attempted=len(asked),
        ranks=ranks,
        failed=dict(failed.most_common()),
        left_out=dict(left_out),
        seed=seed,
    )


def best_over_turns(
    retriever: Retriever, queries: Sequence[str], pool: Sequence[Memory]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return each memory's best score over the queries, (len(pool),). Raise RetrieverError."""
    found = []
    for result in retriever.results(queries, [pool] * len(queries)):
        if isinstance(result, NotScored):
            raise result.error
        found.append(np.asarray(result.scores, np.float32))
    best: np.ndarray[Any, np.dtype[np.float32]] = np.max(found, axis=0)
    return best


def _pool(row: Task2Row) -> list[Memory]:
    return [Memory(item.text, item.label) for item in row.memories]


def _queries(row: Task2Row) -> list[str]:
    return [turn.text for turn in row.new_dialogue if turn.role == "user"]
