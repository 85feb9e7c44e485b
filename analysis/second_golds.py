"""Texts that answer for the gold: the gold inside its query, and distractors that paraphrase it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit_data import AuditRow
from analysis.near_duplicates import LONGEST, THRESHOLD, word_list
from indexes.language import normalise
from indexes.tokens import MultilingualTokens, TokenizedText

GRAMS = 0.5
"""The least Jaccard similarity of the character trigrams of a paraphrase."""
COSINE = 0.85
"""The least cosine of a paraphrase by embeddings."""
CONTAINED = 0.8
"""The share of a gold's content words that is most of them."""
_FEWEST = 3
Vectors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Paraphrase:
    """A distractor that may be a second gold, with its similarity and of what that is."""

    position: int
    similarity: float
    by: str


@dataclass(slots=True)
class Paraphrases:
    """Finds distractors that paraphrase a gold.

    Two texts are paraphrases if the Jaccard similarity of their word sets is at least `THRESHOLD`,
    as in `analysis.near_duplicates`, that of their character trigrams at least `GRAMS`, or, with
    `vectors` (unit vectors by text), their cosine at least `COSINE`. A distractor with the text of
    the gold is one.
    """

    vectors: Vectors | None = None
    _parts: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)

    def of(self, row: AuditRow) -> list[Paraphrase]:
        """Return the paraphrases of the golds of a row, by position."""
        found = []
        for position, memory in enumerate(row.memories):
            if position not in row.golds:
                near = [self._similarity(gold.text, memory.text) for gold in row.gold_memories]
                similarity, by = max(near)
                if by:
                    found.append(Paraphrase(position, similarity, by))
        return found

    def _similarity(self, one: str, other: str) -> tuple[float, str]:
        near = [(0.0, "")]
        parts = zip(self._sets(one), self._sets(other), strict=True)
        for (a, b), least, by in zip(parts, (THRESHOLD, GRAMS), ("words", "trigrams"), strict=True):
            shared = len(a & b)
            either = len(a) + len(b) - shared
            if either and shared >= least * either - 1e-9:
                near.append((shared / either, by))
        if self.vectors is not None:
            cosine = float(self.vectors[one] @ self.vectors[other])
            if cosine >= COSINE:
                near.append((min(cosine, 1.0), "cosine"))
        return max(near)

    def _sets(self, text: str) -> tuple[frozenset[str], frozenset[str]]:
        """The words and the character trigrams of a text."""
        if text not in self._parts:
            start = " ".join(normalise(text[:LONGEST]).split())
            grams = {start[i : i + 3] for i in range(max(len(start) - 2, 1))}
            words = word_list(text[:LONGEST]) or [start]
            self._parts[text] = frozenset(words), frozenset(grams)
        return self._parts[text]


def embedded(rows: Sequence[AuditRow], model: str) -> Vectors:
    """Return unit vectors of all memories by an embedding model; `minilm` is all-MiniLM-L6-v2."""
    from indexes.encoder import Encoder

    texts = sorted({memory.text for row in rows for memory in row.memories})
    vectors, _ = Encoder("all-MiniLM-L6-v2" if model == "minilm" else model).encode(texts)
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


@lru_cache(1 << 16)
def stems(text: str) -> TokenizedText:
    """Return the tokens of a text by `MultilingualTokens`."""
    return MultilingualTokens()(text)


def most_in_query(row: AuditRow) -> list[int]:
    """Return the positions of the memories that have most of their content words in the query.

    Content words are stems without stopwords; a memory with fewer than three does not count.
    """
    asked = frozenset(stems(row.query).every)
    found = []
    for position, memory in enumerate(row.memories):
        content = frozenset(stems(memory.text).content)
        if len(content) >= _FEWEST and len(content & asked) >= CONTAINED * len(content) - 1e-9:
            found.append(position)
    return found


def word_scores(row: AuditRow) -> NDArray[np.float64]:
    """Return the scores of a plain lexical retriever on a pool, as a reference.

    A memory scores the sum of ln(1 + N / n) over the stems that it shares with the query, where n
    of the N memories of the pool have the stem.
    """
    held = [frozenset(stems(memory.text).content) for memory in row.memories]
    counts = Counter(stem for one in held for stem in one)
    asked = [stem for stem in sorted(set(stems(row.query).content)) if stem in counts]
    weights = [(stem, math.log1p(len(held) / counts[stem])) for stem in asked]
    return np.array([math.fsum(w for stem, w in weights if stem in one) for one in held])
