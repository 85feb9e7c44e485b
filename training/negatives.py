"""Which memories may count as wrong for a text, and which of those are the hardest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from training.examples import Example
from training.folds import same_text

PARAPHRASE = 0.80
"""The cosine of the base encoder above which a memory may say the same as the gold."""

Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]


def allowed_negatives(
    examples: Sequence[Example],
    memories: Sequence[str],
    own: Mapping[str, frozenset[str]],
    vectors: Floats | None = None,
    paraphrase: float = PARAPHRASE,
) -> Mask:
    """Return which memories may be negatives of which example, (len(examples), len(memories)).

    Never the gold, a memory that equals it when normalised, a memory of the example's own session,
    or the gold of another example with the same text. With `vectors`, unit vectors of `memories`
    (len(memories), width), nor one whose cosine with the gold is above `paraphrase`. Every gold
    must be among `memories`.
    """
    place: dict[str, int] = {}
    for i, text in enumerate(memories):
        place.setdefault(text, i)
    equal: dict[str, list[int]] = {}
    for i, text in enumerate(memories):
        equal.setdefault(same_text(text), []).append(i)
    right: dict[str, set[str]] = {}
    for one in examples:
        right.setdefault(same_text(one.query), set()).add(one.memory)
    mask = np.ones((len(examples), len(memories)), np.bool_)
    golds = np.array([place[one.memory] for one in examples], np.int64)
    if vectors is not None and len(examples):
        distinct, back = np.unique(golds, return_inverse=True)
        mask &= (vectors[distinct] @ vectors.T <= paraphrase)[back]
    for row, one in zip(mask, examples, strict=True):
        for text in {*right[same_text(one.query)], *own.get(one.session, ()), one.memory}:
            row[equal.get(same_text(text), [])] = False
    return mask


def hard_negatives(scores: Floats, mask: Mask, count: int, skip: int = 0) -> NDArray[np.int64]:
    """Return the `count` best-scored allowed memories of each example, (len(scores), count).

    `scores` and `mask` are (examples, memories). The first `skip` are left out: the best of all are
    often right without being labelled so. Ties go to the first position; a row with fewer allowed
    memories repeats its last one, and -1 stands for none.
    """
    order = np.argsort(np.where(mask, -scores, np.inf), axis=1, kind="stable")
    found = np.full((len(scores), count), -1, np.int64)
    for row, best, allowed in zip(found, order, mask.sum(axis=1), strict=True):
        chosen = best[: int(allowed)][skip : skip + count]
        if len(chosen):
            row[:] = chosen[-1]
            row[: len(chosen)] = chosen
    return found
