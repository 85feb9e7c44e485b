"""A learned combination of retrievers: a weighted sum of their scores, then a learned order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from recallbed.corpus.records import Memory
from recallbed.harness.configurations import Configuration
from retrievers.base import NotScored, Retriever, RetrieverError, RunContext, Scored
from retrievers.features import PoolScores, candidate_features
from retrievers.hybrid import Hybrid, as_leg
from retrievers.learned_model import LearnedModel, read_learned
from retrievers.registry import describe_leg, leg_finder, register
from retrievers.rerank.base import Reranked, Reranker, Shortlist, best_of_pool
from retrievers.trained import model_folder, trained_sessions

SUM = "sum"
DEFAULT_LEARNED = "mpnet"
SHIPPED_LEARNED = (DEFAULT_LEARNED,)
"""Names of the models in retrievers/models/learned."""


@register("learned")
class Learned(Reranker):
    """Legs, their weights and the order of the best candidates, as `training.reranker` fitted them.

    The whole pool is scored by a weighted sum of the legs' standard scores; then the best `depth`
    of the model are ordered by a learned function of `retrievers.features`. `model` is a folder, or
    the name of a model that is shipped.
    """

    def __init__(self, model: str = DEFAULT_LEARNED) -> None:
        self.model = model
        self.folder = model_folder(model, "learned", SHIPPED_LEARNED, "training.reranker")
        self.learned: LearnedModel = read_learned(self.folder)
        super().__init__(SUM, self.learned.depth)
        self.trained_on = trained_sessions([self.folder])

    @classmethod
    @override
    def from_run(cls, settings: Mapping[str, Any], run: RunContext) -> Self:
        made = cls(**settings)
        made.seed = run.seed
        made.use_legs(build_legs(made.learned.legs, run))
        return made

    def use_legs(self, legs: Mapping[str, Retriever]) -> None:
        """Take these retrievers as the legs, by label."""
        model = self.learned
        weights = ",".join(map(repr, model.weights))
        fused = Hybrid.of(
            {label: legs[label] for label in model.labels}, weights=weights, trust=model.trust
        )
        self._take(lambda _: fused)

    @property
    @override
    def first_stage(self) -> Hybrid:
        """The weighted sum."""
        if self._first is None:
            self.use_legs(build_legs(self.learned.legs, RunContext(self.seed)))
        assert isinstance(self._first, Hybrid)
        return self._first

    @override
    def settings(self) -> Mapping[str, Any]:
        model = self.learned
        return {
            "model": self.folder.name,
            "depth": model.depth,
            "order": None if model.order is None else model.order.kind,
            "features": list(model.features),
            "sum": describe_leg(SUM, self.first_stage),
        }

    @override
    def depends_on(self) -> Iterable[str | Path]:
        return (self.folder,)

    @override
    def score_batch(
        self, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
    ) -> list[Scored | RetrieverError]:
        by_leg = [one.results(queries, pools) for one in self.first_stage.legs]
        return [
            self.combine(query, pool, results)
            for query, pool, *results in zip(queries, pools, *by_leg, strict=True)
        ]

    def combine(
        self, query: str, pool: Sequence[Memory], results: Sequence[Scored | NotScored]
    ) -> Scored | RetrieverError:
        """Return the scores of a pool, (len(pool),), from the results of the legs, in order."""
        fused = self.first_stage.fuse(query, results)
        if isinstance(fused, NotScored):
            return fused.error
        model = self.learned
        if model.order is None or len(pool) < 2:
            return fused
        shortlist, places = candidates_of(
            query, pool, np.asarray(fused.scores, np.float32), self.depth, self.seed
        )
        found = [one for one in results if isinstance(one, Scored)]
        scores = PoolScores(
            [as_leg(one.scores, one.matched) for one in found],
            [float(leg.trust(query)) for leg in self.first_stage.legs],
        )
        features = candidate_features(query, pool, places, scores, model.labels, model.features)
        return self._merge(pool, fused, shortlist, Reranked(model.order.values(features)))

    @classmethod
    @override
    def arguments_of(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"model": settings["model"]}


def candidates_of(
    query: str, pool: Sequence[Memory], scores: NDArray[np.float32], depth: int | None, seed: int
) -> tuple[Shortlist, list[int]]:
    """Return the distinct texts of the best `depth`, and the position of each in the pool.

    Of equal texts it is the position of the one whose label is first, whatever the pool's order.
    """
    shortlist = best_of_pool(query, pool, scores, depth, seed)
    wanted = set(shortlist.texts)
    places: dict[str, int] = {}
    for i, memory in enumerate(pool):
        if memory.text in wanted:
            first = places.get(memory.text)
            if first is None or (memory.label or "") < (pool[first].label or ""):
                places[memory.text] = i
    return shortlist, [places[text] for text in shortlist.texts]


def build_legs(legs: Sequence[Configuration], run: RunContext) -> dict[str, Retriever]:
    """Return the retrievers of a model's legs by label. Raise UserError as `leg_finder` does."""
    find = leg_finder(legs, run)
    return {leg.label: find(leg.label) for leg in legs}
