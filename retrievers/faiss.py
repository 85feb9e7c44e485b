"""Dense retrieval over an index: exact for pools, approximate for stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from indexes.base import Index, kind_for, make_index
from indexes.vector_index import faiss_module
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers.base import Scored
from retrievers.dense import Dense
from retrievers.registry import register


@register("faiss")
class Faiss(Dense):
    """`dense` through an index; the default model is MiniLM.

    Pools of up to `exact_up_to` memories are searched exactly, for any `index`, with the scores of
    `dense`. Larger pools are searched by `index` (auto, flat, hnsw, ivfpq) for the best `depth`,
    which get the scores of `dense`; all others share one lower score, are unmatched, and are
    counted in the row's repairs as `unreturned`. The index of a pool is kept for the next query,
    which saves time if many queries share a pool.
    """

    def __init__(
        self,
        model: str = "all-MiniLM-L6-v2",
        query_prefix: str = "",
        memory_prefix: str = "",
        device: str = "auto",
        batch_size: int = 64,
        max_tokens: int | None = None,
        query_prompt: str | None = None,
        memory_prompt: str | None = None,
        index: Literal["auto", "flat", "hnsw", "ivfpq"] = "auto",
        depth: int = 1000,
        exact_up_to: int = 10_000,
    ) -> None:
        super().__init__(
            model,
            query_prefix,
            memory_prefix,
            device,
            batch_size,
            max_tokens,
            query_prompt,
            memory_prompt,
        )
        self.libraries = (*self.libraries, "faiss-cpu")
        if depth < 1 or exact_up_to < 0:
            raise UserError("depth must be at least 1, and exact_up_to at least 0")
        self.index, self.depth, self.exact_up_to = index, depth, exact_up_to
        self._largest: int | None = None
        self._built: tuple[dict[str, int], Index[Any]] | None = None

    @override
    def settings(self) -> Mapping[str, Any]:
        own = {"index": self.index, "depth": self.depth, "exact_up_to": self.exact_up_to}
        return {**super().settings(), **own}

    @override
    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        self._largest = len(memories)
        if not self.pool_independent and self._kind(self._largest) != "flat":
            faiss_module()
        super().prepare(queries, memories)

    @property
    @override
    def pool_independent(self) -> bool:
        return self._largest is not None and self._largest <= self.exact_up_to

    @override
    def notes(self) -> Mapping[str, Any]:
        found = dict(super().notes())
        if self.pool_independent and self.index in ("hnsw", "ivfpq"):
            found["index"] = f"{self.index} not used: up to {self.exact_up_to} are searched exactly"
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_built": None}

    @override
    def score(self, query: str, pool: Sequence[Memory]) -> Any:
        if len(pool) <= self.exact_up_to:
            return super().score(query, pool)
        memories = {self.memory_text(memory): memory for memory in pool}
        places, index = self._index(memories)
        [hits] = index.search(self.vectors([self.query_text(query)], "query"), self.depth)
        texts = list(places)
        found = [texts[i] for i in hits.ids]
        # From the vectors themselves, since an index may hold them compressed.
        exact = super().score(query, [memories[text] for text in found])
        known = dict(zip(found, exact.tolist(), strict=True))
        others = float(exact.min()) - 1
        scores = np.array([known.get(self.memory_text(memory), others) for memory in pool])
        matched = scores != others
        unreturned = int((~matched).sum())
        return Scored(scores, matched, repairs={"unreturned": unreturned} if unreturned else {})

    def _kind(self, count: int) -> str:
        return kind_for(count) if self.index == "auto" else self.index

    def _index(self, texts: Mapping[str, Memory]) -> tuple[dict[str, int], Index[Any]]:
        """The number of each text in their index, and that index; kept for the next query.

        It is built in sorted order, so that the order of the pool has no effect.
        """
        if self._built is None or self._built[0].keys() != texts.keys():
            ordered = sorted(texts)
            vectors = self.vectors(ordered)
            index = make_index(self._kind(len(ordered)), width=vectors.shape[1])
            index.build(np.arange(len(ordered)), vectors)
            self._built = ({text: i for i, text in enumerate(ordered)}, index)
        return self._built
