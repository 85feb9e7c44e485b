"""A learned function from the features of candidates to values: linear, or boosted trees.

Both are numbers in arrays, read from safetensors: scikit-learn fits the trees
(`training.reranker`) and is not needed to apply them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]


class CandidateOrder(ABC):
    """Values of candidates, higher is better. A candidate's value depends on its own row alone."""

    kind: ClassVar[str]

    @abstractmethod
    def values(self, features: Floats) -> Floats:
        """Return a value for each row of features: (candidates, features) to (candidates,)."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return its parameters."""

    @classmethod
    @abstractmethod
    def of_arrays(cls, arrays: Arrays, features: int) -> Self:
        """Return the function with these parameters.

        Raise KeyError or ValueError if they are not parameters for this number of features.
        """


@dataclass(frozen=True, eq=False)
class LinearOrder(CandidateOrder):
    """The sum of coefficients times standardised features, all (features,)."""

    kind: ClassVar[str] = "linear"
    mean: Floats
    scale: Floats
    coefficients: Floats

    @override
    def values(self, features: Floats) -> Floats:
        # Row by row, so that a value does not depend on the number of rows.
        standardised = (features - self.mean) / self.scale
        return np.asarray(np.einsum("ij,j->i", standardised, self.coefficients), np.float64)

    @override
    def arrays(self) -> Arrays:
        return {"mean": self.mean, "scale": self.scale, "coefficients": self.coefficients}

    @classmethod
    @override
    def of_arrays(cls, arrays: Arrays, features: int) -> Self:
        names = ("mean", "scale", "coefficients")
        found = [np.asarray(arrays[name], np.float64) for name in names]
        if any(one.shape != (features,) for one in found):
            raise ValueError("coefficients of another number of features")
        if not np.isfinite(found).all() or not (found[1] > 0).all():
            raise ValueError("coefficients that are not finite, or a scale of 0")
        return cls(*found)


_TREES = ("roots", "feature", "threshold", "left", "right", "leaf")


@dataclass(frozen=True, eq=False)
class BoostedOrder(CandidateOrder):
    """The sum of regression trees, as scikit-learn's HistGradientBoostingClassifier adds them.

    Node i goes to `left[i]` if feature `feature[i]` is at most `threshold[i]`, else to `right[i]`;
    a leaf has feature -1 and adds `leaf[i]`. `roots` holds the first node of each tree.
    """

    kind: ClassVar[str] = "boosting"
    roots: NDArray[np.int64]
    feature: NDArray[np.int64]
    threshold: Floats
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    leaf: Floats

    @override
    def values(self, features: Floats) -> Floats:
        total = np.zeros(len(features))
        for root in self.roots.tolist():
            node = np.full(len(features), root)
            while (inner := np.flatnonzero(self.feature[node] >= 0)).size:
                at = node[inner]
                goes_left = features[inner, self.feature[at]] <= self.threshold[at]
                node[inner] = np.where(goes_left, self.left[at], self.right[at])
            total += self.leaf[node]
        return total

    @override
    def arrays(self) -> Arrays:
        return {name: getattr(self, name) for name in _TREES}

    @classmethod
    @override
    def of_arrays(cls, arrays: Arrays, features: int) -> Self:
        roots, feature, left, right = (
            np.asarray(arrays[name], np.int64) for name in ("roots", "feature", "left", "right")
        )
        threshold, leaf = (np.asarray(arrays[name], np.float64) for name in ("threshold", "leaf"))
        nodes, size = np.arange(len(feature)), len(feature)
        if any(one.shape != (size,) for one in (left, right, threshold, leaf)):
            raise ValueError("trees whose arrays differ in length")
        inner = feature >= 0
        # A child lies behind its parent, so that every walk ends.
        children = np.concatenate([left[inner], right[inner]])
        behind = (children > np.tile(nodes[inner], 2)).all() and (children < size).all()
        if not (behind and (feature < features).all() and np.isin(roots, nodes).all()):
            raise ValueError(
                "trees of another number of features, or with nodes that are not there"
            )
        if not (np.isfinite(threshold[inner]).all() and np.isfinite(leaf).all()):
            raise ValueError("trees with numbers that are not finite")
        return cls(roots, feature, threshold, left, right, leaf)


ORDERS: Mapping[str, type[CandidateOrder]] = {one.kind: one for one in (LinearOrder, BoostedOrder)}
"""By the name of the kind."""
