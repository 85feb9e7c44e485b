"""The row of a sweep: one retriever's ranking of one pool. Rows are made and checked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import Ties, above_tied, display_order
from recallbed.corpus.pools import pool_hash
from recallbed.corpus.records import Memory
from recallbed.errors import DataError
from recallbed.harness.run_folder import is_count

TOP = 10
"""How many positions of a ranking a row keeps."""
ROW_KEYS = (
    *("query", "retriever", "distractors", "pool", "gold", "above", "tied", "top"),
    *("calls", "tokens_in", "tokens_out", "repairs", "error"),
)
RERANKED_KEYS = ("first", "depth", "shown", "estimated")
"""Keys that follow in the row of a reranked pool."""
Ranking = NDArray[np.float32]
PoolOf = tuple[str, str, int]
"""Query, retriever and number of distractors."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Reranking:
    """What is known of reranking a pool; None for what is not known.

    `first` has the ties of the golds under the first stage's scores, of which the best `depth` were
    reranked; `shown` the place of each gold in the prompt, from 0, None for a gold that was not
    shown; `estimated` counts the calls for which the server did not report tokens.
    """

    first: Ties | None = None
    depth: int | None = None
    shown: Sequence[int | None] | None = None
    estimated: int = 0

    @classmethod
    def of(
        cls,
        golds: Sequence[int],
        first_stage: Ranking | None = None,
        depth: int | None = None,
        shown: Sequence[int] | None = None,
        estimated: int = 0,
    ) -> Self:
        """Make it from the first stage's scores, (len(pool),), and positions in prompt order."""
        first = None if first_stage is None else [above_tied(first_stage, gold) for gold in golds]
        places = {position: place for place, position in enumerate(shown or ())}
        found = None if shown is None else [places.get(gold) for gold in golds]
        return cls(first, depth, found, estimated)

    def to_json(self) -> dict[str, Any]:
        """Return the keys that follow in a row; with several golds the ranks are lists."""
        first = None if self.first is None else _sides(self.first)
        shown = None if self.shown is None else _scalar(self.shown)
        return dict(zip(RERANKED_KEYS, (first, self.depth, shown, self.estimated), strict=True))


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One retriever's ranking of one pool, or the error that prevented it.

    `golds` are positions in the pool, `ties` the (above, tied) of each, `top` the first positions
    with their scores to seven digits; a failed row has neither ties nor `top`. `pool` is a hash of
    the pool's texts.
    """

    query: str
    retriever: str
    distractors: int
    pool: str
    golds: tuple[int, ...]
    ties: tuple[tuple[int, int], ...] = ()
    top: tuple[tuple[int, float], ...] = ()
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    repairs: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None
    reranked: Reranking | None = None

    @classmethod
    def failed(
        cls, of: PoolOf, memories: Sequence[Memory], golds: Sequence[int], cause: str
    ) -> Self:
        """Make the row of a pool that could not be scored."""
        return cls(*of, pool_hash(memories), tuple(golds), error=cause)

    @classmethod
    def scored(
        cls,
        of: PoolOf,
        memories: Sequence[Memory],
        golds: Sequence[int],
        scores: Ranking,
        **more: Any,
    ) -> Self:
        """Make the row of a scored pool; `scores` has shape (len(memories),).

        `more`: calls, tokens, repairs, `reranked`.
        """
        top = tuple((i, float(f"{scores[i]:.7g}")) for i in display_order(scores, TOP))
        ties = tuple(above_tied(scores, gold) for gold in golds)
        return cls(*of, pool_hash(memories), tuple(golds), ties, top, **more)

    @classmethod
    def from_json(cls, value: Any, path: Path | None = None, line: int | None = None) -> Self:
        """Return the row; raise DataError, with file and line, if `value` is not one."""
        try:
            return cls(*_checked(value))
        except (TypeError, ValueError):
            raise DataError("not a row of task3.sweep", path, line) from None

    def to_json(self) -> dict[str, Any]:
        """Return the row as rows.jsonl keeps it; with several golds the ranks are lists."""
        above, tied = _sides(self.ties) if self.ties else (None, None)
        found = {
            "query": self.query,
            "retriever": self.retriever,
            "distractors": self.distractors,
            "pool": self.pool,
            "gold": _scalar(self.golds),
            "above": above,
            "tied": tied,
            "top": [list(pair) for pair in self.top],
            "calls": self.calls,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "repairs": dict(self.repairs),
            "error": self.error,
        }
        return found if self.reranked is None else found | self.reranked.to_json()


def is_sweep_row(value: Any) -> bool:
    """Return whether a value is a row of a sweep: its keys, their types, ranks that can be."""
    try:
        SweepRow.from_json(value)
    except DataError:
        return False
    return True


def _scalar(values: Sequence[_T]) -> _T | list[_T]:
    return values[0] if len(values) == 1 else list(values)


def _sides(ties: Ties) -> list[Any]:
    """[above, tied], each a number for one gold and a list for several."""
    return [_scalar([above for above, _ in ties]), _scalar([tied for _, tied in ties])]


def _require(sound: bool) -> None:
    if not sound:
        raise ValueError


def _checked(row: Any) -> tuple[Any, ...]:
    """The fields of a row from its JSON; TypeError or ValueError if it is not one."""
    _require(isinstance(row, dict) and tuple(row) in (ROW_KEYS, ROW_KEYS + RERANKED_KEYS))
    *names, error = (row[key] for key in ("query", "retriever", "pool", "error"))
    counts = [row[key] for key in ("distractors", "calls", "tokens_in", "tokens_out")]
    repairs, golds = row["repairs"], _list(row["gold"])
    _require(all(isinstance(name, str) for name in names) and isinstance(repairs, dict))
    _require(all(map(is_count, [*counts, *repairs.values(), *golds])) and bool(golds))
    query, retriever, pool = names
    head = query, retriever, counts[0], pool, tuple(golds)
    if error is not None:
        _require(isinstance(error, str) and len(row) == len(ROW_KEYS))
        return *head, (), (), *counts[1:], repairs, error
    size = counts[0] + len(golds)
    ties = _checked_ties([row["above"], row["tied"]], len(golds), size)
    top = tuple((position, float(score)) for position, score in row["top"])
    _require(all(is_count(position) for position, _ in top))
    scored = *head, ties, top, *counts[1:], repairs, None
    if len(row) == len(ROW_KEYS):
        return scored
    first, depth, shown, estimated = (row[key] for key in RERANKED_KEYS)
    _require(depth is None or (is_count(depth) and depth > 0))
    _require(is_count(estimated) and estimated <= row["calls"])
    if first is not None:
        first = _checked_ties(first, len(golds), size)
    if shown is not None:
        shown = _list(shown)
        _require(len(shown) == len(golds))
        _require(all(place is None or (is_count(place) and place < size) for place in shown))
    return *scored, Reranking(first, depth, shown, estimated)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _checked_ties(sides: Any, golds: int, size: int) -> tuple[tuple[int, int], ...]:
    """The ties of so many golds from [above, tied], each a number or else a list."""
    _require(isinstance(sides, list))
    above, tied = map(_list, sides)
    _require(all(map(is_count, [*above, *tied])) and len(above) == golds)
    ties = tuple(zip(above, tied, strict=True))
    _require(all(0 < t <= size - a for a, t in ties))
    return ties
