"""Dense retrieval over an index: exact for pools, approximate for stores."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from corpus.records import Memory
from harness.errors import UserError
from indexes.base import Index
from indexes.choose import kind_for, make_index
from retrievers.base import Scored
from retrievers.dense import Dense
from retrievers.registry import register


@register("faiss")
class Faiss(Dense):
    """`dense` through an index; MiniLM unless `model` says otherwise.

    Pools of up to `exact_up_to` memories are searched exactly, whatever `index` says, and score as
    `dense` does, so that a memory lost by an index isn't blamed on the model. Larger ones go to
    `index` (auto, flat, hnsw, ivfpq). Where that is approximate, the best `depth` are asked for;
    the others share one score below the lowest, are marked as unmatched, and are counted in the
    row's repairs as `unreturned`.
    """

    libraries = (*Dense.libraries, "faiss-cpu")

    def __init__(
        self,
        model: str = "all-MiniLM-L6-v2",
        query_prefix: str = "",
        memory_prefix: str = "",
        device: str = "auto",
        batch_size: int = 64,
        max_tokens: int | None = None,
        index: Literal["auto", "flat", "hnsw", "ivfpq"] = "auto",
        depth: int = 1000,
        exact_up_to: int = 10_000,
    ) -> None:
        super().__init__(model, query_prefix, memory_prefix, device, batch_size, max_tokens)
        if depth < 1 or exact_up_to < 0:
            raise UserError("depth must be at least 1, and exact_up_to at least 0")
        self.index, self.depth, self.exact_up_to = index, depth, exact_up_to
        self._largest: int | None = None
        self._built: tuple[bytes, Index[Any], list[int]] | None = None

    def settings(self) -> Mapping[str, Any]:
        """Those of `dense`, and how large pools are searched."""
        own = {"index": self.index, "depth": self.depth, "exact_up_to": self.exact_up_to}
        return {**super().settings(), **own}

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        """Encode all texts; remember how large a pool of them could be."""
        super().prepare(queries, memories)
        self._largest = len(memories)

    @property
    def pool_independent(self) -> bool:
        """Whether everything there is would be searched exactly: then pools change no score."""
        return self._largest is not None and self._largest <= self.exact_up_to

    def notes(self) -> Mapping[str, Any]:
        """Truncation, and which index was not needed."""
        found = dict(super().notes())
        if self.pool_independent and self.index in ("hnsw", "ivfpq"):
            found["index"] = f"{self.index} not used: up to {self.exact_up_to} are searched exactly"
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_built": None}

    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        """Cosines, (len(pool),); a Scored where the index is approximate."""
        if len(pool) <= self.exact_up_to:
            return self._exact(query, pool)
        texts = [self.memory_text(memory) for memory in pool]
        index, distinct = self._index(texts)
        [hits] = index.search(self.vectors([self.query_text(query)]), self.depth)
        scores = np.full(len(pool), np.nan)
        scores[np.array(distinct)[hits.ids]] = hits.scores
        first = {texts[i]: i for i in distinct}
        scores = scores[[first[text] for text in texts]]
        missing = np.isnan(scores)
        scores[missing] = float(hits.scores[-1]) - 1
        unreturned = int(missing.sum())
        return Scored(scores, ~missing, repairs={"unreturned": unreturned} if unreturned else {})

    def _exact(self, query: str, pool: Sequence[Memory]) -> Any:
        vectors = self.vectors([self.memory_text(memory) for memory in pool])
        index = make_index("flat", width=vectors.shape[1])
        index.build(np.arange(len(pool)), vectors)
        [hits] = index.search(self.vectors([self.query_text(query)]), len(pool))
        scores = np.empty(len(pool))
        scores[hits.ids] = hits.scores
        return scores

    def _index(self, texts: Sequence[str]) -> tuple[Index[Any], list[int]]:
        """The index over the distinct `texts` and their first positions; kept for the next query.

        It is built in the order of the texts, so a pool's order changes nothing.
        """
        first: dict[str, int] = {}
        for i, text in enumerate(texts):
            first.setdefault(text, i)
        ordered = sorted(first)
        key = hashlib.sha256("\x00".join(ordered).encode()).digest()
        distinct = [first[text] for text in ordered]
        if self._built is None or self._built[0] != key:
            vectors = self.vectors(ordered)
            kind = kind_for(len(ordered)) if self.index == "auto" else self.index
            index = make_index(kind, width=vectors.shape[1])
            index.build(np.arange(len(ordered)), vectors)
            self._built = (key, index, distinct)
        return self._built[1], distinct
