"""Memories that repeat or closely paraphrase another, by the words that they share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexes.language import normalise
from indexes.tokens import UNSPACED

THRESHOLD = 0.6
"""The least Jaccard similarity of the word sets of near-duplicates."""
LONGEST = 2_000
"""Characters of a text that are compared."""
_ASCII = re.compile("[a-z0-9]+")


class NearDuplicates:
    """The near-duplicates of any memory among `texts`, which are numbered from 0.

    Two texts are near-duplicates if the Jaccard similarity (Jaccard 1901) of the sets of their
    words (`word_list`, the first `LONGEST` characters) is at least `threshold`. Words are indexed
    once; a look-up takes time in proportion to the texts that share a word. `parts` makes the
    sets of something else, such as `trigrams`.
    """

    def __init__(
        self,
        texts: Sequence[str],
        threshold: float = THRESHOLD,
        parts: Callable[[str], Iterable[str]] | None = None,
    ) -> None:
        numbers: dict[str, int] = {}
        find = parts or known_words
        self._threshold = threshold
        self._words = [
            np.array(
                sorted({numbers.setdefault(word, len(numbers)) for word in find(text)}),
                np.int32,
            )
            for text in texts
        ]
        self._sizes = np.array([len(words) for words in self._words], np.int64)
        holders = np.repeat(np.arange(len(texts), dtype=np.int32), self._sizes)
        held = np.concatenate([np.empty(0, np.int32), *self._words])
        self._holders = holders[np.argsort(held, kind="stable")]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(held, minlength=len(numbers)))])
        self._found: dict[int, NDArray[np.int64]] = {}

    def of(self, number: int) -> NDArray[np.int64]:
        """Return the numbers of the near-duplicates of a text, ascending, itself included."""
        if number not in self._found:
            words = self._words[number]
            parts = [self._holders[self._starts[w] : self._starts[w + 1]] for w in words.tolist()]
            shared = np.bincount(np.concatenate(parts), minlength=len(self._sizes))
            either = self._sizes + len(words) - shared
            self._found[number] = np.flatnonzero(shared >= self._threshold * either - 1e-9)
        return self._found[number]


def nearly_equal(one: str, other: str, threshold: float = THRESHOLD) -> bool:
    """Return whether two texts are near-duplicates, as `NearDuplicates` has it."""
    words = set(known_words(one)), set(known_words(other))
    return len(words[0] & words[1]) >= threshold * len(words[0] | words[1]) - 1e-9


def runs_of_letters(text: str) -> list[tuple[str, bool]]:
    """Return the runs of letters, digits and marks, case-folded, in order.

    The second of each pair says whether the run is of a script without spaces, or of Hangul.
    """
    text = normalise(text)
    if text.isascii():
        return [(word, False) for word in _ASCII.findall(text)]
    return [(unspaced or word, bool(unspaced)) for unspaced, word in _pattern().findall(text)]


def word_list(text: str) -> list[str]:
    """Return the words of a text: its runs of letters, pairs of characters without spaces."""
    words = []
    for run, unspaced in runs_of_letters(text):
        if unspaced:
            words += [run[i : i + 2] for i in range(max(len(run) - 1, 1))]
        else:
            words.append(run)
    return words


def known_words(text: str) -> list[str]:
    """Return the words that are compared; a text without any, such as an emoji, is one word."""
    start = text[:LONGEST]
    return word_list(start) or [start.strip()]


def trigrams(text: str) -> set[str]:
    """Return the runs of three characters of a text, normalised, spaces as one."""
    start = " ".join(normalise(text[:LONGEST]).split())
    return {start[i : i + 3] for i in range(max(len(start) - 2, 1))}


@cache
def _pattern() -> Any:
    import regex

    return regex.compile(
        rf"([{UNSPACED}][{UNSPACED}\p{{M}}]*)|((?:(?![{UNSPACED}])[\p{{L}}\p{{N}}\p{{M}}])+)"
    )
