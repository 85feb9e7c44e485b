"""Fitting a learned combination: the weights of its legs, then the order of the best candidates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import above_tied, ranked
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from retrievers.base import Scored
from retrievers.candidate_order import CandidateOrder
from retrievers.features import PoolScores, candidate_features
from retrievers.hybrid import LEAST_TRUST, Leg, as_leg, weighted_sum, zscore
from retrievers.learned import candidates_of
from retrievers.learned_model import LearnedModel
from training.boosting import fit_boosted
from training.listwise import Floats, Lists, fit_linear, fit_listwise
from training.pool_results import PoolAt, PoolResults
from training.reranker_options import Combination
from training.teacher import TaughtShares

_SUM_L2 = 1e-3
_LINEAR_L2 = (0.003, 0.03, 0.3)
_ROUNDS = (60, 150)


@dataclass(frozen=True)
class FitSettings:
    """How a combination is fitted.

    The best `depth` candidates are ordered by `features`; `combination` says by what, `auto` lets
    inner folds choose. For the order of candidates, a teacher is `teacher_weight` of a target and
    the golds are the rest; the weights of the sum follow the golds alone.
    """

    depth: int
    features: tuple[str, ...]
    combination: Combination = "auto"
    trust: bool = True
    seed: int = 0
    teacher_weight: float = 0.5


@dataclass(frozen=True)
class _Candidates:
    """The shortlist of a pool; `features` is (n, features), the targets and golds are (n,)."""

    row: int
    size: int
    features: Floats
    targets: Floats
    gold: NDArray[np.bool_]


@dataclass(frozen=True)
class _Choice:
    """One way to order candidates, in the order of simplicity."""

    name: str
    kind: Literal["sum", "linear", "boosting"]
    strength: float = 0.0

    def fit(self, lists: Lists, seed: int) -> CandidateOrder | None:
        if self.kind == "linear":
            return fit_linear(lists, self.strength)
        return fit_boosted(lists, int(self.strength), seed) if self.kind == "boosting" else None


def _choices(combination: Combination) -> list[_Choice]:
    every = [
        _Choice("sum", "sum"),
        *(_Choice(f"linear, l2 {l2:g}", "linear", l2) for l2 in _LINEAR_L2[::-1]),
        *(_Choice(f"boosting, {rounds} rounds", "boosting", rounds) for rounds in _ROUNDS),
    ]
    return [one for one in every if combination in ("auto", one.kind)]


@dataclass(frozen=True)
class Fitted:
    """A fitted model, the name of its order, and the recall@1 of each order on inner folds."""

    model: LearnedModel
    chosen: str
    inner_recall: Mapping[str, float] = field(default_factory=dict)


class CombinationFit:
    """Fits combinations of scored legs on some of the rows.

    `legs` describes the legs of `scored` as the model will record them; `inner_folds` has the fold
    of each row on which orders are compared.
    """

    def __init__(
        self,
        scored: PoolResults,
        legs: Sequence[Configuration],
        settings: FitSettings,
        inner_folds: Sequence[int],
        teacher: TaughtShares | None = None,
    ) -> None:
        self.scored, self.legs, self.settings = scored, tuple(legs), settings
        self.inner_folds = list(inner_folds)
        self.teacher = teacher or {}
        sizes = scored.material.sizes
        self.sizes = tuple(dict.fromkeys((min(sizes), max(sizes))))
        self._failed = scored.failed
        self._trust = {
            row: [max(float(leg.trust(query)), LEAST_TRUST) for leg in scored.legs.values()]
            for row, query in enumerate(r.query for r in scored.material.pools.rows)
        }

    def fit(self, rows: Sequence[int]) -> Fitted:
        """Return the combination fitted on these rows of the material.

        Raise UserError if no pool of theirs can be learned from.
        """
        kept = [row for row in rows if row not in self._failed]
        pools = [at for at in self.scored.results if at[0] in self.sizes and at[2] in set(kept)]
        if not pools:
            raise UserError("no query could be scored by all legs, so that nothing can be learned")
        weights = self._sum_weights(pools)
        model = LearnedModel(self.legs, weights, self.settings.depth, trust=self.settings.trust)
        choices = _choices(self.settings.combination)
        if choices[0].kind == "sum" and len(choices) == 1:
            return Fitted(model, "sum")
        candidates = [self._candidates(at, weights) for at in pools]
        chosen, recalls = self._chosen(candidates, choices)
        order = chosen.fit(_lists(candidates), self.settings.seed)
        if order is not None:
            model = replace(model, features=self.settings.features, order=order)
        return Fitted(model, chosen.name, recalls)

    def _sum_weights(self, pools: Sequence[PoolAt]) -> tuple[float, ...]:
        rows, starts, targets, total = [], [], [], 0
        for at in pools:
            legs = self._legs(at)
            columns = np.stack([zscore(one) for one in legs], axis=1) * self._factors(at[2])
            right = np.zeros(len(columns))
            right[list(self.scored.golds(at))] = 1 / len(self.scored.golds(at))
            rows.append(columns)
            targets.append(right)
            starts.append(total)
            total += len(columns)
        lists = Lists(np.concatenate(rows), np.array(starts), np.concatenate(targets))
        found = fit_listwise(lists, _SUM_L2, nonnegative=True)
        if not found.sum() > 0:
            raise UserError("no leg finds the golds better than chance, so that nothing is learned")
        return tuple(round(float(w), 6) for w in found / found.sum())

    def _factors(self, row: int) -> Floats:
        return np.array(self._trust[row] if self.settings.trust else [1.0] * len(self.legs))

    def _legs(self, at: PoolAt) -> list[Leg]:
        found = self.scored.results[at]
        return [as_leg(one.scores, one.matched) for one in found if isinstance(one, Scored)]

    def _targets(self, at: PoolAt, right: Floats, texts: Sequence[str]) -> Floats:
        """The golds' shares, mixed with those of the teacher if it ordered this pool."""
        found = self.teacher.get(at, {})
        taught = np.array([found.get(text, 0.0) for text in texts])
        if not taught.sum() > 0:
            return right
        share = self.settings.teacher_weight
        mixed = (1 - share) * right + share * taught / taught.sum()
        return mixed / mixed.sum() if mixed.sum() > 0 else right

    def _candidates(self, at: PoolAt, weights: Sequence[float]) -> _Candidates:
        legs, query, memories = self._legs(at), self.scored.query(at), self.scored.memories(at)
        in_query = (np.array(weights) * self._factors(at[2])).tolist()
        summed = weighted_sum(legs, in_query, "zscore")
        shortlist, places = candidates_of(
            query, memories, np.asarray(summed, np.float32), self.settings.depth, self.settings.seed
        )
        features = candidate_features(
            query,
            memories,
            places,
            PoolScores(legs, [float(leg.trust(query)) for leg in self.scored.legs.values()]),
            [leg.label for leg in self.legs],
            self.settings.features,
        )
        golds = {memories[i].text for i in self.scored.golds(at)}
        gold = np.array([text in golds for text in shortlist.texts])
        right = gold / gold.sum() if gold.any() else np.zeros(len(gold))
        return _Candidates(at[2], at[0], features, self._targets(at, right, shortlist.texts), gold)

    def _chosen(
        self, candidates: Sequence[_Candidates], choices: Sequence[_Choice]
    ) -> tuple[_Choice, dict[str, float]]:
        """The choice with the highest recall@1 on inner folds; the simplest within its error."""
        fold_of = [self.inner_folds[one.row] for one in candidates]
        if len(choices) == 1 or len(set(fold_of)) == 1:
            return choices[0], {}
        recalls = np.zeros((len(choices), len(candidates)))
        for fold in sorted(set(fold_of)):
            train = [one for one, f in zip(candidates, fold_of, strict=True) if f != fold]
            held = [i for i, f in enumerate(fold_of) if f == fold]
            lists = _lists(train)
            for number, choice in enumerate(choices):
                order = choice.fit(lists, self.settings.seed)
                for i in held:
                    recalls[number, i] = _recall_at_1(candidates[i], order)
        means = recalls.mean(axis=1)
        best = int(np.argmax(means))
        rows = np.array([one.row for one in candidates])
        for number in range(best):
            if means[best] - means[number] <= _error(recalls[best] - recalls[number], rows):
                best = number
                break
        return choices[best], {
            choice.name: round(float(mean), 6) for choice, mean in zip(choices, means, strict=True)
        }


def _lists(candidates: Sequence[_Candidates]) -> Lists:
    """The shortlists that hold something right, one after another."""
    kept = [one for one in candidates if one.targets.any()]
    if not kept:
        raise UserError("no gold is among the candidates. Raise --candidates, or give better legs")
    sizes = [len(one.targets) for one in kept]
    return Lists(
        np.concatenate([one.features for one in kept]),
        np.cumsum([0, *sizes])[:-1],
        np.concatenate([one.targets for one in kept]),
    )


def _recall_at_1(one: _Candidates, order: CandidateOrder | None) -> float:
    """The expected share of golds at rank 1; candidates are in the order of the sum."""
    if not one.gold.any():
        return 0.0
    values = -np.arange(len(one.gold)) if order is None else order.values(one.features)
    scores = ranked(values, len(one.gold))
    best = np.flatnonzero(one.gold)[np.argmax(scores[one.gold])]
    above, tied = above_tied(scores, int(best))
    return 1 / tied if above == 0 else 0.0


def _error(differences: Floats, rows: NDArray[np.int64]) -> float:
    """The standard error of a mean of differences, those of one row taken together."""
    _, place = np.unique(rows, return_inverse=True)
    sums = np.bincount(place, differences - differences.mean())
    return math.sqrt(math.fsum(sums**2)) / len(differences)
