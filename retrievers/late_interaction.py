"""Late interaction: every token of the query meets every token of the memory (MaxSim).

Khattab and Zaharia 2020, "ColBERT: Efficient and Effective Passage Search over BERT": a score is
the mean over the query's tokens of the highest cosine with a token of the memory. Here the tokens
are those of any sentence-transformers model, trained for it or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from indexes.encoder import unit
from indexes.legibility import legibility
from indexes.model_folder import Role, asymmetry, model_hash, resolve_model
from indexes.sentence_encoder import load_model, model_settings, token_limit
from indexes.vector_table import VectorTable
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.progress import progress
from retrievers.base import Retriever, RunContext
from retrievers.registry import register

Vectors = NDArray[np.float32]
Direction = Literal["query", "memory", "both"]


class TokenEncoder:
    """Unit vectors of the tokens of texts, by a sentence-transformers model. Pickled without it.

    Marks such as [CLS] and the tokens of the model's prompt, if it has one, are left out of the
    vectors; a text without any other token has one vector of zeros. A text is truncated at the
    model's limit, or at `max_tokens`.
    """

    def __init__(
        self, model: str, device: str = "auto", batch_size: int = 64, max_tokens: int | None = None
    ) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size={batch_size}: must be at least 1")
        self.name, self.folder = model, resolve_model(model)
        self.device, self.batch_size, self.max_tokens = device, batch_size, max_tokens
        self.prompts = asymmetry(self.folder).prompts

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_model"}

    @cached_property
    def _model(self) -> Any:
        model = load_model("SentenceTransformer", self.folder, self.device)
        if not hasattr(model[0], "auto_model"):
            raise UserError(f"{self.name}: has no vectors of tokens. Use a transformer model")
        if self.max_tokens is not None:
            most = model.max_seq_length
            if self.max_tokens < 3 or (most and self.max_tokens > most):
                raise UserError(f"max_tokens={self.max_tokens}: must be from 3 to {most}")
            model.max_seq_length = self.max_tokens
        return model

    @cached_property
    def _hash(self) -> str:
        return model_hash(self.folder)

    def settings(self) -> dict[str, Any]:
        """Return all that can change a vector."""
        prompts = {f"{role}_prompt": text for role, text in self.prompts.items() if text != ""}
        found = model_settings(self.name, self.folder, self._hash, self._model)
        return {**found, **prompts, "batch_size": self.batch_size}

    def inputs(self, texts: Sequence[str], role: Role) -> list[bytes]:
        """Return the input of the model for each text: its token ids (int32) after truncation."""
        if not texts:
            return []
        limit = token_limit(self._model)
        prompt = self.prompts[role]
        read = self._model.tokenizer(
            [prompt + text for text in texts], truncation=limit is not None, max_length=limit
        )
        return [np.array(ids, np.int32).tobytes() for ids in read["input_ids"]]

    def batches(self, inputs: Sequence[bytes], role: Role) -> Iterator[tuple[list[int], Vectors]]:
        """Yield, for batches of distinct inputs, their places and their vectors, one after another.

        The vectors have shape (tokens, width); `counts` says how many belong to an input. Inputs of
        similar length are encoded together: one input in two batches may differ by about 1e-7.
        """
        import torch

        network, tokenizer = self._model[0].auto_model, self._model.tokenizer
        order = sorted(range(len(inputs)), key=lambda i: (-len(inputs[i]), inputs[i]))
        for start in range(0, len(order), self.batch_size):
            places = order[start : start + self.batch_size]
            rows = [np.frombuffer(inputs[i], np.int32) for i in places]
            ids = np.full((len(rows), len(rows[0])), tokenizer.pad_token_id or 0, np.int64)
            mask = np.zeros(ids.shape, np.int64)
            for at, row in enumerate(rows):
                ids[at, : len(row)], mask[at, : len(row)] = row, 1
            given = {"input_ids": ids, "attention_mask": mask}
            with torch.inference_mode():
                read = {k: torch.from_numpy(v).to(network.device) for k, v in given.items()}
                hidden = network(**read).last_hidden_state.float().cpu().numpy()
            found = [
                hidden[at, kept] if len(kept) else np.zeros((1, hidden.shape[2]), np.float32)
                for at, kept in enumerate(self._kept(row, role) for row in rows)
            ]
            yield places, unit(np.concatenate(found), self.name)

    def counts(self, inputs: Sequence[bytes], role: Role) -> list[int]:
        """Return the number of vectors of each input."""
        return [max(len(self._kept(np.frombuffer(one, np.int32), role)), 1) for one in inputs]

    def _kept(self, ids: NDArray[np.int32], role: Role) -> NDArray[np.intp]:
        """The places of the text's own tokens."""
        marks, prompts = self._left_out
        return np.flatnonzero(~np.isin(ids, marks))[prompts[role] :]

    @cached_property
    def _left_out(self) -> tuple[list[int], dict[Role, int]]:
        """The ids of marks, and the number of a prompt's tokens."""
        tokenizer = self._model.tokenizer
        roles: tuple[Role, Role] = ("query", "memory")
        lengths = {
            role: len(tokenizer(self.prompts[role], add_special_tokens=False)["input_ids"])
            for role in roles
        }
        marks = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
        return sorted(marks), lengths


@register("maxsim")
class MaxSim(Retriever):
    """Cosines of token vectors: each token takes its best match on the other side, and the mean.

    `direction` says whose tokens: the `query`'s as in ColBERT, the `memory`'s, or `both`, which
    adds the two. `model` is any sentence-transformers model of the transformer kind; `max_tokens`
    lowers its limit. A text without tokens scores 0.
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
        direction: Direction = "both",
        device: str = "auto",
        batch_size: int = 64,
        max_tokens: int | None = None,
    ) -> None:
        self.direction = direction
        self.encoder = TokenEncoder(model, device, batch_size, max_tokens)
        self._table = VectorTable()
        # The first row and the number of rows of a model input, and of a text.
        self._inputs: dict[tuple[Role, bytes], tuple[int, int]] = {}
        self._places: dict[tuple[Role, str], tuple[int, int]] = {}

    @classmethod
    @override
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        made = cls(**settings)
        made._table = VectorTable(run.max_memory)
        return made

    @override
    def settings(self) -> Mapping[str, Any]:
        return {"direction": self.direction, **self.encoder.settings()}

    @property
    @override
    def pool_independent(self) -> bool:
        return True

    @override
    def trust(self, query: str) -> float:
        return legibility(query, self.encoder.folder)

    @override
    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        self._encode(queries, "query")
        self._encode([memory.text for memory in memories], "memory")

    @override
    def score(self, query: str, pool: Sequence[Memory]) -> NDArray[np.float64]:
        texts = [memory.text for memory in pool]
        self._encode([query], "query")
        self._encode(texts, "memory")
        asked = self._vectors("query", query)
        # Memory by memory, so that a score does not depend on the rest of the pool.
        of_text = {
            text: self._score(asked, self._vectors("memory", text)) for text in dict.fromkeys(texts)
        }
        return np.array([of_text[text] for text in texts], np.float64)

    def _score(self, asked: Vectors, kept: Vectors) -> float:
        cosines = asked @ kept.T
        of_query = float(cosines.max(axis=1).mean()) if self.direction != "memory" else 0.0
        of_memory = float(cosines.max(axis=0).mean()) if self.direction != "query" else 0.0
        return of_query + of_memory

    def _vectors(self, role: Role, text: str) -> Vectors:
        first, count = self._places[role, text]
        return self._table.rows(np.arange(first, first + count))

    def _encode(self, texts: Sequence[str], role: Role) -> None:
        new = [text for text in dict.fromkeys(texts) if (role, text) not in self._places]
        if not new:
            return
        read = self.encoder.inputs(new, role)
        missing = [one for one in dict.fromkeys(read) if (role, one) not in self._inputs]
        with progress("encoding tokens", len(missing) if len(missing) > 1 else 0) as advance:
            for places, made in self.encoder.batches(missing, role):
                batch = [missing[i] for i in places]
                counts = self.encoder.counts(batch, role)
                keys = [
                    (role, one, n) for one, c in zip(batch, counts, strict=True) for n in range(c)
                ]
                rows = self._table.reserve(keys, made.shape[1])
                self._table.write(rows, made)
                firsts = int(rows[0]) + np.cumsum([0, *counts])
                for one, first, count in zip(batch, firsts.tolist(), counts, strict=False):
                    self._inputs[role, one] = first, count
                advance(len(places))
        # Texts that are equal after truncation share their vectors, and tie.
        for text, one in zip(new, read, strict=True):
            self._places[role, text] = self._inputs[role, one]
