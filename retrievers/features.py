"""What is known of a candidate besides its place: numbers from which a learned order is made.

A feature is named `kind` or `kind:leg`; `feature_names` lists them in a fixed order. Each is
finite, depends on the query and on which texts are in the pool, and never on the pool's order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.language import language_of
from indexes.tokens import MultilingualTokens
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers.hybrid import Leg, ranks, zscore

Floats = NDArray[np.float64]
LEG_KINDS = ("z", "gap", "next", "rank", "trust")
"""Of a leg: standard score in the pool; its distance to the best candidate; to the next one below;
ln(1 + rank); how far the leg reads the query (`Retriever.trust`)."""
TEXT_KINDS = (
    "overlap",
    "covered",
    "rarity",
    "length",
    "query_length",
    "language",
    "label",
    "spread",
)
"""Of the texts: share of the query's idf that the memory has; of the memory's that the query has;
mean idf of the memory's terms; ln(1 + characters) of the memory and of the query; 1 if both are in
the same language; share of the words of the label that are in the query, 0 without a label; mean
similarity of the memory to the other candidates in terms."""
_LEAST_IDF = 1e-9


class PoolScores(NamedTuple):
    """The scores of a pool by every leg, with the trust of each leg in the query, (legs,)."""

    legs: Sequence[Leg]
    trust: Sequence[float]


def feature_names(labels: Sequence[str], kinds: Sequence[str] = ()) -> list[str]:
    """Return the names of the features of these legs, in order; of some kinds, or of all.

    Raise UserError for a kind that does not exist.
    """
    known = (*LEG_KINDS, *TEXT_KINDS)
    for kind in kinds:
        if kind not in known:
            raise UserError(f"no feature `{kind}` (there are: {', '.join(known)})")
    chosen = [kind for kind in known if not kinds or kind in kinds]
    of_legs = [f"{kind}:{label}" for kind in chosen if kind in LEG_KINDS for label in labels]
    return of_legs + [kind for kind in chosen if kind in TEXT_KINDS]


def candidate_features(
    query: str,
    pool: Sequence[Memory],
    candidates: Sequence[int],
    scores: PoolScores,
    labels: Sequence[str],
    names: Sequence[str],
) -> Floats:
    """Return the features `names` of the candidates, positions in the pool: (candidates, names)."""
    at = np.asarray(candidates, np.intp)
    columns: dict[str, Floats] = {}
    wanted = {name.partition(":")[0] for name in names}
    for label, leg, trust in zip(labels, scores.legs, scores.trust, strict=True):
        whole = zscore(leg)
        z = whole[at]
        columns[f"z:{label}"] = z - math.fsum(whole) / len(whole)
        columns[f"gap:{label}"] = z - z.max()
        columns[f"next:{label}"] = _above_next(z)
        if "rank" in wanted:
            found = np.minimum(ranks(leg)[at], len(pool))  # an unmatched position is the last
            columns[f"rank:{label}"] = np.log1p(found)
        columns[f"trust:{label}"] = np.full(len(at), trust)
    if wanted & set(TEXT_KINDS):
        columns |= _text_features(query, pool, [pool[i] for i in candidates])
    return np.stack([columns[name] for name in names], axis=1)


def _above_next(values: Floats) -> Floats:
    """The distance of each value to the highest below it; 0 for the lowest."""
    levels = np.unique(values)
    below = np.searchsorted(levels, values) - 1
    return np.where(below >= 0, values - levels[np.maximum(below, 0)], 0.0)


def _text_features(
    query: str, pool: Sequence[Memory], candidates: Sequence[Memory]
) -> Mapping[str, Floats]:
    distinct = {memory.text for memory in pool}
    documents = Counter(term for text in distinct for term in _terms(text))
    size = len(distinct)

    def idf(term: str) -> float:
        return math.log1p((size - documents[term] + 0.5) / (documents[term] + 0.5))

    def mass(terms: frozenset[str]) -> float:
        return math.fsum(map(idf, terms))

    asked = _terms(query)
    whole = max(mass(asked), _LEAST_IDF)
    bags = [_terms(memory.text) for memory in candidates]
    masses = [mass(bag) for bag in bags]
    shared = [mass(bag & asked) for bag in bags]
    labels = [frozenset[str]() if m.label is None else _terms(_spaced(m.label)) for m in candidates]
    spoken = _language(query)
    found: dict[str, Sequence[float]] = {
        "overlap": [part / whole for part in shared],
        "covered": [p / max(m, _LEAST_IDF) for p, m in zip(shared, masses, strict=True)],
        "rarity": [m / max(len(bag), 1) for m, bag in zip(masses, bags, strict=True)],
        "length": [math.log1p(len(memory.text)) for memory in candidates],
        "query_length": [math.log1p(len(query))] * len(candidates),
        "language": [float(_language(m.text) == spoken) for m in candidates],
        "label": [len(words & asked) / max(len(words), 1) for words in labels],
        "spread": [_mean_jaccard(bag, bags) for bag in bags],
    }
    return {name: np.array(values, np.float64) for name, values in found.items()}


def _mean_jaccard(bag: frozenset[str], bags: Sequence[frozenset[str]]) -> float:
    """The mean Jaccard similarity of a bag to all of `bags`, itself included."""
    return math.fsum(len(bag & one) / max(len(bag | one), 1) for one in bags) / len(bags)


def _spaced(label: str) -> str:
    return label.replace("/", " ").replace("_", " ")


@lru_cache(1 << 16)
def _terms(text: str) -> frozenset[str]:
    """The distinct terms of a text without stopwords; with them if there is nothing else."""
    tokens = _tokens()(text)
    return frozenset(tokens.content or tokens.every)


@lru_cache(1)
def _tokens() -> MultilingualTokens:
    return MultilingualTokens()


@lru_cache(1 << 16)
def _language(text: str) -> str:
    return language_of(text)
