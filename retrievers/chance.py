"""Two baselines at chance level; any other result shows that the harness leaks the gold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from recallbed.corpus.records import Memory
from retrievers.base import Retriever, RunContext
from retrievers.registry import register


@register("constant")
class Constant(Retriever):
    """The same score for all memories: recall@k is exactly k / |pool|."""

    @property
    @override
    def pool_independent(self) -> bool:
        return True

    @override
    def score(self, query: str, pool: Sequence[Memory]) -> NDArray[np.float64]:
        return np.zeros(len(pool))


@register("random")
class Random(Retriever):
    """A uniform number in [0, 1) from a hash of seed, query and text; `seed` is the run's."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    @classmethod
    @override
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        return cls(**{"seed": run.seed, **settings})

    @override
    def settings(self) -> Mapping[str, Any]:
        return {"seed": self.seed}

    @property
    @override
    def pool_independent(self) -> bool:
        return True

    @override
    def score(self, query: str, pool: Sequence[Memory]) -> NDArray[np.float64]:
        start = hashlib.blake2b(f"{self.seed}\x00{query}\x00".encode(), digest_size=8)
        numbers = []
        for memory in pool:
            digest = start.copy()
            digest.update(memory.text.encode())
            numbers.append(int.from_bytes(digest.digest()[:4], "big"))
        return np.array(numbers) / 2**32
