"""Whether the retriever ranks the memory that must change first.

The pool is the memories that were given. Each user turn of the new dialogue is a query by itself,
and a memory's score is its best over the turns: only one of them says what changed. The gold is
the given memory that the references modify.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.metrics import Recall, above_tied, recall_at, reciprocal_rank
from analysis.statistics import Bootstrap, Floats
from recallbed.corpus.records import Memory, Task2Row
from retrievers.base import NotScored, Retriever, RetrieverError
from task2.actions import Action, deeds

JSON = Any


@dataclass(frozen=True, slots=True)
class Place:
    """Where the memory that must change stands in one session's ranking."""

    session: str
    pool: int
    above: int
    tied: int


def localisation(
    rows: Iterable[Task2Row], label: str, retriever: Retriever, seed: int = 0
) -> dict[str, JSON]:
    """Recall@1 and E[RR] over sessions with one memory to change among several.

    Sessions without a change, with several, or with a pool of one (where any retriever is right)
    are counted and in no mean, and so are those that the retriever fails on, by cause, whatever it
    raises. A session fails if one of its turns does. Raises UserError as `Retriever.results`.
    """
    asked, left_out = [], Counter[str]()
    for row in rows:
        targets = changed(row)
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
    places: list[Place] = []
    failed: Counter[str] = Counter()
    for row, target in asked:
        try:
            scores = best_over_turns(retriever, _queries(row), _pool(row))
        except RetrieverError as error:
            failed[error.cause] += 1
            continue
        above, tied = above_tied(scores, target)
        places.append(Place(row.session_id, len(row.memories), above, tied))
    return {
        "retriever": label,
        "settings": dict(retriever.settings()),
        "attempted": len(asked),
        "scored": len(places),
        "failed": dict(failed.most_common()),
        "left_out": dict(left_out),
        **_figures(places, seed),
    }


def changed(row: Task2Row) -> list[int]:
    """The positions of the given memories that the references modify."""
    found = deeds(row.memories, row.gold or ())
    return [
        deed.target
        for deed in found
        if deed.action is Action.MODIFICATION and deed.target is not None
    ]


def best_over_turns(
    retriever: Retriever, queries: Sequence[str], pool: Sequence[Memory]
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Each memory's best score over the queries, shape (len(pool),). Raises RetrieverError."""
    found = []
    for result in retriever.results(queries, [pool] * len(queries)):
        if isinstance(result, NotScored):
            raise result.error
        found.append(np.asarray(result.scores, np.float32))
    best: np.ndarray[Any, np.dtype[np.float32]] = np.max(found, axis=0)
    return best


def _figures(places: Sequence[Place], seed: int) -> Mapping[str, JSON]:
    if not places:
        return {"recall@1": None, "reciprocal_rank": None, "chance": None}
    bootstrap = Bootstrap([place.session for place in places], seed)
    bounds = [Recall(1).bounds([(place.above, place.tied)]) for place in places]
    recall = np.array([recall_at(1, place.above, place.tied) for place in places])
    ranks = np.array([reciprocal_rank(place.above, place.tied) for place in places])
    return {
        "recall@1": {
            **_interval(bootstrap, recall),
            "worst": round(sum(low for low, _ in bounds) / len(places), 6),
            "best": round(sum(high for _, high in bounds) / len(places), 6),
        },
        "reciprocal_rank": _interval(bootstrap, ranks),
        "chance": round(sum(1 / place.pool for place in places) / len(places), 6),
        "tied": sum(place.tied > 1 for place in places),
    }


def _interval(bootstrap: Bootstrap, values: Floats) -> dict[str, JSON]:
    found = asdict(bootstrap.interval(values))
    return {k: v if isinstance(v, str) else round(v, 6) for k, v in found.items()}


def _pool(row: Task2Row) -> list[Memory]:
    return [Memory(item.text, item.label) for item in row.memories]


def _queries(row: Task2Row) -> list[str]:
    return [turn.text for turn in row.new_dialogue if turn.role == "user"]
