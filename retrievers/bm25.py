"""BM25 over a pool: numpy on term numbers, four variants, texts of any language.

`lucene`: Robertson et al. with idf ln(1 + (N - df + 0.5) / (df + 0.5)), never negative.
`okapi`, `plus`, `l`: as in rank-bm25 0.2.2 (Trotman et al. 2014, Lv & Zhai 2011), its floor for
negative idf included, so that equal tokens get equal scores.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from indexes.tokens import (
    MultilingualTokens,
    PaperTokens,
    Tokenizer,
    TokenizerName,
    stemmer_languages,
)
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers.base import Retriever, RunContext, Scored
from retrievers.explanation import TermWeights
from retrievers.registry import register

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Variant = Literal["lucene", "okapi", "plus", "l"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
DELTA: dict[Variant, float] = {"lucene": 0.0, "okapi": 0.0, "plus": 1.0, "l": 0.5}


def inverse_document_frequency(
    variant: Variant, n: int, df: Floats, epsilon: float = 0.25
) -> Floats:
    """Return the idf of terms in `df` of `n` documents, shape of `df`; all df must be above 0.

    For `okapi`, `df` must cover every term of the collection: negative values are lifted to
    `epsilon` times the mean over all of them.
    """
    idf: Floats
    if variant == "lucene":
        idf = np.log1p((n - df + 0.5) / (df + 0.5))
    elif variant == "plus":
        idf = np.log((n + 1) / df)
    elif variant == "l":
        idf = np.log((n + 1) / (df + 0.5))
    else:
        idf = np.log((n - df + 0.5) / (df + 0.5))
        idf = np.where(idf < 0, epsilon * math.fsum(idf) / max(len(idf), 1), idf)
    return idf


def saturation(variant: Variant, tf: Floats, norm: Floats, k1: float, delta: float) -> Floats:
    """Return the weight, before idf, of a term that occurs `tf` times in a document.

    `norm` is 1 - b + b * length / mean length of the document. rank-bm25 0.2.2 multiplies its `l`
    by tf once more than Lv & Zhai do; the two agree at tf = 1.
    """
    if variant == "l":
        ctd = tf / norm
        return tf * (k1 + 1) * (ctd + delta) / (k1 + ctd + delta)
    gain = tf * (k1 + 1) / (tf + k1 * norm)
    return gain + delta if variant == "plus" else gain


@dataclass(frozen=True, slots=True)
class Statistics:
    """A collection: its documents, mean length in tokens, and documents per term, (terms,)."""

    n: int
    mean_length: float
    df: NDArray[np.int64]


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


class _Gains(NamedTuple):
    """What terms of a query add to the scores of some rows.

    By entry, (entries,): the place of its row, its term, and what it adds to the score of a row
    without the term. That is `nothing` times the weight of each term asked for, (asked,).
    """

    rows: Ints
    terms: Ints
    values: Floats
    asked: Ints
    weights: Floats
    nothing: float


@register("bm25")
class BM25(Retriever):
    """BM25 with the statistics of the pool, or of the run's whole bank (`scope=bank`).

    `variant`: `lucene` (default; idf never negative), `okapi`, `plus` or `l`; the last three equal
    rank-bm25's classes. `tokens`: `multilingual` (default) or `paper`; `language` names the
    Snowball stemmer for Latin script. A query that is all stopwords is scored with its stopwords.
    """

    libraries = ("numpy", "nltk", "regex", "stop-words")

    def __init__(
        self,
        variant: Variant = "lucene",
        k1: float = 1.5,
        b: float = 0.75,
        delta: float | None = None,
        epsilon: float = 0.25,
        tokens: TokenizerName = "multilingual",
        language: str = "english",
        stem: bool = True,
        stopwords: bool = True,
        scope: Literal["pool", "bank"] = "pool",
    ) -> None:
        if not (0 <= k1 < math.inf and 0 <= b <= 1):
            raise UserError(f"k1 must be at least 0 and b from 0 to 1, not {k1:g} and {b:g}")
        if not (math.isfinite(epsilon) and math.isfinite(delta or 0)):
            raise UserError("epsilon and delta must be finite")
        if tokens == "paper" and (language, stem, stopwords) != ("english", True, True):
            raise UserError("tokens=paper takes no language, stem or stopwords")
        if stem and tokens == "multilingual" and language not in stemmer_languages():
            raise UserError(
                f"language={language}: NLTK has no Snowball stemmer for it"
                f" (it has: {', '.join(stemmer_languages())}); or set stem=false"
            )
        self.variant, self.k1, self.b, self.epsilon, self.scope = variant, k1, b, epsilon, scope
        self.delta = DELTA[variant] if delta is None else delta
        self.tokens: Tokenizer = (
            PaperTokens() if tokens == "paper" else MultilingualTokens(language, stem, stopwords)
        )
        self._content, self._every = TermBags(), TermBags()
        self._bank: dict[TermBags, Statistics] = {}
        self._bank_texts: Sequence[str] = ()

    @classmethod
    @override
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        made = cls(**settings)
        made._bank_texts = sorted({memory.text for memory in run.bank})
        return made

    @override
    def settings(self) -> Mapping[str, Any]:
        found = {**super().settings(), "delta": self.delta}
        if self.scope == "bank":
            joined = "\x00".join(self._bank_texts).encode()
            found["bank"] = hashlib.sha256(joined).hexdigest()[:16]
        return found

    @property
    @override
    def pool_independent(self) -> bool:
        return self.scope == "bank"

    @override
    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        for memory in memories:
            self._row(memory.text)

    def _row(self, text: str) -> int:
        row = self._content.row_of.get(text)
        if row is None:
            tokens = self.tokens(text)
            self._every.add(text, tokens.every)
            row = self._content.add(text, tokens.content)
        return row

    @override
    def score(self, query: str, pool: Sequence[Memory]) -> Scored:
        rows = [self._row(memory.text) for memory in pool]
        tokens = self.tokens(query)
        if tokens.content or not tokens.every:
            return self.score_terms(tokens.content, rows, self._content)
        return self.score_terms(tokens.every, rows, self._every)

    def score_terms(self, terms: Sequence[str], rows: Sequence[int], bags: TermBags) -> Scored:
        """Score the bags `rows` for query `terms`; a repeated term counts each time."""
        gains = self._gains(terms, rows, bags)
        matched = np.zeros(len(rows), np.bool_)
        matched[gains.rows] = True
        gained = np.bincount(gains.rows, gains.values, len(rows))
        return Scored(gained + gains.nothing * math.fsum(gains.weights), matched)

    @override
    def explain(
        self, query: str, pool: Sequence[Memory], positions: Sequence[int]
    ) -> list[TermWeights]:
        """Return the terms that query and memory share; for `plus` also those that it lacks."""
        rows = [self._row(memory.text) for memory in pool]
        tokens = self.tokens(query)
        bags = self._content if tokens.content or not tokens.every else self._every
        terms = tokens.content or tokens.every
        gains = self._gains(terms, rows, bags)
        named = {bags.vocabulary[term]: term for term in terms if term in bags.vocabulary}
        found = []
        for position in positions:
            of_term = {
                int(number): gains.nothing * float(weight)
                for number, weight in zip(gains.asked, gains.weights, strict=True)
            }
            for entry in np.flatnonzero(gains.rows == position):
                of_term[int(gains.terms[entry])] += float(gains.values[entry])
            shares = [(named[number], share) for number, share in of_term.items() if share]
            found.append(TermWeights(tuple(sorted(shares, key=lambda pair: (-pair[1], pair[0])))))
        return found

    def _gains(self, terms: Sequence[str], rows: Sequence[int], bags: TermBags) -> _Gains:
        pool = bags.gather(rows)
        collection = self._statistics(bags, pool)
        known = len(collection.df)
        numbered = ((bags.vocabulary.get(term, known), n) for term, n in Counter(terms).items())
        asked = sorted((t, n) for t, n in numbered if t < known and collection.df[t])
        numbers = np.array([number for number, _ in asked], np.int64)
        weight = np.zeros(len(bags.vocabulary))
        times = np.array([count for _, count in asked], float)
        weight[numbers] = self._idf(collection, numbers) * times
        wanted = np.zeros(len(bags.vocabulary), np.bool_)
        wanted[numbers] = True
        hits = np.flatnonzero(wanted[pool.terms])
        at = pool.rows_of(hits)
        norm = np.asarray(1 - self.b + self.b * pool.lengths[at] / collection.mean_length)
        tf = bags.counts(pool, hits).astype(float)
        gain = saturation(self.variant, tf, norm, self.k1, self.delta)
        # The score of a term that is missing: rank-bm25's Plus adds its delta to all memories.
        nothing = self.delta if self.variant == "plus" else 0.0
        found = pool.terms[hits]
        return _Gains(
            at, found, weight[found] * (gain - nothing), numbers, weight[numbers], nothing
        )

    def _idf(self, collection: Statistics, numbers: NDArray[np.int64]) -> Floats:
        if self.variant != "okapi":
            df = collection.df[numbers].astype(float)
            return inverse_document_frequency(self.variant, collection.n, df)
        # Okapi's floor is a share of the mean over the whole vocabulary.
        present = np.flatnonzero(collection.df)
        df = collection.df[present].astype(float)
        idf = inverse_document_frequency("okapi", collection.n, df, self.epsilon)
        return idf[np.searchsorted(present, numbers)]

    def _statistics(self, bags: TermBags, pool: Gathered) -> Statistics:
        if self.scope == "pool":
            return _statistics(bags, pool)
        if bags not in self._bank:
            if not self._bank_texts:
                raise UserError("scope=bank needs the bank of a run; use scope=pool")
            rows = [self._row(text) for text in self._bank_texts]
            self._bank[bags] = _statistics(bags, bags.gather(rows))
        return self._bank[bags]


def _statistics(bags: TermBags, gathered: Gathered) -> Statistics:
    n, total = len(gathered.lengths), int(gathered.lengths.sum())
    df = np.bincount(gathered.terms, minlength=len(bags.vocabulary))
    return Statistics(n, total / n if total else 1.0, df)
