"""Which memories may count as wrong for a text, and which of those are the hardest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from training.examples import TrainingExample
from training.folds import text_key

PARAPHRASE = 0.80
"""The cosine of the base encoder above which a memory may say the same as the gold."""

Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]


class Negatives:
    """The allowed negatives of examples among `memories`, which hold every gold.

    Never the gold, a memory that equals it when normalised, a memory of the example's own session,
    or the gold of another example with the same text. With `vectors`, unit vectors of `memories`
    (len(memories), width), nor one whose cosine with the gold is above `paraphrase`.
    """

    def __init__(
        self,
        examples: Sequence[TrainingExample],
        memories: Sequence[str],
        own: Mapping[str, frozenset[str]],
        vectors: Floats | None = None,
        paraphrase: float = PARAPHRASE,
    ) -> None:
        place = {text: i for i, text in enumerate(memories)}
        equal: dict[str, list[int]] = {}
        for i, text in enumerate(memories):
            equal.setdefault(text_key(text), []).append(i)
        right: dict[str, set[str]] = {}
        for one in examples:
            right.setdefault(text_key(one.query), set()).add(one.memory)
        self.golds = np.array([place[one.memory] for one in examples], np.int64)
        """The position of each example's gold, (len(examples),)."""
        self._barred = [
            sorted(
                {
                    number
                    for text in (*right[text_key(one.query)], *own.get(one.session, ()))
                    for number in equal.get(text_key(text), ())
                }
            )
            for one in examples
        ]
        self._count, self._vectors, self._paraphrase = len(memories), vectors, paraphrase

    def allowed(self, numbers: Sequence[int] | NDArray[np.int64]) -> Mask:
        """Return the mask of the examples of these numbers, (len(numbers), len(memories))."""
        mask = np.ones((len(numbers), self._count), np.bool_)
        if self._vectors is not None:
            golds = self._vectors[self.golds[np.asarray(numbers, np.int64)]]
            mask &= golds @ self._vectors.T <= self._paraphrase
        for row, number in zip(mask, numbers, strict=True):
            row[self._barred[number]] = False
            row[self.golds[number]] = False
        return mask


def allowed_negatives(
    examples: Sequence[TrainingExample],
    memories: Sequence[str],
    own: Mapping[str, frozenset[str]],
    vectors: Floats | None = None,
    paraphrase: float = PARAPHRASE,
) -> Mask:
    """Return the mask of all examples, (len(examples), len(memories)): see `Negatives`."""
    found = Negatives(examples, memories, own, vectors, paraphrase)
    return found.allowed(range(len(examples)))


def hard_negatives(scores: Floats, mask: Mask, count: int, skip: int = 0) -> NDArray[np.int64]:
    """Return the `count` best-scored allowed memories of each example, (len(scores), count).

    `scores` and `mask` are (examples, memories). The first `skip` are left out: the best of all are
    often right without being labelled so. Ties go to the first position; a row with fewer allowed
    memories repeats its last one; -1 means that there is none.
    """
    order = np.argsort(np.where(mask, -scores, np.inf), axis=1, kind="stable")
    found = np.full((len(scores), count), -1, np.int64)
    for row, best, allowed in zip(found, order, mask.sum(axis=1), strict=True):
        chosen = best[: int(allowed)][skip : skip + count]
        if len(chosen):
            row[:] = chosen[-1]
            row[: len(chosen)] = chosen
    return found
