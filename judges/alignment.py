"""Alignment of a judge with two people: consistent with both, with one, or with neither.

AlpsBench's paper (arXiv 2603.26680, Figure 5) calls these fully, partially and not aligned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from analysis.statistics import RESAMPLES, Bootstrap
from judges.agreement import compare_raters, describe_measures, describe_side, side
from judges.nominal import alpha_of
from judges.verdict_file import Kind, VerdictFile
from recallbed.errors import UserError

LEVELS = ("fully", "partially", "not")


def align_raters(
    judge: VerdictFile, first: VerdictFile, second: VerdictFile, kind: Kind, seed: int = 0
) -> dict[str, Any]:
    """Return what --json prints: shares of the items that all three judged, with intervals.

    `raters` has the measures of each two files over the items that both judged, `alpha` is over the
    items that at least two judged. Raise UserError if no item is judged in all three.
    """
    files = {"a": judge, "b": first, "c": second}
    rows = sorted(judge.items & first.items & second.items)
    shared = [item for item in rows if all(item in file.labels for file in files.values())]
    if not shared:
        raise UserError(
            f"no item is judged in all of {judge.path}, {first.path} and {second.path}"
            f" ({len(rows)} have a row in all three)"
        )
    same = np.array(
        [
            sum(judge.labels[item] == person.labels[item] for person in (first, second))
            for item in shared
        ]
    )
    bootstrap = Bootstrap([judge.clusters.get(item, item) for item in shared], seed)
    alignment = {}
    for name, times in zip(LEVELS, (2, 1, 0), strict=True):
        found = bootstrap.interval((same == times).astype(float))
        alignment[name] = {
            "count": int((same == times).sum()),
            "value": found.mean,
            "low": found.low,
            "high": found.high,
            "method": found.method,
        }
    everywhere = sorted(set().union(*(file.labels for file in files.values())))
    ratings = [[file.labels.get(item) for file in files.values()] for item in everywhere]
    clusters = [judge.clusters.get(item, item) for item in everywhere]
    return {
        "kind": kind,
        **{
            name: side(file, *(other for other in files.values() if other is not file))
            for name, file in files.items()
        },
        "in_all": len(rows),
        "n": len(shared),
        "coverage": len(shared) / len(rows),
        "clusters": bootstrap.n,
        "seed": seed,
        "resamples": RESAMPLES,
        "alignment": alignment,
        "alpha": alpha_of(ratings, clusters, seed),
        "raters": {
            name: compare_raters(files[name[0]], files[name[-1]], kind, seed)["measures"]
            for name in ("a_b", "a_c", "b_c")
        },
    }


def describe_alignment(result: Mapping[str, Any]) -> Iterator[str]:
    """Return the result as lines of text."""
    for name in ("a", "b", "c"):
        yield from describe_side(name.upper(), result[name])
    yield (
        f"n = {result['n']} judged in all three, of {result['in_all']} with a row in all"
        f" (coverage {result['coverage']:.4g}); {result['clusters']} clusters"
    )
    for name, found in result["alignment"].items():
        yield (
            f"{name} aligned: {found['value']:.4f} [{found['low']:.4f}, {found['high']:.4f}],"
            f" {found['count']} of {result['n']}"
        )
    yield from describe_measures({"alpha": result["alpha"]})
    for name, measures in result["raters"].items():
        yield f"{name[0].upper()} and {name[-1].upper()}"
        yield from (f"  {line}" for line in describe_measures(measures))
