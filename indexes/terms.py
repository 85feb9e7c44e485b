"""Texts as bags of term numbers, in flat arrays that grow as texts are added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gathered:
    """The concatenated bags of some rows.

    `terms`, (entries,), holds the distinct terms of every row; `ends` and `lengths`, (rows,), are
    the end of each row's entries and its number of tokens; `source` has the places of the counts.
    """

    terms: Ints
    ends: Ints
    lengths: Ints
    source: Ints

    def rows_of(self, entries: Ints) -> Ints:
        """Return the row of each of these entries."""
        return np.searchsorted(self.ends, entries, side="right")


class TermBags:
    """Row i holds the distinct terms of text i with their counts, in alphabetical order.

    Alphabetical, so that sums over a row do not depend on the order of adding texts.
    """

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}
        self.row_of: dict[str, int] = {}
        self._terms: Ints = np.empty(1024, np.int64)
        self._counts: Ints = np.empty(1024, np.int64)
        self._ends: Ints = np.zeros(256, np.int64)
        self._lengths: Ints = np.zeros(256, np.int64)

    def __len__(self) -> int:
        return len(self.row_of)

    def add(self, text: str, tokens: Iterable[str]) -> int:
        """Add a new text; return its row."""
        bag = sorted(Counter(tokens).items())
        row = len(self.row_of)
        start = int(self._ends[row - 1]) if row else 0
        end = start + len(bag)
        self._terms, self._counts = _grown(self._terms, end), _grown(self._counts, end)
        self._ends, self._lengths = _grown(self._ends, row + 1), _grown(self._lengths, row + 1)
        for at, (term, count) in enumerate(bag, start):
            self._terms[at] = self.vocabulary.setdefault(term, len(self.vocabulary))
            self._counts[at] = count
        self._ends[row] = end
        self._lengths[row] = sum(count for _, count in bag)
        self.row_of[text] = row
        return row

    def gather(self, rows: Sequence[int]) -> Gathered:
        """Return the bags of `rows`, in order and with repeats."""
        at = np.asarray(rows, np.int64)
        starts = np.where(at > 0, self._ends[at - 1], 0)
        sizes = self._ends[at] - starts
        ends = np.cumsum(sizes)
        source = np.repeat(starts - (ends - sizes), sizes)
        source += np.arange(len(source))
        return Gathered(self._terms[source], ends, self._lengths[at], source)

    def counts(self, gathered: Gathered, entries: Ints) -> Ints:
        """Return the count of each entry's term in its row."""
        return self._counts[gathered.source[entries]]


def _grown(array: NDArray[Any], size: int) -> NDArray[Any]:
    """`array`, or a larger copy if it has fewer than `size` elements."""
    if size <= len(array):
        return array
    larger = np.zeros(max(2 * len(array), size), array.dtype)
    larger[: len(array)] = array
    return larger
