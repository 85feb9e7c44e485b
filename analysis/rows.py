"""From the scores of a pool to its row: the one place where a row of a run is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import above_tied, display_order
from corpus.pools import pool_hash
from corpus.records import Memory

TOP = 10
Row = dict[str, Any]
_NO_USAGE = {"calls": 0, "tokens_in": 0, "tokens_out": 0}


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
) -> Row:
    """The row of a scored pool; `scores` has shape (len(memories),).

    With one gold `gold`, `above` and `tied` are numbers, with several they are lists.
    """
    row = _head(place, memories, golds)
    ranks = [above_tied(scores, gold) for gold in golds]
    above, tied = [above for above, _ in ranks], [tied for _, tied in ranks]
    row["above"], row["tied"] = (above, tied) if len(golds) > 1 else ranks[0]
    row["top"] = [[i, float(f"{scores[i]:.7g}")] for i in display_order(scores, TOP)]
    return {**row, **(usage or _NO_USAGE), "repairs": repairs or {}, "error": None}


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
