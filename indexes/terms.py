"""Texts as bags of term numbers, in flat arrays that grow as texts are added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class TermBags:
    """Row i holds the distinct terms of text i with their counts, in alphabetical order.

    Alphabetical, so that sums over a row never depend on which text was added first.
    """

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {}
        self.row_of: dict[str, int] = {}
        self._terms = np.empty(1024, np.int64)
        self._counts = np.empty(1024, np.int64)
        self._starts = [0]
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, text: str, tokens: Iterable[str]) -> int:
        """Add a text that isn't there yet; its row."""
        bag = sorted(Counter(tokens).items())
        start = self._starts[-1]
        end = start + len(bag)
        while end > len(self._terms):
            self._terms = np.resize(self._terms, 2 * len(self._terms))
            self._counts = np.resize(self._counts, 2 * len(self._counts))
        for at, (term, count) in enumerate(bag, start):
            self._terms[at] = self.vocabulary.setdefault(term, len(self.vocabulary))
            self._counts[at] = count
        self._starts.append(end)
        self._lengths.append(sum(count for _, count in bag))
        row = self.row_of[text] = len(self._lengths) - 1
        return row

    def gather(self, rows: Sequence[int]) -> tuple[Ints, Ints, Ints, Ints]:
        """The bags of `rows` laid end to end: (place in `rows`, term, count) of every entry.

        The fourth array, (len(rows),), holds the number of tokens of each row.
        """
        at = np.asarray(rows, np.int64)
        bounds = np.asarray(self._starts, np.int64)
        starts, sizes = bounds[at], bounds[at + 1] - bounds[at]
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        entries = np.arange(total) + np.repeat(starts - (ends - sizes), sizes)
        place = np.repeat(np.arange(len(at)), sizes)
        lengths = np.asarray(self._lengths, np.int64)[at]
        return place, self._terms[entries], self._counts[entries], lengths
