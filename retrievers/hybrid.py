"""Hybrid retrieval: the scores of several retrievers, fused by a weighted sum or by ranks.

A leg is one retriever's scores of the pool, shape (n,), with a mask of the positions it found any
evidence for. A leg adds nothing at unmatched positions, and nothing at all if its scores are all
equal. Sums are exactly rounded, so that no result depends on the order of the pool.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from analysis.metrics import above_tied, ranked
from indexes.encoder import USE
from recallbed.chat_models.base import Usage
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.failures import cause_of
from retrievers.base import BatchRetriever, NotScored, Retriever, RetrieverError, RunContext, Scored
from retrievers.bm25 import BM25
from retrievers.dense import Dense
from retrievers.explanation import FusedShares, LegShare
from retrievers.registry import describe_leg, leg_finder, register

Floats = NDArray[np.float64]
Fusion = Literal["weighted", "rrf"]
Scale = Literal["minmax", "zscore"]
LEXICAL_WEIGHT = 0.02
"""Weight of BM25 with dense legs, fitted on AlpsBench's public dev split: see docs/hybrid.md."""
MULTILINGUAL_WEIGHT = 0.3
"""Weight of `use` with another dense leg, fitted likewise."""
PUBLIC_DEV = "0754c597de0a1c070b9c5045a586d89dce609e71783c29c31c0fc116c1333711"
"""`Task3File.sha256` of the rows that it was fitted on."""
LEAST_TRUST = 0.05
"""Lower bound of trust, so that the leg still orders what no other leg matches."""


@register("hybrid")
class Hybrid(BatchRetriever):
    """Fused legs, named by label or registered name.

    `fusion` is `weighted` (on the common `scale`, `zscore` or `minmax`) or `rrf`, reciprocal rank
    fusion with the constant `rrf_k`. `weights` are numbers from 0, one per leg in the order of
    `legs`. By default a weighted sum of two or three of BM25, a dense leg and `use` has the weights
    fitted on dev, and any other fusion equal weights. With `trust` each leg's weight is multiplied
    by its `Retriever.trust` in the query to the power `trust_power`; by default in a weighted sum
    only, with the power 2 if `use` is one of several dense legs, else 1.
    """

    def __init__(
        self,
        legs: str = "bm25,faiss",
        fusion: Fusion = "weighted",
        scale: Scale = "zscore",
        weights: str | None = None,
        trust: bool | None = None,
        rrf_k: float = 60,
        trust_power: float | None = None,
    ) -> None:
        self.names = tuple(name.strip() for name in legs.split(","))
        if "" in self.names or len(set(self.names)) < len(self.names):
            raise UserError(f"legs={legs}: name each leg once, with commas, as in legs=bm25,faiss")
        if not (math.isfinite(rrf_k) and rrf_k >= 0):
            raise UserError(f"rrf_k={rrf_k:g}: must be a number of at least 0")
        if trust_power is not None and not (math.isfinite(trust_power) and trust_power >= 0):
            raise UserError(f"trust_power={trust_power:g}: must be a number of at least 0")
        self.fusion, self.scale, self.rrf_k = fusion, scale, rrf_k
        self.use_trust = fusion == "weighted" if trust is None else trust
        self._given = None if weights is None else _weights(weights, len(self.names))
        self._power = trust_power
        self._legs: tuple[Retriever, ...] = ()

    @classmethod
    @override
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        made = cls(**settings)
        if run.leg is not None:
            made._take(run.leg)
        return made

    @classmethod
    def of(cls, legs: Mapping[str, Retriever], **settings: Any) -> Self:
        """Return a hybrid of existing retrievers; `settings` as for the constructor."""
        made = cls(",".join(legs), **settings)
        made._take(legs.__getitem__)
        made._arguments = None
        return made

    def _take(self, find: Callable[[str], Retriever]) -> None:
        self._legs = tuple(find(name) for name in self.names)
        self.libraries = tuple(sorted({lib for one in self._legs for lib in one.libraries}))
        fitted_on = {rows for one in self._legs for rows in one.fitted_on}
        if self._given is None and self._fitted is not None:
            fitted_on.add(PUBLIC_DEV)
        self.fitted_on = tuple(sorted(fitted_on))

    @property
    def legs(self) -> tuple[Retriever, ...]:
        """The legs in order; outside a run, registered retrievers with default settings."""
        if not self._legs:
            self._take(leg_finder([], RunContext()))
        return self._legs

    @property
    def weights(self) -> tuple[float, ...]:
        """One weight per leg, before trust."""
        if self._given is not None:
            return self._given
        return self._fitted or tuple(1 / len(self.legs) for _ in self.legs)

    @property
    def _fitted(self) -> tuple[float, ...] | None:
        """The weights that were fitted for legs of these kinds, None if there are none."""
        kinds = [_kind(one) for one in self.legs]
        if self.fusion != "weighted" or None in kinds or not 1 < len(kinds) == len({*kinds}):
            return None
        lexical = LEXICAL_WEIGHT if "lexical" in kinds else 0.0
        weights = {"lexical": lexical, "dense": 1 - lexical, "multilingual": 1 - lexical}
        if self._routed:
            weights["multilingual"] = MULTILINGUAL_WEIGHT
            weights["dense"] = round(1 - lexical - MULTILINGUAL_WEIGHT, 2)
        return tuple(weights[kind] for kind in kinds if kind)

    @property
    def _routed(self) -> bool:
        """Whether queries are divided between `use` and another dense leg."""
        return {"dense", "multilingual"} <= {_kind(one) for one in self.legs}

    @property
    def trust_power(self) -> float:
        """The power of trust in a leg's weight."""
        if self._power is not None:
            return self._power
        return 2.0 if self._routed else 1.0

    @override
    def settings(self) -> Mapping[str, Any]:
        how: dict[str, Any] = {"fusion": self.fusion, "weights": list(self.weights)}
        how |= {"rrf_k": self.rrf_k} if self.fusion == "rrf" else {"scale": self.scale}
        if self.use_trust and (self._routed or self.trust_power != 1):
            how["trust_power"] = self.trust_power
        legs = [describe_leg(*one) for one in zip(self.names, self.legs, strict=True)]
        return {**how, "trust": self.use_trust, "legs": legs}

    @override
    def notes(self) -> Mapping[str, Any]:
        notes = {name: dict(one.notes()) for name, one in zip(self.names, self.legs, strict=True)}
        return {"legs": {name: found for name, found in notes.items() if found}}

    @override
    def prepare(self, queries: Sequence[str], memories: Sequence[Memory]) -> None:
        for one in self.legs:
            one.prepare_once(queries, memories)

    @override
    def trust(self, query: str) -> float:
        return max(one.trust(query) for one in self.legs)

    @override
    def saw(self, query: str, session: str) -> bool:
        return super().saw(query, session) or any(one.saw(query, session) for one in self.legs)

    @override
    def score_batch(
        self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
    ) -> list[Scored | RetrieverError]:
        by_leg = [one.results(queries, pools) for one in self.legs]
        found = [
            self.fuse(query, results) for query, *results in zip(queries, *by_leg, strict=True)
        ]
        return [one.error if isinstance(one, NotScored) else one for one in found]

    def fuse(self, query: str, results: Sequence[Scored | NotScored]) -> Scored | NotScored:
        """Fuse the legs' results for a pool; NotScored, with the leg's name, if one failed."""
        usage = sum((one.usage for one in results), Usage())
        for name, one in zip(self.names, results, strict=True):
            if isinstance(one, NotScored):
                return NotScored(f"leg {name}: {one.cause}", usage)
        weights = self._weights_for(query)
        if isinstance(weights, str):
            return NotScored(weights, usage)
        found = [one for one in results if isinstance(one, Scored)]
        repairs = sum((Counter(one.repairs) for one in found), Counter[str]())
        legs = [as_leg(one.scores, one.matched) for one in found]
        matched = np.logical_or.reduce([one.matched for one in legs])
        scores = _sum(self._shares(legs, weights))
        return Scored(scores, matched, usage=usage, repairs=dict(repairs))

    def _weights_for(self, query: str) -> list[float] | str:
        """The weights of the legs for a query; why there are none."""
        weights = list(self.weights)
        if self.use_trust:
            for i, (name, leg) in enumerate(zip(self.names, self.legs, strict=True)):
                try:
                    weights[i] *= max(float(leg.trust(query)), LEAST_TRUST) ** self.trust_power
                except (MemoryError, UserError):
                    raise
                except Exception as error:
                    return f"leg {name}: trust: {cause_of(error)}"
        return weights

    def _shares(self, legs: Sequence[Leg], weights: Sequence[float]) -> list[Floats]:
        """What each leg adds to the scores, (n,) each."""
        if self.fusion == "rrf":
            return _reciprocal_ranks(legs, weights, self.rrf_k)
        return _weighted(legs, weights, self.scale)

    @override
    def explain(
        self, query: str, pool: Sequence[Memory], positions: Sequence[int]
    ) -> list[FusedShares]:
        weights = self._weights_for(query)
        results = [one.results([query], [pool])[0] for one in self.legs]
        found = [one for one in results if isinstance(one, Scored)]
        if isinstance(weights, str) or len(found) < len(results):
            return []
        legs = [as_leg(one.scores, one.matched) for one in found]
        shares = self._shares(legs, weights)
        own = [one.explanations(query, pool, positions) for one in self.legs]
        return [
            FusedShares(
                tuple(
                    LegShare(
                        name,
                        float(share[position]),
                        float(leg.scores[position]),
                        above_tied(leg.scores, position),
                        None if why is None else why[number],
                    )
                    for name, leg, share, why in zip(self.names, legs, shares, own, strict=True)
                )
            )
            for number, position in enumerate(positions)
        ]

    @classmethod
    @override
    def arguments_of(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        found = dict(super().arguments_of(settings))
        found["legs"] = ",".join(leg["label"] for leg in settings["legs"])
        found["weights"] = ",".join(map(repr, settings["weights"]))
        return found


def _kind(leg: Retriever) -> Literal["lexical", "dense", "multilingual"] | None:
    """What weights were fitted for; None for any other retriever."""
    if isinstance(leg, BM25):
        return "lexical"
    if isinstance(leg, Dense):
        return "multilingual" if leg.encoder.name == USE else "dense"
    return None


def _weights(text: str, legs: int) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if len(found) != legs or not all(math.isfinite(w) and w >= 0 for w in found) or not any(found):
        raise UserError(
            f"weights={text}: give {legs} numbers from 0, one per leg, with commas, not all 0"
        )
    return found


class Leg(NamedTuple):
    """Scores as they are ranked (float32), and the mask of positions with any evidence, (n,)."""

    scores: NDArray[np.float32]
    matched: NDArray[np.bool_]


def as_leg(scores: ArrayLike, matched: ArrayLike | None = None) -> Leg:
    """Return a leg of `scores`, (n,); with `matched` None, all positions are matched.

    Raises ValueError for scores or a mask of a wrong shape, and for scores that are not finite.
    """
    size = np.size(scores)
    values = ranked(scores, size)
    mask = np.ones(size, np.bool_) if matched is None else np.asarray(matched, np.bool_)
    if mask.shape != (size,):
        raise ValueError(f"a mask of shape {mask.shape} for {size} scores")
    return Leg(values, mask)


def minmax(one: Leg) -> Floats:
    """Return (s - min) / (max - min) over the whole pool, (n,); 0 if unmatched or all equal.

    The minimum is that of the pool, not of the matched: a single hit gets 1.
    """
    values = one.scores.astype(np.float64)
    if not len(values):
        return values
    return np.where(one.matched, (values - values.min()) / (np.ptp(values) or 1.0), 0.0)


def zscore(one: Leg) -> Floats:
    """Return standard scores over the whole pool, (n,), shifted to a minimum of 0; 0 if unmatched.

    Shifting a leg by a constant changes no fused order. The deviation is that of the population.
    """
    values = one.scores.astype(np.float64)
    if not len(values) or not np.ptp(values):
        return np.zeros(len(values))
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values.tolist()) / len(values))
    return np.where(one.matched, (values - values.min()) / deviation, 0.0)


def ranks(one: Leg) -> Floats:
    """Return ranks among the matched positions, (n,), 1 for the best; infinite if unmatched.

    Equal scores share the mean of their ranks, the expectation under random tie order.
    """
    found = np.full(len(one.scores), np.inf)
    scores = one.scores[one.matched]
    ordered = np.sort(scores)
    above = len(scores) - np.searchsorted(ordered, scores, "right")
    at_least = len(scores) - np.searchsorted(ordered, scores, "left")
    found[one.matched] = (above + 1 + at_least) / 2
    return found


def weighted_sum(legs: Sequence[Leg], weights: Sequence[float], scale: Scale = "minmax") -> Floats:
    """Return the weighted sum of the legs on a common scale, (n,)."""
    return _sum(_weighted(legs, weights, scale))


def _weighted(legs: Sequence[Leg], weights: Sequence[float], scale: Scale) -> list[Floats]:
    common = {"minmax": minmax, "zscore": zscore}[scale]
    return [weight * common(one) for one, weight in zip(legs, weights, strict=True)]


def reciprocal_rank_fusion(
    legs: Sequence[Leg], weights: Sequence[float], rrf_k: float = 60
) -> Floats:
    """Return the sum of weight / (rrf_k + rank), (n,) (Cormack et al. 2009).

    A larger `rrf_k` gives more weight to agreement and less to the first place of one leg.
    """
    return _sum(_reciprocal_ranks(legs, weights, rrf_k))


def _reciprocal_ranks(legs: Sequence[Leg], weights: Sequence[float], rrf_k: float) -> list[Floats]:
    return [weight / (rrf_k + ranks(one)) for one, weight in zip(legs, weights, strict=True)]


def _sum(parts: Sequence[Floats]) -> Floats:
    if len(parts) == 2:
        return parts[0] + parts[1]
    # More than two would round differently in another order of legs.
    return np.array([math.fsum(column) for column in zip(*parts, strict=True)], np.float64)
