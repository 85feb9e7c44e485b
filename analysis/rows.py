"""From the scores of a pool to its row: the one place where a row of a run is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import above_tied, display_order
from recallbed.corpus.pools import pool_hash
from recallbed.corpus.records import Memory
from recallbed.harness.run_folder import is_count

ROW_KEYS = (
    *("query", "retriever", "distractors", "pool", "gold", "above", "tied", "top"),
    *("calls", "tokens_in", "tokens_out", "repairs", "error"),
)
RERANKED_KEYS = ("first", "depth", "shown", "estimated")
"""Keys that follow in the row of a reranked pool."""
TOP = 10
Row = dict[str, Any]
_NO_USAGE = {"calls": 0, "tokens_in": 0, "tokens_out": 0}


@dataclass(frozen=True, slots=True)
class Reranked:
    """What the row of a reranked pool holds besides; None for what isn't known.

    `first_stage` has the first stage's scores, shape (len(pool),), of which the best `depth` were
    reranked; `shown` has positions in prompt order; `estimated` counts the calls for which no
    server told the tokens.
    """

    first_stage: NDArray[np.float32] | None = None
    depth: int | None = None
    shown: Sequence[int] | None = None
    estimated: int = 0

    def keys(self, golds: Sequence[int]) -> Row:
        """The keys of the row: `first` holds [above, tied], `shown` the place in the prompt.

        Places count from 0, None where a gold wasn't shown. With several golds, `shown` and both
        sides of `first` are lists.
        """
        first = None if self.first_stage is None else list(_ranks(self.first_stage, golds))
        places = {position: place for place, position in enumerate(self.shown or ())}
        shown = [places.get(gold) for gold in golds]
        return {
            "first": first,
            "depth": self.depth,
            "shown": None if self.shown is None else shown if len(golds) > 1 else shown[0],
            "estimated": self.estimated,
        }


def failed_row(
    place: tuple[str, str, int], memories: Sequence[Memory], golds: Sequence[int], cause: str
) -> Row:
    """The row of a pool that could not be scored; `place` is (query, retriever, distractors)."""
    return {**_head(place, memories, golds), **_NO_USAGE, "repairs": {}, "error": cause}


def scored_row(
    place: tuple[str, str, int],
    memories: Sequence[Memory],
    golds: Sequence[int],
    scores: NDArray[np.float32],
    usage: dict[str, int] | None = None,
    repairs: dict[str, int] | None = None,
    reranked: Reranked | None = None,
) -> Row:
    """The row of a scored pool; `scores` has shape (len(memories),).

    With one gold `gold`, `above` and `tied` are numbers, with several they are lists.
    """
    row = _head(place, memories, golds)
    row["above"], row["tied"] = _ranks(scores, golds)
    row["top"] = [[i, float(f"{scores[i]:.7g}")] for i in display_order(scores, TOP)]
    row |= {**(usage or _NO_USAGE), "repairs": repairs or {}, "error": None}
    return row if reranked is None else row | reranked.keys(golds)


def _ranks(scores: NDArray[np.float32], golds: Sequence[int]) -> tuple[Any, Any]:
    """(above, tied) of the gold, or of several the list of each."""
    ranks = [above_tied(scores, gold) for gold in golds]
    if len(golds) == 1:
        return ranks[0]
    return [above for above, _ in ranks], [tied for _, tied in ranks]


def _head(place: tuple[str, str, int], memories: Sequence[Memory], golds: Sequence[int]) -> Row:
    query, retriever, distractors = place
    return {
        "query": query,
        "retriever": retriever,
        "distractors": distractors,
        "pool": pool_hash(memories),
        "gold": list(golds) if len(golds) > 1 else golds[0],
        "above": None,
        "tied": None,
        "top": [],
    }


def ties_of(row: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the ties of a scored row, kept as numbers (one gold) or as lists."""
    above, tied = row["above"], row["tied"]
    return list(zip(above, tied, strict=True)) if isinstance(above, list) else [(above, tied)]


def is_sweep_row(row: Any) -> bool:
    """Return whether a value is a row of a sweep: keys, types, and ranks unless it failed."""
    if not isinstance(row, dict) or tuple(row) not in (ROW_KEYS, ROW_KEYS + RERANKED_KEYS):
        return False
    if not isinstance(row["repairs"], dict):
        return False
    counts = [row[key] for key in ("distractors", "calls", "tokens_in", "tokens_out")]
    if not all(map(is_count, [*counts, *row["repairs"].values()])):
        return False
    if not all(isinstance(row[key], str) for key in ("query", "retriever", "pool")):
        return False
    if row["error"] is not None:
        return isinstance(row["error"], str) and len(row) == len(ROW_KEYS)
    golds = row["gold"] if isinstance(row["gold"], list) else [row["gold"]]
    pool = row["distractors"] + len(golds)
    if not (golds and all(map(is_count, golds))):
        return False
    if not _are_ranks([row["above"], row["tied"]], len(golds), pool):
        return False
    return len(row) == len(ROW_KEYS) or _is_reranked(row, len(golds), pool)


def _are_ranks(ranks: Any, golds: int, pool: int) -> bool:
    """Whether these are [above, tied] of so many golds, each a number or else a list."""
    if not isinstance(ranks, list) or len(ranks) != 2:
        return False
    above, tied = (side if isinstance(side, list) else [side] for side in ranks)
    if not len(above) == len(tied) == golds or not all(map(is_count, [*above, *tied])):
        return False
    return all(0 < t <= pool - a for a, t in zip(above, tied, strict=True))


def _is_reranked(row: Mapping[str, Any], golds: int, pool: int) -> bool:
    if row["first"] is not None and not _are_ranks(row["first"], golds, pool):
        return False
    if row["depth"] is not None and not (is_count(row["depth"]) and row["depth"] > 0):
        return False
    places = row["shown"] if isinstance(row["shown"], list) else [row["shown"]] * golds
    if len(places) != golds or not all(p is None or (is_count(p) and p < pool) for p in places):
        return False
    return is_count(row["estimated"]) and row["estimated"] <= row["calls"]
