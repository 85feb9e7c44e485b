"""The package rank-bm25, to compare our own BM25 with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from typing_extensions import override

from indexes.tokens import MultilingualTokens, PaperTokens, TokenizerName
from recallbed.corpus.records import Memory
from retrievers.base import Retriever, Scored
from retrievers.registry import register


@register("rank-bm25")
class RankBM25(Retriever):
    """BM25Okapi, BM25Plus or BM25L of the package rank-bm25, on our tokens."""

    libraries = ("rank-bm25", "numpy", "nltk", "regex", "stop-words")

    def __init__(
        self, variant: Literal["okapi", "plus", "l"] = "okapi", tokens: TokenizerName = "paper"
    ) -> None:
        self.variant = variant
        self.tokens = PaperTokens() if tokens == "paper" else MultilingualTokens()

    @override
    def score(self, query: str, pool: Sequence[Memory]) -> Scored:
        import numpy as np
        import rank_bm25

        texts = [self.tokens(memory.text).content for memory in pool]
        if not any(texts):  # the package divides by the mean length
            return Scored(np.zeros(len(pool)), np.zeros(len(pool), np.bool_))
        classes = {"okapi": "BM25Okapi", "plus": "BM25Plus", "l": "BM25L"}
        terms = self.tokens(query).content
        scores = getattr(rank_bm25, classes[self.variant])(texts).get_scores(terms)
        return Scored(scores, np.array([bool({*terms} & {*text}) for text in texts]))
