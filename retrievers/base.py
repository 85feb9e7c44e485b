"""The interface: a retriever scores a pool. It never sorts, and never sees an id or the gold."""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from functools import lru_cache, wraps
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, final

from typing_extensions import override

from recallbed.chat_models.base import NOTHING_USED, Usage
from recallbed.corpus.records import Memory
from recallbed.corpus.sessions import session_digest
from recallbed.errors import UserError
from recallbed.harness.failures import cause_of
from recallbed.harness.typed_settings import parameters
from retrievers.explanation import Explanation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from recallbed.chat_models.base import ChatModel

JSON = Any


class RetrieverError(Exception):
    """This query cannot be scored. Counted by `cause`; never turned into a score.

    `usage` is the cost of the replies received before the failure.
    """

    def __init__(self, cause: str, usage: Usage = NOTHING_USED) -> None:
        self.cause, self.usage = cause, usage
        super().__init__(cause)


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores and what else is known of them; every array has shape (len(pool),).

    `matched` masks the positions with any evidence at all, `first_stage` holds the scores before
    reranking of the best `depth`, `shown` the positions in prompt order, `usage` the cost of the
    replies behind the scores; `repairs` counts repaired replies by kind.
    """

    scores: ArrayLike
    matched: NDArray[np.bool_] | None = None
    first_stage: ArrayLike | None = None
    shown: Sequence[int] | None = None
    usage: Usage = NOTHING_USED
    repairs: Mapping[str, int] = field(default_factory=dict)
    depth: int | None = None


@dataclass(frozen=True, slots=True)
class NotScored:
    """A query without scores: the cause as a row keeps it, and the cost of its replies."""

    cause: str
    usage: Usage = NOTHING_USED

    @property
    def error(self) -> RetrieverError:
        """The same as an exception."""
        return RetrieverError(self.cause, self.usage)


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run offers to a retriever in addition to its settings.

    `bank` holds all distinct memories of the data. `store` is the embedding store's file, or a
    function that finds it on first use; None if vectors last no longer than the run. `max_memory`
    bounds the bytes of embeddings held in memory at once, None for no bound. Neither changes a
    score. `leg` returns the run's one instance of a label, or of a registered name with its default
    settings (`registry.leg_finder`), `chats` that of a chat model (`chat_models.Chats`).
    """

    seed: int = 0
    bank: Sequence[Memory] = ()
    store: Path | Callable[[], Path | None] | None = None
    max_memory: int | None = None
    leg: Callable[[str], Retriever] | None = None
    chats: Callable[[str], ChatModel] | None = None


class Retriever(ABC):
    """Scores the memories of a pool for a query. `score` is the only required method.

    A prepared instance must survive pickling: `--workers` sends copies of it. Callers use
    `results` and `prepare_for`, which turn a fault into the failure of its own query.
    """

    libraries: tuple[str, ...] = ()
    """Distributions whose version can change a score; recorded in the run's fingerprint."""
    fitted_on: tuple[str, ...] = ()
    """Hashes of the rows (`Task3File.sha256`) that some of its settings were fitted on."""
    trained_on: tuple[str, ...] = ()
    """Digests (`session_digest`) of the sessions whose rows its weights were learned from."""
    _configured: Mapping[str, JSON] = {}
    _arguments: Mapping[str, Any] | None = None
    """Of its constructor, by name; None for an instance that was assembled otherwise."""
    _prepared_for: str | None = None

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = _keeps_arguments(cls.__init__)  # type: ignore[method-assign]

    @abstractmethod
    def score(self, query: str, pool: Sequence[Memory]) -> ArrayLike | Scored:
        """Return scores of shape (len(pool),), finite, higher is better.

        A score may depend on the query and on which texts are in the pool, never on their order.
        Raise RetrieverError if the query cannot be scored.
        """

    def score_batch(
        self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
    ) -> Sequence[ArrayLike | Scored | RetrieverError]:
        """Return one result per query, failures in their places. By default a loop over `score`."""
        results: list[ArrayLike | Scored | RetrieverError] = []
        for query, pool in zip(queries, pools, strict=True):
            try:
                results.append(self.score(query, pool))
            except RetrieverError as error:
                results.append(error)
        return results

    @final
    def results(
        self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
    ) -> list[Scored | NotScored]:
        """Return one checked result per query, with scores as float32 of shape (len(pool),).

        A batch that raises is tried again query by query. Raises only MemoryError, and UserError
        (a spent budget, a rejected key): what would fail every other query too ends the run.
        """
        try:
            given = list(self.score_batch(queries, pools))
            if len(given) != len(queries):
                raise RetrieverError(f"{len(given)} results for a batch of {len(queries)}")
        except (MemoryError, UserError):
            raise
        except Exception as error:
            if len(queries) > 1:
                alone = [self.results([q], [p]) for q, p in zip(queries, pools, strict=True)]
                return [result for [result] in alone]
            return [_not_scored(error)]
        return [
            checked_result(result, len(pool)) for result, pool in zip(given, pools, strict=True)
        ]

    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        """Called once with all that a run will score, sorted and distinct. An optimisation only."""

    @final
    def prepare_for(self, label: str, queries: Iterable[str], memories: Iterable[Memory]) -> None:
        """Prepare for all that a run will score, in any order and with repeats.

        Raises MemoryError, and UserError with the run's `label` if that fails.
        """
        try:
            self.prepare_once(
                sorted(set(queries)), sorted(set(memories), key=lambda m: (m.text, m.label or ""))
            )
        except (MemoryError, UserError):
            raise
        except Exception as error:
            raise UserError(f"{label}: cannot be prepared ({cause_of(error)})") from error

    @final
    def prepare_once(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        """Prepare unless just prepared for the same: an instance may be a leg of several."""
        digest = hashlib.sha256()
        for part in (*queries, None, *((m.label, m.text) for m in memories)):
            digest.update(repr(part).encode() + b"\n")
        if self._prepared_for != digest.hexdigest():
            self.prepare(queries, memories)
            self._prepared_for = digest.hexdigest()

    def explain(
        self, query: str, pool: Sequence[Memory], positions: Sequence[int]
    ) -> Sequence[Explanation]:
        """Return why the memories at these positions of a pool have their scores, one for each.

        By default nothing is known, and none is returned. Called for single queries after a run,
        never for scoring.
        """
        return ()

    @final
    def explanations(
        self, query: str, pool: Sequence[Memory], positions: Sequence[int]
    ) -> list[Explanation] | None:
        """Return one checked explanation per position; None if the retriever gives none.

        Raise RetrieverError if it cannot; MemoryError and UserError as `results` does.
        """
        try:
            found = list(self.explain(query, pool, positions))
            sound = all(isinstance(one, Explanation) for one in found)
            if not sound or len(found) not in (0, len(positions)):
                raise RetrieverError(f"explain: not one Explanation for each of {len(positions)}")
        except (MemoryError, UserError, RetrieverError):
            raise
        except Exception as error:
            raise RetrieverError(cause_of(error)) from error
        return found or None

    def trust(self, query: str) -> float:
        """Return the weight factor of fusion for this query, 0 to 1: how well it is read."""
        return 1.0

    def saw(self, query: str, session: str) -> bool:
        """Return whether its weights were learned from this session, so that it knows the answer.

        `session` is named as `corpus.sessions.session_key` does. A fusion or a reranker saw what a
        retriever below it saw.
        """
        return session_digest(session) in _as_set(self.trained_on)

    def settings(self) -> Mapping[str, JSON]:
        """Return all that can change a score. By default the settings it was built with."""
        return dict(self._configured)

    def depends_on(self) -> Iterable[str | Path]:
        """Return files other than code that can change a score, such as weights; folders whole.

        Their hashes are part of the run's fingerprint. Relative paths start at the working folder.
        """
        return ()

    def notes(self) -> Mapping[str, JSON]:
        """Return remarks for the summary, such as how many texts were truncated."""
        return {}

    @property
    def pool_independent(self) -> bool:
        """Whether a memory has the same score in every pool, so that a union is scored once."""
        return False

    @classmethod
    def from_run(cls, settings: Mapping[str, JSON], run: RunContext) -> Self:
        """Build an instance for a run. Override it to take something from the run's context."""
        return cls(**settings)

    @classmethod
    def arguments_of(cls, settings: Mapping[str, JSON]) -> Mapping[str, Any]:
        """Return constructor arguments that give these recorded `settings()`.

        By default the settings that are named like parameters of the constructor.
        """
        return {name: settings[name] for name in parameters(cls) if name in settings}


class BatchRetriever(Retriever):
    """Base class of retrievers that score queries together: `score` is a batch of one."""

    @override
    @abstractmethod
    def score_batch(
        self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
    ) -> list[Scored | RetrieverError]: ...

    @override
    def score(self, query: str, pool: Sequence[Memory]) -> Scored:
        [result] = self.score_batch([query], [pool])
        if isinstance(result, RetrieverError):
            raise result
        return result


def checked_result(result: Any, size: int) -> Scored | NotScored:
    """Return what a retriever gave for a pool of `size`, checked in all its parts."""
    if isinstance(result, RetrieverError):
        return _not_scored(result)
    import numpy as np

    from analysis.metrics import ranked

    scored = result if isinstance(result, Scored) else Scored(result)
    matched, first, shown, depth = scored.matched, scored.first_stage, scored.shown, scored.depth
    try:
        scores = ranked(scored.scores, size)
        if matched is not None:
            matched = np.asarray(matched, np.bool_)
            if matched.shape != (size,):
                raise ValueError(f"a mask of shape {matched.shape} for {size} scores")
        if first is not None:
            try:
                first = ranked(first, size)
            except ValueError as error:
                raise ValueError(f"first stage: {error}") from None
        if shown is not None:
            shown = [index(position) for position in shown]
            if not {*shown} <= {*range(size)} or len({*shown}) < len(shown):
                raise ValueError(f"shown: not distinct positions in a pool of {size}")
        if depth is not None:
            depth = index(depth)
            if depth < 1:
                raise ValueError(f"depth {depth}: must be at least 1")
        usage = Usage(*(int(n) for n in astuple(scored.usage)))
        repairs = {str(kind): int(n) for kind, n in scored.repairs.items()}
        return Scored(scores, matched, first, shown, usage, repairs, depth)
    except Exception as error:
        return _not_scored(error, ValueError)


@lru_cache(maxsize=64)
def _as_set(digests: tuple[str, ...]) -> frozenset[str]:
    return frozenset(digests)


def _not_scored(error: Exception, explained: type[Exception] = RetrieverError) -> NotScored:
    """The failure; of an `explained` exception without the name of its class."""
    if isinstance(error, RetrieverError):
        return NotScored(str(error.cause), error.usage)
    return NotScored(str(error) if isinstance(error, explained) else cause_of(error))


def _keeps_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """Return `init` that keeps its arguments: a run builds its own instance with them."""
    signature = inspect.signature(init)

    @wraps(init)
    def outer(self: Retriever, *args: Any, **kwargs: Any) -> None:
        if "_arguments" not in vars(self):
            self._arguments = None
            with suppress(TypeError):  # raised again by the constructor itself
                self._arguments = _by_name(signature.bind(self, *args, **kwargs))
        init(self, *args, **kwargs)

    return outer


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any] | None:
    """Return the arguments but for `self`; None if some have no name."""
    _, *given = bound.arguments.items()
    found: dict[str, Any] = {}
    for name, value in given:
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            return None
        found.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return found
