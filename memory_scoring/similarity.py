"""Similarity of memories and texts: AlpsBench's pair score, and token overlap.

Source of the pair score: docs/evaluation_metric.md of the AlpsBench repository ("Task 1, how
scoring works") and its code; checked against recorded scores (docs/task1.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache

import numpy as np
from numpy.typing import NDArray

from indexes.tokens import MultilingualTokens, TokenizedText
from recallbed.corpus.records import MemoryItem

LABEL, VALUE, TYPE, CONFIDENCE = 0.40, 0.40, 0.10, 0.10
TOKENS, CHARACTERS = 0.60, 0.40
FREE = 0.2
"""Difference of confidences without a penalty."""
USED_FROM = 0.2
"""The paper's threshold of `token_overlap` for a memory that a reason used, without a judge."""
_PUNCTUATION = re.compile(r"[^\w\s/.\-]+")
_ANNOTATION = re.compile(r"\s*\[ERROR:[^\]]*\]?")


def normalised(text: str) -> str:
    """Return lower case with punctuation, except `/`, `.` and `-`, and white space as one space."""
    return " ".join(_PUNCTUATION.sub(" ", text.lower()).split())


def label_similarity(one: str | None, other: str | None) -> float:
    """Return 2 x common prefix / sum of lengths of two paths such as `Preferences/Food`.

    Case-sensitive. 0 if either is missing or empty.
    """
    first, second = ([part for part in (label or "").split("/") if part] for label in (one, other))
    common = 0
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            break
        common += 1
    return 2 * common / (len(first) + len(second)) if first and second else 0.0


def value_similarity(gold: str, predicted: str) -> float:
    """Return 0.6 x Jaccard of the token sets + 0.4 x difflib's ratio of two `normalised` texts.

    Tokens are separated by white space, so in languages without spaces the second term decides.
    The ratio depends on the order of its texts; gold comes first. 0 for an empty text.
    """
    if not gold or not predicted:
        return 0.0
    if gold == predicted:
        return 1.0
    mine, theirs = set(gold.split()), set(predicted.split())
    jaccard = len(mine & theirs) / len(mine | theirs)
    return TOKENS * jaccard + CHARACTERS * SequenceMatcher(None, gold, predicted).ratio()


def text_similarity(gold: str, predicted: str) -> float:
    """Return the `value_similarity` of two texts after normalisation, 0 to 1."""
    return value_similarity(normalised(gold), normalised(predicted))


def confidence_similarity(one: float | None, other: float | None) -> float:
    """Return 1 for a difference up to 0.2, then linearly less, 0 at 1. Missing counts as 1.0."""
    first, second = (1.0 if c is None else min(max(c, 0.0), 1.0) for c in (one, other))
    return 1 - max(abs(first - second) - FREE, 0.0) / (1 - FREE)


def pair_scores(gold: Sequence[MemoryItem], predicted: Sequence[MemoryItem]) -> NDArray[np.float64]:
    """Return all pair scores, 0 to 1, shape (len(gold), len(predicted))."""
    mine = [normalised(item.text) for item in gold]
    theirs = [normalised(item.text) for item in predicted]
    scores = np.zeros((len(gold), len(predicted)))
    for i, one in enumerate(gold):
        for j, other in enumerate(predicted):
            scores[i, j] = (
                LABEL * label_similarity(one.label, other.label)
                + VALUE * value_similarity(mine[i], theirs[j])
                + TYPE * (one.type == other.type)
                + CONFIDENCE * confidence_similarity(one.confidence, other.confidence)
            )
    return scores


def token_overlap(memory: str, text: str) -> float:
    """Return the share of the memory's distinct tokens that `text` contains, 0 to 1.

    Tokens are those of the multilingual BM25 without stopwords; if a memory consists of stopwords,
    all of them count. An annotator's `[ERROR: ...]` at its end is ignored. 0 for a memory without
    tokens.
    """
    content, every = _tokens(_ANNOTATION.sub("", memory))
    own = set(content or every)
    return len(own & set(_tokens(text).every)) / len(own) if own else 0.0


@cache
def _tokens(text: str) -> TokenizedText:
    return MultilingualTokens()(text)
