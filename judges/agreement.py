"""`python -m judges.agreement A.jsonl B.jsonl`: agreement of raters of the same items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judges.verdict_file import Kind
from recallbed.harness.app import App
from recallbed.harness.options import AsJson, Seed

if TYPE_CHECKING:
    from analysis.statistics import Bootstrap
    from judges.summary import Floats
    from judges.verdict_file import VerdictFile

app = App()
MOST_LEVELS = 20
ONE_LEVEL = "both raters give only one and the same level"
UNDEFINED = {
    "kappa": ONE_LEVEL,
    "quadratic_kappa": ONE_LEVEL,
    "spearman": "a rater gives only one level",
    "f1": "neither rater ever gives the positive class",
}


def compare_raters(a: VerdictFile, b: VerdictFile, kind: Kind, seed: int = 0) -> dict[str, Any]:
    """Return what --json prints. Items that both judged are compared, all others counted.

    Intervals are of 95 % and draw whole clusters if A names them, else items. Raise UserError if no
    item is judged in both, or if an item's cluster differs.
    """
    import numpy as np

    from analysis.statistics import RESAMPLES, Bootstrap
    from judges.nominal import compare_nominal, compare_pairs
    from recallbed.errors import UserError

    both = sorted(a.items & b.items)
    shared = [item for item in both if item in a.labels and item in b.labels]
    if not shared:
        raise UserError(
            f"{a.path} and {b.path}: no item is judged in both ({len(both)} have a row in both)."
            " Name with --key the field that identifies the item of a row"
        )
    bootstrap = Bootstrap([a.clusters.get(item, item) for item in shared], seed)
    equal = np.array([a.labels[item] == b.labels[item] for item in shared], float)
    interval = bootstrap.interval(equal)
    if kind == "nominal":
        more = compare_nominal(a, b, shared, seed)
    elif kind == "pairs":
        more = compare_pairs(a, b, shared, seed)
    else:
        more = _compare_numbers(a, b, kind, shared, bootstrap)
    agreement = {
        "value": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "method": interval.method,
    }
    return {
        "kind": kind,
        "a": side(a, b),
        "b": side(b, a),
        "in_both": len(both),
        "n": len(shared),
        "coverage": len(shared) / len(both),
        "clusters": bootstrap.n,
        "seed": seed,
        "resamples": RESAMPLES,
        **more,
        "measures": {"agreement": agreement, **more["measures"]},
    }


def _compare_numbers(
    a: VerdictFile, b: VerdictFile, kind: Kind, shared: Sequence[str], bootstrap: Bootstrap
) -> dict[str, Any]:
    """Levels, confusion and measures of binary verdicts and grades."""
    import numpy as np

    from judges.nominal import measured_value
    from judges.summary import cohen_kappa, f1, quadratic_kappa, spearman
    from recallbed.errors import UserError

    first, second = (np.array([f.labels[item] for item in shared], int) for f in (a, b))
    levels = [0, 1] if kind == "binary" else sorted({*first.tolist(), *second.tolist()})
    if len(levels) > MOST_LEVELS:
        raise UserError(f"{len(levels)} different grades; at most {MOST_LEVELS} can be compared")
    cells = np.searchsorted(levels, first) * len(levels) + np.searchsorted(levels, second)
    # The table of a resample is the sum of its clusters' tables.
    by_cluster = np.zeros((bootstrap.n, len(levels) ** 2))
    np.add.at(by_cluster, (bootstrap.of_row, cells), 1)
    shape = (-1, len(levels), len(levels))
    table = by_cluster.sum(0).reshape(shape)
    drawn = bootstrap.sums(by_cluster).reshape(shape)

    measures: dict[str, Callable[[Floats], Floats]] = {"kappa": cohen_kappa}
    if kind == "binary":
        measures["f1"] = lambda counts: f1(counts, 1)
    else:
        measures["quadratic_kappa"] = lambda counts: quadratic_kappa(counts, levels)
        measures["spearman"] = spearman
    return {
        "levels": [bool(level) for level in levels] if kind == "binary" else levels,
        "positive": True if kind == "binary" else None,
        "confusion": table[0].astype(int).tolist(),
        "measures": {
            name: measured_value(float(measure(table)[0]), measure(drawn), UNDEFINED[name])
            for name, measure in measures.items()
        },
    }


def side(here: VerdictFile, *others: VerdictFile) -> dict[str, Any]:
    """Return the counts of one file, next to the others."""
    elsewhere = set().union(*(other.items for other in others))
    return {
        "file": str(here.path),
        "rows": len(here.items),
        "judged": len(here.labels),
        "unjudged": here.causes(),
        "unreadable": [{"line": line, "value": value} for line, value in here.unreadable],
        "only_here": len(here.items - elsewhere),
    }


def describe_agreement(result: Mapping[str, Any]) -> Iterator[str]:
    """Return the result as lines of text."""
    for name in ("a", "b"):
        yield from describe_side(name.upper(), result[name])
    yield (
        f"n = {result['n']} judged in both, of {result['in_both']} with a row in both"
        f" (coverage {result['coverage']:.4g}); {result['clusters']} clusters"
    )
    yield from describe_measures(result["measures"])
    if "confusion" not in result:
        return
    levels = [str(level).lower() for level in result["levels"]]
    width = max(map(len, [*levels, *(str(n) for row in result["confusion"] for n in row)]))
    yield "confusion, A down, B across"
    yield " " * (width + 2) + " ".join(f"{level:>{width}}" for level in levels)
    for level, row in zip(levels, result["confusion"], strict=True):
        yield f"  {level:>{width}}" + "".join(f" {n:>{width}}" for n in row)


def describe_side(name: str, side: Mapping[str, Any]) -> Iterator[str]:
    """Return lines on one file."""
    line = f"{name} {side['file']}: {side['judged']} of {side['rows']} judged"
    if side["unjudged"]:
        line += "; unjudged: " + ", ".join(f"{c} {n}" for c, n in side["unjudged"].items())
    yield line + f"; {side['only_here']} only here"
    for one in side["unreadable"]:
        yield f"  line {one['line']}: not a verdict: {one['value']}"


def describe_measures(measures: Mapping[str, Any]) -> Iterator[str]:
    """Return a line for each measure."""
    for name, found in measures.items():
        title = NAMES.get(name, name)
        if found["value"] is None:
            yield f"{title}: not defined ({found['reason']})"
        elif found["low"] is None:
            yield f"{title}: {found['value']:.4f} (no interval: {found['reason']})"
        else:
            line = f"{title}: {found['value']:.4f} [{found['low']:.4f}, {found['high']:.4f}]"
            missing = found.get("undefined_resamples")
            yield line + (f" ({missing} resamples undefined)" if missing else "")


NAMES = {
    "agreement": "raw agreement",
    "kappa": "Cohen's kappa",
    "f1": "F1 of true",
    "quadratic_kappa": "quadratic kappa",
    "spearman": "Spearman",
    "kappa_missing": "kappa with missing ratings (Gwet)",
    "alpha": "Krippendorff's alpha",
    "pair_f1": "F1 of pairs",
}


@app.command(
    examples=(
        "recallbed agreement people.jsonl judge.jsonl --key id",
        "recallbed agreement judge.jsonl first.jsonl second.jsonl --scale nominal",
    )
)
def agreement(
    a: Annotated[Path, typer.Argument(help="Verdicts of one rater, a JSON object per line.")],
    b: Annotated[Path, typer.Argument(help="Verdicts of another.")],
    c: Annotated[
        Path | None,
        typer.Argument(help="Verdicts of a third; A is then compared with B and C together."),
    ] = None,
    *,
    key: Annotated[
        tuple[str, ...],
        typer.Option(metavar="FIELD", help="Field that identifies the item. May be repeated."),
    ] = ("item",),
    field: Annotated[
        str,
        typer.Option(metavar="FIELD", help="Field with the verdict, such as result.verdict."),
    ] = "verdict",
    scale: Annotated[
        Kind,
        typer.Option(
            "--scale", "--kind", help="Yes or no, grades, labels of any text, or pairs of memories."
        ),
    ] = "binary",
    cluster: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Field of A whose equal values are drawn together."),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two or three sets of verdicts.

    Binary verdicts are true/false, 1/0, yes/no, correct/incorrect or pass/fail; grades are whole
    numbers; pairs are lists such as [["m1", "p2"]]. Anything else, and null, is unjudged: counted,
    never compared. With three files: how often A (a judge) agrees with both of B and C (people),
    with one, or with neither.
    """
    from judges.alignment import align_raters, describe_alignment
    from judges.verdict_file import read_verdicts
    from recallbed.harness.terminal import say_result

    first = read_verdicts(a, key, field, scale, cluster)
    second = read_verdicts(b, key, field, scale)
    if c is None:
        result = compare_raters(first, second, scale, seed)
        describe = describe_agreement
    else:
        result = align_raters(first, second, read_verdicts(c, key, field, scale), scale, seed)
        describe = describe_alignment
    say_result(result, describe(result), as_json)


if __name__ == "__main__":
    app()
