"""Two linear maps by contrastive loss over fixed vectors, started from the identity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from recallbed.errors import UserError
from retrievers.adapted import LinearMap
from training.negatives import Mask

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
_BARRED = np.float32(-1e4)
"""Takes the place of a cosine divided by a temperature, far below any."""


@dataclass(frozen=True)
class AdapterRecipe:
    """How the maps are trained, by gradient descent with momentum.

    Each of at most `steps` takes `batch` texts against `bank` memories drawn anew, or all if there
    are no more. `pull` is the weight of the squared distance of both maps from the identity. The
    mean of `runs` trainings with different draws is kept, in `rank` dimensions.
    """

    steps: int = 20
    rate: float = 0.03
    momentum: float = 0.9
    batch: int = 128
    bank: int = 1500
    temperature: float = 0.05
    pull: float = 0.001
    runs: int = 5
    rank: int = 64


@dataclass(frozen=True)
class Pairs:
    """Vectors of texts, (n, width), with the positions of their golds among `memories`, (n,).

    `memories` are vectors, (m, width). `allowed` returns for the numbers of k texts the mask of the
    memories that may be their negatives, (k, m).
    """

    texts: Floats
    golds: Ints
    memories: Floats
    allowed: Callable[[Ints], Mask]

    def __len__(self) -> int:
        return len(self.texts)

    def only(self, numbers: Ints) -> Pairs:
        """Return the pairs of these numbers, over the same memories."""

        def allowed(some: Ints) -> Mask:
            return self.allowed(numbers[some])

        return replace(self, texts=self.texts[numbers], golds=self.golds[numbers], allowed=allowed)


@dataclass(frozen=True)
class Maps:
    """Both maps as square matrices, (width, width): a row vector x is mapped to x @ matrix."""

    query: Floats
    memory: Floats

    @classmethod
    def identity(cls, width: int) -> Maps:
        """Return maps that change nothing."""
        return cls(np.eye(width, dtype=np.float32), np.eye(width, dtype=np.float32))

    def loss(self, pairs: Pairs, temperature: float) -> float:
        """Return the mean cross-entropy of the golds among their allowed negatives."""
        texts, _ = _mapped(pairs.texts, self.query)
        memories, _ = _mapped(pairs.memories, self.memory)
        everyone = np.arange(len(pairs))
        shares = _softmax(texts @ memories.T, pairs.golds, pairs.allowed(everyone), temperature)
        return float(-np.log(np.maximum(shares[everyone, pairs.golds], 1e-12)).mean())

    def mean_reciprocal_rank(self, pairs: Pairs) -> float:
        """Return the mean of 1 / rank of the golds among their allowed negatives."""
        texts, _ = _mapped(pairs.texts, self.query)
        memories, _ = _mapped(pairs.memories, self.memory)
        everyone = np.arange(len(pairs))
        cosines = texts @ memories.T
        above = cosines > cosines[everyone, pairs.golds][:, None]
        ranks = 1 + (above & pairs.allowed(everyone)).sum(axis=1)
        return float((1 / ranks).mean())


def fit_maps(
    pairs: Pairs,
    recipe: AdapterRecipe,
    seed: int,
    after_step: Callable[[int, Maps], bool] = lambda step, maps: True,
) -> Maps:
    """Train both maps on all pairs. One seed gives one result on one machine.

    `after_step(step, maps)` is called after each step, from 1; False ends the training. Raises
    UserError if the loss grows beyond all bounds.
    """
    rng = np.random.default_rng(seed)
    width = pairs.texts.shape[1]
    identity = np.eye(width, dtype=np.float32)
    maps = Maps.identity(width)
    speed = [np.zeros_like(identity), np.zeros_like(identity)]
    rate, momentum = np.float32(recipe.rate), np.float32(recipe.momentum)
    for step in range(1, recipe.steps + 1):
        numbers = np.sort(rng.permutation(len(pairs))[: recipe.batch])
        columns = _drawn_memories(rng, pairs, numbers, recipe.bank)
        with np.errstate(over="ignore", invalid="ignore"):  # reported below
            slopes = _slopes(pairs, numbers, columns, maps, recipe.temperature)
            found = []
            for i, (matrix, slope) in enumerate(
                zip((maps.query, maps.memory), slopes, strict=True)
            ):
                slope += np.float32(2 * recipe.pull) * (matrix - identity)
                speed[i] = momentum * speed[i] + slope
                found.append(matrix - rate * speed[i])
        maps = Maps(*found)
        if not (np.isfinite(maps.query).all() and np.isfinite(maps.memory).all()):
            raise UserError(f"--rate {recipe.rate}: the maps are not finite after step {step}")
        if not after_step(step, maps):
            break
    return maps


def _drawn_memories(rng: np.random.Generator, pairs: Pairs, numbers: Ints, most: int) -> Ints:
    """The positions of the memories of a step, ascending: the golds and others drawn at random."""
    count = len(pairs.memories)
    if count <= most:
        return np.arange(count)
    return np.union1d(pairs.golds[numbers], rng.permutation(count)[:most])


def _mapped(vectors: Floats, matrix: Floats) -> tuple[Floats, Floats]:
    """Unit vectors after a map, and their lengths before they were scaled, (n, 1)."""
    found = vectors @ matrix
    lengths = np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.float32(1e-9))
    return found / lengths, lengths


def _softmax(cosines: Floats, golds: Ints, allowed: Mask, temperature: float) -> Floats:
    """The share of each memory, (n, m): 0 for one that is neither the gold nor allowed."""
    rows = np.arange(len(cosines))
    logits = cosines / np.float32(temperature)
    barred = ~allowed
    barred[rows, golds] = False
    logits[barred] = _BARRED
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True), np.float32)


def _slopes(
    pairs: Pairs, numbers: Ints, columns: Ints, maps: Maps, temperature: float
) -> tuple[Floats, Floats]:
    """The gradients of the mean cross-entropy by both matrices."""
    inputs, memories = pairs.texts[numbers], pairs.memories[columns]
    texts, text_lengths = _mapped(inputs, maps.query)
    bank, bank_lengths = _mapped(memories, maps.memory)
    golds = np.searchsorted(columns, pairs.golds[numbers])
    allowed = pairs.allowed(numbers)[:, columns]
    slope = _softmax(texts @ bank.T, golds, allowed, temperature)
    slope[np.arange(len(numbers)), golds] -= 1
    slope /= np.float32(len(numbers) * temperature)
    by_texts, by_bank = slope @ bank, slope.T @ texts
    return (
        inputs.T @ (_without_radial(by_texts, texts) / text_lengths),
        memories.T @ (_without_radial(by_bank, bank) / bank_lengths),
    )


def _without_radial(slope: Floats, unit: Floats) -> Floats:
    """The part of a gradient that is orthogonal to the unit vectors: the rest is scaled away."""
    return np.asarray(slope - (slope * unit).sum(axis=1, keepdims=True) * unit, np.float32)


def best_steps(
    pairs: Pairs, held_out: Pairs, recipe: AdapterRecipe, seed: int, patience: int = 6
) -> tuple[int, list[float]]:
    """Return after how many steps the golds of `held_out` rank best, and the ranks after each step.

    They are mean reciprocal ranks; position 0 is that of the identity. The loss goes on falling
    after ranks have become worse. Training ends `patience` steps after the best.
    """
    ranks = [Maps.identity(pairs.texts.shape[1]).mean_reciprocal_rank(held_out)]

    def after_step(step: int, maps: Maps) -> bool:
        ranks.append(maps.mean_reciprocal_rank(held_out))
        return step - int(np.argmax(ranks)) < patience

    fit_maps(pairs, recipe, seed, after_step)
    return max(int(np.argmax(ranks)), 1), ranks


def mean_maps(pairs: Pairs, recipe: AdapterRecipe, seed: int) -> Maps:
    """Return the mean of `recipe.runs` trainings, whose seeds follow from `seed`."""
    found = [fit_maps(pairs, recipe, seed * 1000 + run) for run in range(recipe.runs)]
    return Maps(
        np.asarray(np.mean([maps.query for maps in found], axis=0), np.float32),
        np.asarray(np.mean([maps.memory for maps in found], axis=0), np.float32),
    )


def low_rank(matrix: Floats, rank: int) -> LinearMap:
    """Return the nearest map (Eckart and Young 1936) whose difference to the identity has `rank`.

    Both factors have the singular values' square root, so that float16 holds them equally well.
    """
    width = len(matrix)
    left, values, right = np.linalg.svd(matrix.astype(np.float64) - np.eye(width))
    kept = min(rank, width)
    root = np.sqrt(values[:kept])
    # The sign of a singular vector is arbitrary: its largest component is made positive.
    signs = np.sign(left[np.abs(left[:, :kept]).argmax(axis=0), np.arange(kept)])
    return LinearMap(left[:, :kept] * root * signs, (right[:kept].T * root * signs).T)
