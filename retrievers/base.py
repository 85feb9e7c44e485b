"""The interface: a retriever scores a pool. It never sorts, and never sees an id or the gold."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from recallbed.corpus.records import Memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from recallbed.chat_models.base import ChatModel

JSON = Any


class RetrieverError(Exception):
    """This query could not be scored. Counted by `cause`; never turned into a score."""

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(cause)


@dataclass(frozen=True, slots=True)
class Usage:
    """What the replies behind a score cost."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    estimated: int = 0
    """Calls whose tokens are our own estimate, since no server told them."""


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores with what else is known of them; every array has shape (len(pool),).

    `matched` masks the positions with any evidence at all, `first_stage` holds the scores before
    reranking of the best `depth`, `shown` the positions in prompt order; `repairs` counts mended
    replies by kind.
    """

    scores: ArrayLike
    matched: NDArray[np.bool_] | None = None
    first_stage: ArrayLike | None = None
    shown: Sequence[int] | None = None
    usage: Usage = Usage()
    repairs: Mapping[str, int] = field(default_factory=dict)
    depth: int | None = None


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run offers to a retriever that asks for it, beside its settings.

    `bank` holds all distinct memories of the data. `store` is the embedding store's file, or a
    function that finds it when it is first needed; None where vectors last no longer than the run.
    `max_memory` bounds the bytes of embeddings held in
    memory at once, None for no bound. Neither changes a score. `leg` gives the run's one instance
    of a label, or else of a registered name with its default settings (`registry.leg_finder`).
    `chats` gives the run's one instance of a chat model (`chat_models.Chats`).
    """

    seed: int = 0
    bank: Sequence[Memory] = ()
    store: Path | Callable[[], Path | None] | None = None
    max_memory: int | None = None
    leg: Callable[[str], Retriever] | None = None
    chats: Callable[[str], ChatModel] | None = None


class Retriever(ABC):
    """Scores the memories of a pool for a query. `score` is all that must be written.

    An instance must survive pickling once it is prepared: `--workers` sends copies of it.
    """

    libraries: tuple[str, ...] = ()
    """Distributions whose version can change a score; recorded in the run's fingerprint."""
    fitted_on: tuple[str, ...] = ()
    """Hashes of the rows (`Task3File.sha256`) that some of its settings were fitted on."""
    _configured: Mapping[str, JSON] = {}
    _prepared_for: str | None = None

    @abstractmethod
    def score(self, query: str, pool: Sequence[Memory]) -> ArrayLike | Scored:
        """Scores of shape (len(pool),), finite, higher is better.

        A score may depend on the query and on which texts are in the pool, never on their order.
        Raises RetrieverError where the query can't be scored.
        """

    def score_batch(
        self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
    ) -> list[ArrayLike | Scored | RetrieverError]:
        """One result a query, failures in their places. By default a loop over `score`."""
        results: list[ArrayLike | Scored | RetrieverError] = []
        for query, pool in zip(queries, pools, strict=True):
            try:
                results.append(self.score(query, pool))
            except RetrieverError as error:
                results.append(error)
        return results

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        """Told once of all that a run will score, sorted and distinct. An optimisation only."""

    def prepare_once(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        """`prepare`, unless it was the last thing done: an instance may be a leg of several."""
        digest = hashlib.sha256()
        for part in (*queries, None, *((m.label, m.text) for m in memories)):
            digest.update(repr(part).encode() + b"\n")
        if self._prepared_for != digest.hexdigest():
            self.prepare(queries, memories)
            self._prepared_for = digest.hexdigest()

    def trust(self, query: str) -> float:
        """How far fusion may trust it on this query, 0 to 1: how well it can read the query."""
        return 1.0

    def settings(self) -> Mapping[str, JSON]:
        """All that can change a score. By default the settings it was built with."""
        return dict(self._configured)

    def depends_on(self) -> Iterable[str | Path]:
        """Files other than code that can change a score, such as weights; folders whole.

        Their hashes are part of the run's fingerprint. Relative paths start at the working folder.
        """
        return ()

    def notes(self) -> Mapping[str, JSON]:
        """What a reader of the summary should know, such as how many texts were cut short."""
        return {}

    @property
    def pool_independent(self) -> bool:
        """Whether a memory's score is the same in every pool: then a union is scored once."""
        return False

    @classmethod
    def from_run(cls, settings: Mapping[str, JSON], run: RunContext) -> Self:
        """Build an instance for a run; override it to take something from the run's context."""
        return cls(**settings)
