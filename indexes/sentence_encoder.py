"""Any sentence-transformers model as an encoder, and what other models of that library need."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from indexes.compact import apply_compact, read_compact, whole_model_folder
from indexes.embedding_store import EmbeddingStore
from indexes.encoder import Encoder, ModelInputs, prompts_in_force
from indexes.legibility import legibility
from indexes.model_folder import Role, asymmetry, resolve_model
from recallbed.errors import UserError

NO_LIMIT = 10**9
_TOKENISED = 4096  # texts at once
_PADDED = 256  # texts at once if they are padded to the longest
_READ = ("input_ids", "token_type_ids")
_TASKS: Mapping[Role, str] = {"query": "query", "memory": "document"}


class SentenceEncoder(Encoder):
    """A sentence-transformers model: a packaged name, a local folder or a hub name.

    A folder may hold a compact model (`indexes.compact`), which is made from its base.

    Arguments as for `indexes.encoder.make_encoder`.
    """

    libraries = ("sentence-transformers", "tokenizers", "torch", "transformers")

    def __init__(
        self,
        model: str,
        device: str = "auto",
        batch_size: int = 64,
        max_tokens: int | None = None,
        store: EmbeddingStore | None = None,
        prompts: Mapping[Role, str | None] | None = None,
    ) -> None:
        folder = resolve_model(model)
        self._read_from = whole_model_folder(folder)
        own, self._routed = asymmetry(self._read_from)
        super().__init__(model, folder, batch_size, store, prompts_in_force(own, prompts))
        self._device, self._max_tokens = device, max_tokens

    @cached_property
    def _model(self) -> Any:
        model = load_model("SentenceTransformer", self.folder, self._device)
        if self._max_tokens is not None:
            if not 2 < self._max_tokens <= self._positions(model):
                raise UserError(
                    f"max_tokens {self._max_tokens}: the model takes 3 to {self._positions(model)}"
                )
            model.max_seq_length = self._max_tokens
        return model

    @staticmethod
    def _positions(model: Any) -> int:
        config = getattr(getattr(model[0], "auto_model", None), "config", None)
        limit = getattr(config, "max_position_embeddings", None) or model.max_seq_length
        return int(min(limit or NO_LIMIT, NO_LIMIT))

    @property
    @override
    def symmetric(self) -> bool:
        return super().symmetric and not self._routed

    @override
    def routing(self, role: Role) -> dict[str, str]:
        return {"task": _TASKS[role]} if self._routed else {}

    @override
    def legibility(self, text: str) -> float:
        return legibility(text, self._read_from)

    @override
    def measured_settings(self) -> dict[str, Any]:
        return model_settings(self.name, self.folder, self.weights, self._model)

    @override
    def request(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "weights": self.weights,
            "max_tokens": self._max_tokens,
            "device": self._device,
            # What "auto" depends on.
            "gpu": Path("/proc/driver/nvidia/version").exists(),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "libraries": self.library_versions,
        }

    @override
    def native_width(self) -> int:
        return int(self._model.get_embedding_dimension())

    @override
    def read_inputs(self, texts: Sequence[str], role: Role) -> ModelInputs:
        prompt = self.prompts[role]
        lengths = token_counts(self._model.tokenizer, [prompt + text for text in texts])
        digests = [b""] * len(texts)
        order = sorted(range(len(texts)), key=lambda i: -lengths[i])  # to save padding
        for start in range(0, len(order), _PADDED):
            some = order[start : start + _PADDED]
            read = token_ids(self._model, [prompt + texts[i] for i in some], **self.routing(role))
            for i, ids in zip(some, read, strict=True):
                digests[i] = hashlib.blake2b(ids, digest_size=16).digest()
        cut = lengths > (token_limit(self._model) or NO_LIMIT)
        return ModelInputs(texts, digests, lengths, cut)

    @override
    def make_vectors(self, content: Sequence[Any], role: Role) -> NDArray[np.float32]:
        made: NDArray[np.float32] = self._model.encode(
            list(content),
            prompt=self.prompts[role],  # an empty one replaces the model's default prompt
            batch_size=len(content),
            show_progress_bar=False,
            convert_to_numpy=True,
            **self.routing(role),
        )
        return made


def load_model(kind: str, folder: Path, device: str) -> Any:
    """Return the model in `folder` in float32, of a class of sentence-transformers.

    `device` is "auto" (CUDA if available), "cpu" or "cuda". Raises UserError.
    """
    try:
        import sentence_transformers
        from transformers.utils import logging
    except ImportError:
        raise UserError(
            "dense models need more packages. Run: pip install 'recallbed[dense]'"
        ) from None
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    compact, whole = read_compact(folder), whole_model_folder(folder)
    try:
        where = None if device == "auto" else device
        model = getattr(sentence_transformers, kind)(
            str(whole), device=where, local_files_only=True
        )
    except Exception as error:
        line = " ".join(str(error).split())[:300]
        raise UserError(
            f"{folder}: cannot be loaded as a {kind} ({type(error).__name__}: {line})"
        ) from error
    model.float()  # half precision would round close scores to ties
    if compact is not None:
        apply_compact(model, compact)
    return model


def model_settings(name: str, folder: Path, weights: str, model: Any) -> dict[str, Any]:
    """Return what a run records of a loaded model; `name` as the user gave it."""
    return {
        "model": Path(name).name if folder == Path(name) else name,
        "weights": weights,
        "max_tokens": token_limit(model),
        "device": str(model.device.type),
        "dtype": "float32",
    }


def token_limit(model: Any) -> int | None:
    """Return the most tokens of an input that a loaded model reads; None if there is no limit."""
    limit = model.max_seq_length
    return None if limit is None or limit > NO_LIMIT else int(limit)


def token_counts(tokenizer: Any, texts: Sequence[str], special: bool = True) -> NDArray[np.int64]:
    """Return the tokens of each text, (len(texts),), with or without special tokens."""
    counts: list[int] = []
    for start in range(0, len(texts), _TOKENISED):  # to bound memory
        some = list(texts[start : start + _TOKENISED])
        if callable(tokenizer):
            encoded = tokenizer(some, add_special_tokens=special, truncation=False, verbose=False)
            counts += map(len, encoded["input_ids"])
        else:  # static models have a tokenizers.Tokenizer
            counts += [len(one.ids) for one in tokenizer.encode_batch(some)]
    return np.array(counts, np.int64)


def token_ids(model: Any, inputs: Sequence[Any], **how: Any) -> list[bytes]:
    """Return the input of a sentence-transformers model for each text or pair, as bytes.

    Equal bytes are equal inputs: token ids after truncation, and token types of a pair. For a model
    without token ids, the text itself. `how` is passed to the model.
    """
    features = model.preprocess(list(inputs), **how)
    read = [np.asarray(features[name]) for name in _READ if name in features]
    mask = np.asarray(features.get("attention_mask", ()), bool)
    if read and mask.shape == read[0].shape == (len(inputs), mask.shape[-1]):
        return [b"".join(part[i, mask[i]].tobytes() for part in read) for i in range(len(inputs))]
    if read and "offsets" in features:  # a static model: one row of ids, and where each text begins
        pieces = np.split(read[0], np.asarray(features["offsets"])[1:])
        return [piece.tobytes() for piece in pieces]
    return [repr(one).encode() for one in inputs]
