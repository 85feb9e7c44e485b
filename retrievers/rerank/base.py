"""Base class of rerankers: reorder the shortlist of a first stage and put it above the rest."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from analysis.metrics import above_tied, ranked
from recallbed.chat_models.base import NOTHING_USED, Usage
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers.base import BatchRetriever, NotScored, Retriever, RetrieverError, RunContext, Scored
from retrievers.explanation import RerankedPlace, RerankerEvidence
from retrievers.registry import describe_leg, leg_finder

NO_FIRST_STAGE = "none"


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The texts to be reordered: distinct, best first, with their first-stage scores, (n,).

    Texts of equal score are in the order of a hash (`order_key`), never in that of the pool.
    """

    query: str
    texts: tuple[str, ...]
    scores: NDArray[np.float64]

    def part(self, numbers: Sequence[int]) -> Shortlist:
        """Return the texts of these numbers alone."""
        texts = tuple(self.texts[i] for i in numbers)
        return Shortlist(self.query, texts, self.scores[list(numbers)])


@dataclass(frozen=True, slots=True)
class Reranked:
    """A value per text of a shortlist, (n,), higher is better; texts of equal value tie.

    `shown` numbers the texts in prompt order, None if there was no such order. `repairs` counts
    the repairs of replies by kind.
    """

    values: ArrayLike
    usage: Usage = NOTHING_USED
    repairs: Mapping[str, int] = field(default_factory=dict)
    shown: Sequence[int] | None = None


def order_key(seed: int, query: str, text: str, salt: str = "") -> bytes:
    """Return the sort key of tied texts: a hash, so that the order of the pool has no effect."""
    parts = (str(seed), query, text, salt)
    joined = b"".join(b"%d\n%s" % (len(raw), raw) for raw in (p.encode() for p in parts))
    return hashlib.sha256(joined).digest()


def best_of_pool(
    query: str,
    pool: Sequence[Memory],
    scores: NDArray[np.float32],
    depth: int | None = None,
    seed: int = 0,
) -> Shortlist:
    """Return the distinct texts among the best `depth` memories of a pool, of all by default."""
    depth = len(pool) if depth is None else min(depth, len(pool))
    lowest = np.partition(scores, len(pool) - depth)[len(pool) - depth]
    near = [int(i) for i in np.flatnonzero(scores >= lowest)]
    near.sort(key=lambda i: (-scores[i], order_key(seed, query, pool[i].text)))
    best: dict[str, float] = {}
    for i in near[:depth]:
        best.setdefault(pool[i].text, float(scores[i]))
    return Shortlist(query, tuple(best), np.array(list(best.values())))


class Reranker(BatchRetriever):
    """Reorders the best `depth` of `first_stage`, a label or a registered name.

    They rank above the rest, which keeps the first stage's order and ties. A subclass defines the
    order in `rerank_all`; it never sees a memory's position in the pool. With a depth of None the
    whole pool is reordered.
    """

    def __init__(self, first_stage: str = "minilm", depth: int | None = 20) -> None:
        if depth is not None and depth < 2:
            raise UserError(f"depth={depth}: must be at least 2")
        self.first_stage_name, self.depth = first_stage, depth
        self.seed = 0
        self._first: Retriever | None = None

    @override
    @classmethod
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        made = cls(**settings)
        made.seed = run.seed
        if run.leg is not None and made.first_stage_name != NO_FIRST_STAGE:
            made._take(run.leg)
        return made

    @classmethod
    def over(cls, first_stage: Retriever, *, seed: int = 0, **settings: Any) -> Self:
        """Return a reranker of an existing retriever."""
        made = cls(**settings)
        made.seed = seed
        made._set_first_stage(first_stage)
        return made

    def _set_first_stage(self, first_stage: Retriever) -> None:
        self.first_stage_name = type(first_stage).__name__
        self._take(lambda _: first_stage)
        self._arguments = None

    def _take(self, find: Callable[[str], Retriever]) -> None:
        self._first = find(self.first_stage_name)
        self.libraries = tuple(sorted({*self.libraries, *self._first.libraries}))
        self.fitted_on = tuple(sorted({*self.fitted_on, *self._first.fitted_on}))

    @property
    def first_stage(self) -> Retriever:
        """The first stage; outside a run, the registered retriever with default settings."""
        if self._first is None:
            self._take(leg_finder([], RunContext()))
        assert self._first is not None
        return self._first

    def rerank_all(self, shortlists: Sequence[Shortlist]) -> list[Reranked | RetrieverError]:
        """Return values for each shortlist, failures in their places."""
        raise NotImplementedError

    def own_settings(self) -> Mapping[str, Any]:
        """Return all of the reranker itself that can change a score."""
        return {}

    @override
    def settings(self) -> Mapping[str, Any]:
        found: dict[str, Any] = {"depth": self.depth, **self.own_settings()}
        if self.first_stage_name != NO_FIRST_STAGE:
            found["first_stage"] = describe_leg(self.first_stage_name, self.first_stage)
        return found

    @override
    def notes(self) -> Mapping[str, Any]:
        if self.first_stage_name == NO_FIRST_STAGE:
            return {}
        found = dict(self.first_stage.notes())
        return {"first_stage": found} if found else {}

    @override
    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        if self.first_stage_name != NO_FIRST_STAGE:
            self.first_stage.prepare_once(queries, memories)

    @override
    def trust(self, query: str) -> float:
        return 1.0 if self.first_stage_name == NO_FIRST_STAGE else self.first_stage.trust(query)

    @override
    def saw(self, query: str, session: str) -> bool:
        alone = self.first_stage_name == NO_FIRST_STAGE
        below = not alone and self.first_stage.saw(query, session)
        return below or super().saw(query, session)

    @override
    def score_batch(
        self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
    ) -> list[Scored | RetrieverError]:
        """Return scores that are ranks: 0 for the best, -1 for the next, and so on.

        The candidates of the whole batch are reranked together.
        """
        firsts = self._first_scores(queries, pools)
        shortlists: dict[int, Shortlist] = {}
        for i, (query, pool, first) in enumerate(zip(queries, pools, firsts, strict=True)):
            if isinstance(first, Scored) and pool:
                shortlists[i] = self._shortlist(query, pool, np.asarray(first.scores, np.float32))
        several = {i: shortlist for i, shortlist in shortlists.items() if len(shortlist.texts) > 1}
        results = dict(zip(several, self.rerank_all(list(several.values())), strict=True))
        found: list[Scored | RetrieverError] = []
        for i, (pool, first) in enumerate(zip(pools, firsts, strict=True)):
            if isinstance(first, NotScored):
                cause = f"first stage {self.first_stage_name}: {first.cause}"
                found.append(RetrieverError(cause, first.usage))
            elif not pool:
                found.append(first)
            else:
                result = results.get(i, Reranked([0.0]))
                if isinstance(result, RetrieverError):
                    found.append(RetrieverError(result.cause, first.usage + result.usage))
                else:
                    found.append(self._merge(pool, first, shortlists[i], result))
        return found

    def evidence(
        self, shortlist: Shortlist, numbers: Sequence[int]
    ) -> Mapping[int, RerankerEvidence]:
        """Return what is known of these texts of a shortlist, by number; no chat model is asked."""
        return {}

    @override
    def explain(
        self, query: str, pool: Sequence[Memory], positions: Sequence[int]
    ) -> list[RerankedPlace]:
        [first] = self._first_scores([query], [pool])
        if isinstance(first, NotScored):
            return []
        scores = np.asarray(first.scores, np.float32)
        shortlist = self._shortlist(query, pool, scores)
        number = {text: i for i, text in enumerate(shortlist.texts)}
        wanted = {i: number[pool[i].text] for i in positions if pool[i].text in number}
        known = self.evidence(shortlist, sorted(set(wanted.values()))) if wanted else {}
        alone = self.first_stage_name == NO_FIRST_STAGE
        own = None if alone else self.first_stage.explanations(query, pool, positions)
        return [
            RerankedPlace(
                position in wanted,
                len(pool) if self.depth is None else min(self.depth, len(pool)),
                None if alone else above_tied(scores, position),
                None if own is None else own[place],
                known.get(wanted.get(position, -1)),
            )
            for place, position in enumerate(positions)
        ]

    @classmethod
    @override
    def arguments_of(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        found = dict(super().arguments_of(settings))
        first = settings.get("first_stage")
        return {**found, "first_stage": first["label"] if first else NO_FIRST_STAGE}

    def _first_scores(
        self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
    ) -> list[Scored | NotScored]:
        if self.first_stage_name == NO_FIRST_STAGE:
            return [Scored(np.zeros(len(pool), np.float32)) for pool in pools]
        found = self.first_stage.results(queries, pools)
        # What else is known belongs to another prompt.
        return [
            Scored(one.scores, one.matched, usage=one.usage, repairs=one.repairs)
            if isinstance(one, Scored)
            else one
            for one in found
        ]

    def _shortlist(
        self, query: str, pool: Sequence[Memory], scores: NDArray[np.float32]
    ) -> Shortlist:
        """The distinct texts among the best `depth` memories of the pool."""
        return best_of_pool(query, pool, scores, self.depth, self.seed)

    def _merge(
        self, pool: Sequence[Memory], first: Scored, shortlist: Shortlist, result: Reranked
    ) -> Scored | RetrieverError:
        try:
            values = ranked(result.values, len(shortlist.texts))
        except ValueError as error:
            return RetrieverError(str(error), first.usage + result.usage)
        levels = np.unique(-values)
        places = np.searchsorted(levels, -values)
        of_text = dict(zip(shortlist.texts, places.tolist(), strict=True))
        scores = np.asarray(first.scores, np.float32)
        rest = np.array([memory.text not in of_text for memory in pool])
        below = np.unique(-scores[rest])
        ranks = len(levels) + np.searchsorted(below, -scores)
        for i, memory in enumerate(pool):
            ranks[i] = of_text.get(memory.text, ranks[i])
        repairs = Counter(first.repairs)
        repairs.update(result.repairs)
        positions: dict[str, int] = {}
        for i, memory in enumerate(pool):
            positions.setdefault(memory.text, i)
        alone = self.first_stage_name == NO_FIRST_STAGE
        return Scored(
            -ranks.astype(np.float64),
            None if first.matched is None else first.matched | ~rest,
            first_stage=None if alone else scores,
            shown=None
            if result.shown is None
            else [positions[shortlist.texts[i]] for i in result.shown],
            usage=first.usage + result.usage,
            repairs={kind: count for kind, count in sorted(repairs.items()) if count},
            depth=None if alone else self.depth or len(pool),
        )


def evidence_of(
    name: str, numbers: Sequence[int], result: Reranked | RetrieverError
) -> dict[int, RerankerEvidence]:
    """Return the values of a part of a shortlist as evidence; nothing after a failure."""
    if isinstance(result, RetrieverError):
        return {}
    values = np.asarray(result.values, np.float64).tolist()
    return {n: RerankerEvidence(v, name) for n, v in zip(numbers, values, strict=True)}
