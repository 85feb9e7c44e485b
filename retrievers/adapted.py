"""Dense retrieval with two linear maps that were learned over frozen vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from indexes.encoder import USE
from indexes.vector_table import VectorTable
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.fingerprint import file_hash
from retrievers.base import Retriever, RunContext
from retrievers.dense import Dense
from retrievers.explanation import Cosine
from retrievers.registry import register
from retrievers.trained import model_folder, read_json_object, trained_sessions

ADAPTER_FORMAT = 1
ADAPTER_SETTINGS, ADAPTER_WEIGHTS = "adapter.json", "adapter.safetensors"
DEFAULT_MODEL, SMALLER_MODEL = SHIPPED = ("mpnet-use", "minilm-use")
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class WeightedEncoder:
    """An encoder whose vectors are a part of the concatenated vector, scaled by `weight`.

    `weights` is the hash of the model that the maps were learned over, and `width` the length of
    its vectors.
    """

    model: str
    weight: float
    weights: str
    width: int


@dataclass(frozen=True)
class LinearMap:
    """The identity plus a product of low rank: x + (x @ down) @ up.

    `down` is (width, rank), `up` (rank, width).
    """

    down: NDArray[np.float64]
    up: NDArray[np.float64]

    def __call__(self, x: Floats) -> Floats:
        """Return the mapped vector, scaled to length 1, (width,); zeros stay zeros."""
        wide = x.astype(np.float64)
        mapped = wide + (wide @ self.down) @ self.up
        length = np.linalg.norm(mapped)
        return np.asarray(mapped / length if length else mapped, np.float32)


@dataclass(frozen=True)
class Adapter:
    """Encoders, and the maps of their concatenated vectors for queries and for memories.

    The part of a query that an encoder cannot read well is scaled down by its legibility, not below
    `least_trust`; 1 leaves all parts as they are.
    """

    encoders: tuple[WeightedEncoder, ...]
    query: LinearMap
    memory: LinearMap
    least_trust: float = 1.0

    @property
    def width(self) -> int:
        """The length of the concatenated vector."""
        return sum(one.width for one in self.encoders)

    @property
    def weights(self) -> list[float]:
        """The weight of each encoder."""
        return [one.weight for one in self.encoders]

    def save(self, folder: Path) -> None:
        """Write both files, the maps in float16."""
        from safetensors.numpy import save

        from recallbed.harness.files import write_atomically
        from recallbed.harness.fingerprint import canonical

        tensors = {
            f"{side}.{name}": np.ascontiguousarray(tensor, np.float16)
            for side, linear in (("query", self.query), ("memory", self.memory))
            for name, tensor in (("down", linear.down), ("up", linear.up))
        }
        encoders = [asdict(one) for one in self.encoders]
        content = {"format": ADAPTER_FORMAT, "encoders": encoders, "least_trust": self.least_trust}
        write_atomically(folder / ADAPTER_WEIGHTS, save(tensors))
        write_atomically(folder / ADAPTER_SETTINGS, canonical(content) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Adapter:
        """Read an adapter. Raises UserError for a missing or damaged file."""
        content = read_json_object(folder / ADAPTER_SETTINGS, ADAPTER_FORMAT)
        path = folder / ADAPTER_WEIGHTS
        try:
            from safetensors.numpy import load_file
        except ImportError:
            raise UserError(
                "a trained adapter needs more packages. Run: pip install 'recallbed[dense]'"
            ) from None
        try:
            encoders = tuple(
                WeightedEncoder(
                    str(one["model"]), float(one["weight"]), str(one["weights"]), int(one["width"])
                )
                for one in content["encoders"]
            )
            least_trust = float(content["least_trust"])
            tensors = {name: tensor.astype(np.float64) for name, tensor in load_file(path).items()}
            maps = [
                LinearMap(tensors[f"{side}.down"], tensors[f"{side}.up"])
                for side in ("query", "memory")
            ]
        except Exception as error:
            line = " ".join(str(error).split())[:200]
            raise UserError(f"{path}: cannot be read ({type(error).__name__}: {line})") from None
        found = cls(encoders, maps[0], maps[1], least_trust)
        for linear in maps:
            rank = linear.down.shape[-1]
            if (linear.down.shape, linear.up.shape) != ((found.width, rank), (rank, found.width)):
                raise UserError(f"{path}: its maps do not fit the encoders in {ADAPTER_SETTINGS}")
            if not (np.isfinite(linear.down).all() and np.isfinite(linear.up).all()):
                raise UserError(f"{path}: holds a number that is not finite")
        return found


def concatenated(
    parts: Sequence[Floats], weights: Sequence[float], trusts: Floats | None = None
) -> Floats:
    """Return vectors of several encoders, (n, width of each), side by side, (n, sum of widths).

    Each is scaled by its weight, all by the length of the weights. `trusts`, (n, encoders), scale
    the parts of each row besides.
    """
    scale = np.linalg.norm(weights)
    found = [part * np.float32(w / scale) for part, w in zip(parts, weights, strict=True)]
    if trusts is not None:
        found = [part * trusts[:, i : i + 1] for i, part in enumerate(found)]
    return np.concatenate(found, axis=1)


def query_trusts(queries: Sequence[str], legs: Sequence[Dense], least: float) -> Floats:
    """Return how well each encoder reads each query, `least` to 1, (len(queries), len(legs))."""
    found = [[max(leg.encoder.legibility(q), least) for leg in legs] for q in queries]
    return np.array(found, np.float32).reshape(len(queries), len(legs))


@register("adapted")
class Adapted(Retriever):
    """Cosine after two learned linear maps over the vectors of one or several frozen encoders.

    `model` is `mpnet-use` or `minilm-use`, which are part of this package, or a folder that
    `python -m training.adapter` wrote. A memory of which no encoder reads anything scores 0.
    """

    def __init__(
        self, model: str = DEFAULT_MODEL, device: str = "auto", batch_size: int = 64
    ) -> None:
        self.model, self.device, self.batch_size = model, device, batch_size
        self.folder = model_folder(model, "adapted", SHIPPED, "training.adapter")
        self.adapter = Adapter.load(self.folder)
        self.trained_on = trained_sessions([self.folder])
        self.legs = self._built(RunContext())
        of_legs = {name for leg in self.legs for name in leg.libraries}
        self.libraries = tuple(sorted({"numpy", "safetensors", *of_legs}))
        self._table = VectorTable()

    @classmethod
    @override
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        instance = super().from_run(settings, run)
        instance.legs = instance._built(run)
        instance._table = VectorTable(run.max_memory)
        return instance

    def _built(self, run: RunContext) -> list[Dense]:
        found = []
        try:
            for one in self.adapter.encoders:
                device = "auto" if one.model == USE else self.device  # it runs on the CPU only
                how = {"model": one.model, "device": device, "batch_size": self.batch_size}
                found.append(Dense.from_run(how, run))
            return found
        except UserError as error:
            if self.model != DEFAULT_MODEL:
                raise
            raise UserError(
                f"{error}. Or use the smaller encoder: --set LABEL.model={SMALLER_MODEL}"
            ) from None

    @override
    def settings(self) -> Mapping[str, Any]:
        files = (ADAPTER_SETTINGS, ADAPTER_WEIGHTS)
        return {
            "model": self.folder.name,
            "weights": {name: file_hash(self.folder / name) for name in files},
            "device": self.device,
            "batch_size": self.batch_size,
            "encoders": [dict(leg.settings()) for leg in self._checked_legs],
        }

    @cached_property
    def _checked_legs(self) -> list[Dense]:
        """The encoders. Raises UserError if one is not that which the maps were learned over."""
        for leg, one in zip(self.legs, self.adapter.encoders, strict=True):
            found = leg.settings()["weights"]
            if found != one.weights:
                raise UserError(
                    f"{self.folder}: was trained over {one.model} with weights {one.weights}, and"
                    f" those here are {found}. Install that version, or train again"
                )
        return self.legs

    @property
    @override
    def pool_independent(self) -> bool:
        return True

    @override
    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        for leg in self._checked_legs:
            leg.prepare(queries, memories)
        self._add(sorted({memory.text for memory in memories}))

    @override
    def notes(self) -> Mapping[str, Any]:
        found = {}
        for one, leg in zip(self.adapter.encoders, self.legs, strict=True):
            if notes := leg.notes():
                found[one.model] = dict(notes)
        return found

    @override
    def trust(self, query: str) -> float:
        """Return the mean trust of the encoders, weighted by their share of a cosine."""
        shares = [weight**2 for weight in self.adapter.weights]
        parts = [share * leg.trust(query) for share, leg in zip(shares, self.legs, strict=True)]
        return sum(parts) / sum(shares)

    @override
    def score(self, query: str, pool: Sequence[Memory]) -> NDArray[np.float64]:
        asked = self.query_vector(query).astype(np.float64)
        texts = [memory.text for memory in pool]
        self._add(list(dict.fromkeys(texts)))
        return self._table.products(texts, asked)

    def query_vector(self, query: str) -> Floats:
        """Return the mapped unit vector of a query, (width,)."""
        legs = self._checked_legs
        parts = [leg.vectors([leg.query_text(query)], "query") for leg in legs]
        trusts = query_trusts([query], legs, self.adapter.least_trust)
        return self.adapter.query(concatenated(parts, self.adapter.weights, trusts)[0])

    def memory_vectors(self, texts: Sequence[str]) -> Floats:
        """Return the mapped unit vectors of memories, (len(texts), width)."""
        parts = [leg.vectors(list(texts), "memory") for leg in self._checked_legs]
        # One by one, so that a vector does not depend on how many are mapped together.
        joined = concatenated(parts, self.adapter.weights)
        return np.stack([self.adapter.memory(x) for x in joined])

    def _add(self, texts: Iterable[str]) -> None:
        new = [text for text in texts if text not in self._table]
        if not new:
            return
        width = self.adapter.width
        rows = self._table.reserve(new, width)
        try:
            step = min(max(self._table.rows_at_once(width, 4 + 8), 1), 1024)
            for start in range(0, len(new), step):
                vectors = self.memory_vectors(new[start : start + step])
                self._table.write(rows[start : start + step], vectors)
        except BaseException:
            self._table.drop(new)
            raise

    @override
    def explain(self, query: str, pool: Sequence[Memory], positions: Sequence[int]) -> list[Cosine]:
        found = self.score(query, [pool[i] for i in positions])
        return [Cosine(cosine) for cosine in found.tolist()]
