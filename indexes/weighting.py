"""BM25's formulas, chosen by name.

`lucene`: Robertson et al. with idf ln(1 + (N - df + 0.5) / (df + 0.5)), never negative.
`okapi`, `plus`, `l`: as in rank-bm25 0.2.2 (Trotman et al. 2014, Lv & Zhai 2011), its floor for
negative idf included, so that equal tokens give equal scores.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Variant = Literal["lucene", "okapi", "plus", "l"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
DELTA: dict[Variant, float] = {"lucene": 0.0, "okapi": 0.0, "plus": 1.0, "l": 0.5}


def inverse_document_frequency(
    variant: Variant, n: int, df: Floats, epsilon: float = 0.25
) -> Floats:
    """Idf of terms that stand in `df` of `n` documents, shape of `df`; all df must be above 0.

    For `okapi`, `df` must cover every term of the collection: negative values are lifted to
    `epsilon` times the mean over all of them.
    """
    idf: Floats
    if variant == "lucene":
        idf = np.log1p((n - df + 0.5) / (df + 0.5))
    elif variant == "plus":
        idf = np.log((n + 1) / df)
    elif variant == "l":
        idf = np.log((n + 1) / (df + 0.5))
    else:
        idf = np.log((n - df + 0.5) / (df + 0.5))
        idf = np.where(idf < 0, epsilon * math.fsum(idf) / max(len(idf), 1), idf)
    return idf


def saturation(variant: Variant, tf: Floats, norm: Floats, k1: float, delta: float) -> Floats:
    """What a term counts, before idf, in a document that holds it `tf` times.

    `norm` is 1 - b + b * length / mean length of the document. rank-bm25 0.2.2 multiplies its `l`
    by tf once more than Lv & Zhai do; the two agree at tf = 1.
    """
    if variant == "l":
        ctd = tf / norm
        return tf * (k1 + 1) * (ctd + delta) / (k1 + ctd + delta)
    gain = tf * (k1 + 1) / (tf + k1 * norm)
    return gain + delta if variant == "plus" else gain
