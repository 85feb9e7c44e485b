"""Agreement on labels without an order, with missing ratings, and on sets of pairs.

Sources: Cohen (1960); Gwet's kappa for missing ratings as in De Raadt, Warrens, Bosker and Kiers,
Kappa coefficients for missing data (2019); Krippendorff, Content analysis (2004), chapter 11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.statistics import Bootstrap
from judges.summary import Floats, krippendorff_alpha, margin_kappa, pair_f1
from judges.verdict_file import Label, VerdictFile

ONE_LABEL = "all ratings are one and the same label"
NO_PAIRS = "neither rater accepts a pair"
NONE_SHARED = "no item has two ratings"


def measured_value(value: float, resamples: Floats, undefined: str) -> dict[str, Any]:
    """Return a measure with its percentile interval over the resamples in which it is defined."""
    if np.isnan(value):
        return {"value": None, "low": None, "high": None, "reason": undefined}
    kept = resamples[~np.isnan(resamples)]
    found: dict[str, Any] = {"value": value, "low": None, "high": None, "method": "bootstrap"}
    if len(kept) == 0 or np.ptp(kept) < 1e-12:
        return {**found, "reason": "every resample gives the same value"}
    found["low"], found["high"] = (float(p) for p in np.percentile(kept, [2.5, 97.5]))
    if len(kept) < len(resamples):
        found["undefined_resamples"] = len(resamples) - len(kept)
    return found


def measure_sums(
    counts: Floats,
    clusters: Sequence[str],
    measure: Callable[[Floats], Floats],
    undefined: str,
    seed: int = 0,
) -> dict[str, Any]:
    """Return a measure of sums over items, with its interval over clusters.

    `counts` has a row per item; `measure` takes sums of rows, (..., columns), to (...,).
    """
    bootstrap = Bootstrap(clusters, seed)
    by_cluster = np.zeros((bootstrap.n, counts.shape[1]))
    np.add.at(by_cluster, bootstrap.of_row, counts)
    value = float(measure(by_cluster.sum(0)[None])[0])
    return measured_value(value, measure(bootstrap.sums(by_cluster)), undefined)


def compare_nominal(
    a: VerdictFile, b: VerdictFile, shared: Sequence[str], seed: int = 0
) -> dict[str, Any]:
    """Return levels and measures; `shared` are the items that both judged, never empty.

    An item without a row is missing like one without a verdict.
    """
    items = sorted({*a.labels, *b.labels})
    both = [(a.labels.get(item), b.labels.get(item)) for item in items]
    clusters = [a.clusters.get(item, item) for item in items]
    return {
        "levels": sorted({str(one) for pair in both for one in pair if one is not None}),
        "measures": nominal_measures(both, clusters, seed),
    }


def nominal_measures(
    ratings: Sequence[tuple[Label | None, Label | None]], clusters: Sequence[str], seed: int = 0
) -> dict[str, Any]:
    """Return `kappa`, `kappa_missing` and `alpha` of two raters; None is a missing rating.

    Kappa leaves out items with a missing rating, as De Raadt et al. (2019) recommend.
    `kappa_missing` takes the raters' margins from all items that each rated.
    """
    shared = [i for i, (one, other) in enumerate(ratings) if one is not None and other is not None]
    if not shared:
        names = ("kappa", "kappa_missing", "alpha")
        return {name: measured_value(np.nan, np.empty(0), NONE_SHARED) for name in names}
    first, second = (_one_hot([pair[i] for pair in ratings], ratings) for i in (0, 1))
    levels = first.shape[1]
    has = np.zeros((len(ratings), 1))
    has[shared] = 1
    agreed = (first * second).sum(1, keepdims=True)
    counts = np.hstack([agreed, has, first, second])

    def measure(sums: Floats) -> Floats:
        n = np.where(sums[..., 1] > 0, sums[..., 1], np.nan)
        margins = sums[..., 2 : 2 + levels], sums[..., 2 + levels :]
        return margin_kappa(sums[..., 0] / n, *margins)

    part = [clusters[i] for i in shared]
    return {
        "kappa": measure_sums(counts[shared], part, measure, ONE_LABEL, seed),
        "kappa_missing": measure_sums(counts, clusters, measure, ONE_LABEL, seed),
        "alpha": alpha_of(ratings, clusters, seed),
    }


def alpha_of(
    ratings: Sequence[Sequence[Label | None]], clusters: Sequence[str], seed: int = 0
) -> dict[str, Any]:
    """Return Krippendorff's nominal alpha of any number of raters; items with two ratings count."""
    values = sum(
        (_one_hot([row[i] for row in ratings], ratings) for i in range(len(ratings[0]))),
        np.zeros(1),
    )
    number = values.sum(1)
    kept = np.flatnonzero(number > 1)
    if not len(kept):
        return measured_value(np.nan, np.empty(0), NONE_SHARED)
    values, number = values[kept], number[kept]
    disagreed = (values * (number[:, None] - values)).sum(1) / (number - 1)
    counts = np.column_stack([disagreed, values])
    part = [clusters[i] for i in kept.tolist()]
    return measure_sums(
        counts, part, lambda sums: krippendorff_alpha(sums[..., 0], sums[..., 1:]), ONE_LABEL, seed
    )


def _one_hot(column: Sequence[Label | None], ratings: Sequence[Sequence[Label | None]]) -> Floats:
    """The labels of one rater as rows of zeros and a one, (items, levels); zeros if missing."""
    levels: Mapping[Any, int] = {
        label: i
        for i, label in enumerate(
            dict.fromkeys(one for row in ratings for one in row if one is not None)
        )
    }
    found = np.zeros((len(column), len(levels)))
    for row, label in enumerate(column):
        if label is not None:
            found[row, levels[label]] = 1
    return found


def compare_pairs(
    a: VerdictFile, b: VerdictFile, shared: Sequence[str], seed: int = 0
) -> dict[str, Any]:
    """Return the counts of accepted pairs over the `shared` items, and the F1 of the pairs."""
    sets = [(_pairs(a, item), _pairs(b, item)) for item in shared]
    counts = np.array([(len(x & y), len(x), len(y)) for x, y in sets], float)
    clusters = [a.clusters.get(item, item) for item in shared]
    f1 = measure_sums(
        counts, clusters, lambda n: pair_f1(n[..., 0], n[..., 1], n[..., 2]), NO_PAIRS, seed
    )
    both, first, second = (int(n) for n in counts.sum(0))
    return {
        "pairs": {"in_both": both, "a": first, "b": second},
        "measures": {"pair_f1": f1},
    }


def _pairs(file: VerdictFile, item: str) -> frozenset[tuple[str, str]]:
    label = file.labels[item]
    assert isinstance(label, frozenset)
    return label
