"""Texts that answer for the gold: the gold inside its query, and distractors that paraphrase it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.audit_data import AuditRow
from analysis.near_duplicates import NearDuplicates, known_words, trigrams, word_list
from indexes.tokens import MultilingualTokens

GRAMS = 0.5
"""The least Jaccard similarity of the character trigrams of a paraphrase."""
COSINE = 0.85
"""The least cosine of a paraphrase by embeddings."""
CONTAINED = 0.8
"""The share of a gold's content words that is most of them."""
_FEWEST = 3
Vectors = Mapping[str, NDArray[Any]]
Parts = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Paraphrase:
    """A distractor that may be a second gold, with its similarity and of what that is."""

    position: int
    similarity: float
    by: str


class Paraphrases:
    """Finds distractors that paraphrase a gold.

    Two texts are paraphrases if they are near-duplicates (`analysis.near_duplicates`), if the
    Jaccard similarity of their character trigrams is at least `GRAMS`, or, with `vectors` (unit
    vectors by text), if their cosine is at least `COSINE`.
    """

    def __init__(self, rows: Sequence[AuditRow], vectors: Vectors | None = None) -> None:
        texts = tuple(dict.fromkeys(memory.text for row in rows for memory in row.memories))
        self._texts, self._number = texts, {text: i for i, text in enumerate(texts)}
        self._indexes: tuple[tuple[str, Parts, NearDuplicates], ...] = (
            ("words", known_words, NearDuplicates(texts)),
            ("trigrams", trigrams, NearDuplicates(texts, GRAMS, trigrams)),
        )
        self._vectors = None if vectors is None else np.array([vectors[text] for text in texts])

    def of(self, row: AuditRow) -> list[Paraphrase]:
        """Return the paraphrases of the golds of a row, by position."""
        near: dict[str, tuple[float, str]] = {}
        for gold in row.gold_memories:
            for text, similarity, by in self._near(gold.text):
                near[text] = max(near.get(text, (0.0, "")), (similarity, by))
        return [
            Paraphrase(position, *near[memory.text])
            for position, memory in enumerate(row.memories)
            if memory.text in near and position not in row.golds
        ]

    def _near(self, text: str) -> Iterator[tuple[str, float, str]]:
        """The texts near to one, their similarity, and of what that is."""
        number = self._number[text]
        for by, parts, index in self._indexes:
            mine = set(parts(text))
            for i in index.of(number):
                other = set(parts(self._texts[i]))
                yield self._texts[i], len(mine & other) / len(mine | other), by
        if self._vectors is not None:
            cosines = self._vectors @ self._vectors[number]
            for i in np.flatnonzero(cosines >= COSINE):
                yield self._texts[i], min(float(cosines[i]), 1.0), "cosine"


def embedded(rows: Sequence[AuditRow], model: str) -> Vectors:
    """Return unit vectors of all memories by an embedding model; `minilm` is all-MiniLM-L6-v2."""
    from indexes.encoder import make_encoder

    texts = sorted({memory.text for row in rows for memory in row.memories})
    vectors, _ = make_encoder("all-MiniLM-L6-v2" if model == "minilm" else model).encode(texts)
    return dict(zip(texts, vectors, strict=True))


def gold_in_query(row: AuditRow) -> str | None:
    """Return how a gold of two words or more is in its query: `exact`, `normalised`, or None.

    Normalised: without regard to case, spaces and punctuation.
    """
    asked = f" {' '.join(word_list(row.query))} "
    for memory in row.gold_memories:
        words = word_list(memory.text)
        if len(words) > 1 and f" {' '.join(words)} " in asked:
            return "exact" if memory.text.strip() in row.query else "normalised"
    return None


class Stems(NamedTuple):
    """The distinct stems of a text by `MultilingualTokens`, without stopwords and with them."""

    content: frozenset[str]
    every: frozenset[str]


@lru_cache(1 << 16)
def stems(text: str) -> Stems:
    """Return the stems of a text."""
    return Stems(*map(frozenset, MultilingualTokens()(text)))


def most_in_query(row: AuditRow) -> list[int]:
    """Return the positions of the memories that have most of their content words in the query.

    Content words are stems without stopwords; a memory with fewer than three does not count.
    """
    asked = stems(row.query).every
    return [
        position
        for position, memory in enumerate(row.memories)
        if len(content := stems(memory.text).content) >= _FEWEST
        and len(content & asked) >= CONTAINED * len(content) - 1e-9
    ]


def word_scores(row: AuditRow) -> NDArray[np.float64]:
    """Return the scores of a plain lexical retriever on a pool, as a reference.

    A memory scores the sum of ln(1 + N / n) over the stems that it shares with the query, where n
    of the N memories of the pool have the stem.
    """
    asked = stems(row.query).content
    shared = [asked & stems(memory.text).content for memory in row.memories]
    counts = Counter(stem for one in shared for stem in one)
    weights = {stem: math.log1p(len(shared) / count) for stem, count in counts.items()}
    return np.array([math.fsum(weights[stem] for stem in one) for one in shared])
