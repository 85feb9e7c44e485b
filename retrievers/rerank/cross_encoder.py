"""Reranking by a cross-encoder, which reads query and memory together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from indexes.model_folder import model_hash, resolve_model
from indexes.sentence_encoder import (
    NO_LIMIT,
    load_model,
    model_settings,
    token_counts,
    token_ids,
    token_limit,
)
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers.base import RetrieverError
from retrievers.explanation import RerankerEvidence
from retrievers.registry import register
from retrievers.rerank.base import Reranked, Reranker, Shortlist, evidence_of

TRUNCATED = "truncated"


@register("cross-encoder")
class CrossEncoderReranker(Reranker):
    """Any sentence-transformers CrossEncoder with one output: a local folder or a hub name.

    Candidates are ordered by its raw output, since a sigmoid would round high ones to ties. It runs
    in float32; `device` is "auto" (CUDA if available), "cpu" or "cuda". `max_tokens` overrides the
    model's limit on query and memory together. Truncated candidates are counted in the row's
    repairs as `truncated`; equal model inputs are scored once and tie.
    """

    libraries = ("numpy", "torch", "sentence-transformers", "transformers", "tokenizers")

    def __init__(
        self,
        model: str = "",
        first_stage: str = "minilm",
        depth: int = 20,
        device: str = "auto",
        batch_size: int = 64,
        max_tokens: int | None = None,
    ) -> None:
        super().__init__(first_stage, depth)
        if not model:
            raise UserError("no cross-encoder is given. Add --set LABEL.model=FOLDER")
        if batch_size < 1:
            raise UserError(f"batch_size={batch_size}: must be at least 1")
        self.model, self.device, self.batch_size = model, device, batch_size
        self.max_tokens = max_tokens
        self.folder = resolve_model(model)
        self._counts: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_loaded"}

    @cached_property
    def _loaded(self) -> Any:
        model = load_model("CrossEncoder", self.folder, self.device)
        network = model.transformers_model
        if type(network).__name__ not in (network.config.architectures or ()):
            # From any other model CrossEncoder makes one with an untrained output layer.
            raise UserError(f"{self.folder}: not a cross-encoder ({network.config.architectures})")
        if model.num_labels != 1:
            raise UserError(f"{self.folder}: the model has {model.num_labels} outputs, not one")
        if self.max_tokens is not None:
            most = model.max_seq_length
            if self.max_tokens < 8 or (most and self.max_tokens > most):
                raise UserError(
                    f"max_tokens={self.max_tokens}: must be from 8 to {most} for this model"
                )
            model.max_seq_length = self.max_tokens
        return model

    @property
    def _available(self) -> int:
        """The limit without the special tokens around query and memory."""
        marks = self._loaded.tokenizer.num_special_tokens_to_add(pair=True)
        return (token_limit(self._loaded) or NO_LIMIT) - int(marks)

    @cached_property
    def _hash(self) -> str:
        return model_hash(self.folder)

    @override
    def own_settings(self) -> Mapping[str, Any]:
        settings = model_settings(self.model, self.folder, self._hash, self._loaded)
        return {**settings, "batch_size": self.batch_size}

    @override
    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        super().prepare(queries, memories)
        asked, kept = sorted(set(queries)), sorted({memory.text for memory in memories})
        of_queries, of_memories = self._lengths(asked), self._lengths(kept)
        for_query = self._available - max(of_memories, default=0)
        for_memory = self._available - max(of_queries, default=0)
        self._counts = {
            "truncated_queries": int((of_queries > for_query).sum()),
            "of_queries": len(asked),
            "truncated_memories": int((of_memories > for_memory).sum()),
            "of_memories": len(kept),
        }

    def notes(self) -> Mapping[str, Any]:
        """The first stage's, and an upper bound of the truncated texts; the rows count those.

        A query counts if it leaves no room for the longest memory, a memory if it leaves none for
        the longest query.
        """
        return {**super().notes(), **self._counts}

    def _lengths(self, texts: Sequence[str]) -> NDArray[np.int64]:
        return token_counts(self._loaded.tokenizer, texts, special=False)

    @override
    def rerank_all(self, shortlists: Sequence[Shortlist]) -> list[Reranked | RetrieverError]:
        # One by one: what else is in a batch changes the last digits of an output.
        return [self._rerank(shortlist) for shortlist in shortlists]

    @override
    def evidence(
        self, shortlist: Shortlist, numbers: Sequence[int]
    ) -> Mapping[int, RerankerEvidence]:
        return evidence_of("output", numbers, self._rerank(shortlist.part(numbers)))

    def _rerank(self, shortlist: Shortlist) -> Reranked | RetrieverError:
        import torch

        # Sorted, so that what is computed together does not depend on the first stage.
        texts = sorted(shortlist.texts)
        pairs = [(shortlist.query, text) for text in texts]
        # Equal inputs are scored once: in different rows of a batch their outputs would differ in
        # the last bits, and a tie would become an order.
        inputs: list[bytes] = []
        for start in range(0, len(pairs), self.batch_size):
            inputs += token_ids(self._loaded, pairs[start : start + self.batch_size])
        distinct = dict(zip(reversed(inputs), reversed(pairs), strict=True))
        outputs = self._loaded.predict(
            [distinct[one] for one in dict.fromkeys(inputs)],
            batch_size=self.batch_size,
            activation_fn=torch.nn.Identity(),
            show_progress_bar=False,
        )
        if not np.isfinite(outputs).all():
            return RetrieverError("the cross-encoder returned a score that is not finite")
        of_input = dict(
            zip(dict.fromkeys(inputs), outputs.astype(np.float64).tolist(), strict=True)
        )
        values = {text: of_input[one] for text, one in zip(texts, inputs, strict=True)}
        of_query, *of_texts = self._lengths([shortlist.query, *texts])
        truncated = sum(of_query + length > self._available for length in of_texts)
        return Reranked([values[text] for text in shortlist.texts], repairs={TRUNCATED: truncated})
