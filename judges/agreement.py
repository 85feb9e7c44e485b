"""`python -m judges.agreement A.jsonl B.jsonl`: agreement of two raters of the same items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judges.verdict_file import Kind
from recallbed.harness.app import App
from recallbed.harness.options import AsJson, Seed

if TYPE_CHECKING:
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
    from judges.summary import cohen_kappa, f1, quadratic_kappa, spearman
    from recallbed.errors import UserError

    both = sorted(a.items & b.items)
    shared = [item for item in both if item in a.labels and item in b.labels]
    if not shared:
        raise UserError(
            f"{a.path} and {b.path}: no item is judged in both ({len(both)} have a row in both)."
            " Name with --key the field that identifies the item of a row"
        )
    first, second = (np.array([f.labels[item] for item in shared]) for f in (a, b))
    levels = [0, 1] if kind == "binary" else sorted({*first.tolist(), *second.tolist()})
    if len(levels) > MOST_LEVELS:
        raise UserError(f"{len(levels)} different grades; at most {MOST_LEVELS} can be compared")
    cells = np.searchsorted(levels, first) * len(levels) + np.searchsorted(levels, second)
    clusters = [a.clusters.get(item, item) for item in shared]
    bootstrap = Bootstrap(clusters, seed)
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
    interval = bootstrap.interval((first == second).astype(float))
    found: dict[str, Any] = {
        "agreement": {
            "value": interval.mean,
            "low": interval.low,
            "high": interval.high,
            "method": interval.method,
        }
    }
    for name, measure in measures.items():
        found[name] = _with_interval(float(measure(table)[0]), measure(drawn), UNDEFINED[name])
    return {
        "kind": kind,
        "a": _side(a, b),
        "b": _side(b, a),
        "in_both": len(both),
        "n": len(shared),
        "coverage": len(shared) / len(both),
        "clusters": bootstrap.n,
        "seed": seed,
        "resamples": RESAMPLES,
        "levels": [bool(level) for level in levels] if kind == "binary" else levels,
        "positive": True if kind == "binary" else None,
        "confusion": table[0].astype(int).tolist(),
        "measures": found,
    }


def _side(here: VerdictFile, there: VerdictFile) -> dict[str, Any]:
    return {
        "file": str(here.path),
        "rows": len(here.items),
        "judged": len(here.labels),
        "unjudged": here.causes(),
        "unreadable": [{"line": line, "value": value} for line, value in here.unreadable],
        "only_here": len(here.items - there.items),
    }


def _with_interval(value: float, resamples: Floats, undefined: str) -> dict[str, Any]:
    """Return a measure with its percentile interval over the resamples in which it is defined."""
    import numpy as np

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


def describe_agreement(result: Mapping[str, Any]) -> Iterator[str]:
    """Return the result as lines of text."""
    for name in ("a", "b"):
        side = result[name]
        line = f"{name.upper()} {side['file']}: {side['judged']} of {side['rows']} judged"
        if side["unjudged"]:
            line += "; unjudged: " + ", ".join(f"{c} {n}" for c, n in side["unjudged"].items())
        yield line + f"; {side['only_here']} only here"
        for one in side["unreadable"]:
            yield f"  line {one['line']}: not a verdict: {one['value']}"
    yield (
        f"n = {result['n']} judged in both, of {result['in_both']} with a row in both"
        f" (coverage {result['coverage']:.4g}); {result['clusters']} clusters"
    )
    for name, found in result["measures"].items():
        title = NAMES[name]
        if found["value"] is None:
            yield f"{title}: not defined ({found['reason']})"
        elif found["low"] is None:
            yield f"{title}: {found['value']:.4f} (no interval: {found['reason']})"
        else:
            line = f"{title}: {found['value']:.4f} [{found['low']:.4f}, {found['high']:.4f}]"
            missing = found.get("undefined_resamples")
            yield line + (f" ({missing} resamples undefined)" if missing else "")
    levels = [str(level).lower() for level in result["levels"]]
    width = max(map(len, [*levels, *(str(n) for row in result["confusion"] for n in row)]))
    yield "confusion, A down, B across"
    yield " " * (width + 2) + " ".join(f"{level:>{width}}" for level in levels)
    for level, row in zip(levels, result["confusion"], strict=True):
        yield f"  {level:>{width}}" + "".join(f" {n:>{width}}" for n in row)


NAMES = {
    "agreement": "raw agreement",
    "kappa": "Cohen's kappa",
    "f1": "F1 of true",
    "quadratic_kappa": "quadratic kappa",
    "spearman": "Spearman",
}


@app.command(
    examples=(
        "recallbed agreement people.jsonl judge.jsonl --key id",
        "recallbed agreement a.jsonl b.jsonl --scale grade --field result.grade",
    )
)
def agreement(
    a: Annotated[Path, typer.Argument(help="Verdicts of one rater, a JSON object per line.")],
    b: Annotated[Path, typer.Argument(help="Verdicts of the other.")],
    key: Annotated[
        tuple[str, ...],
        typer.Option(metavar="FIELD", help="Field that identifies the item. May be repeated."),
    ] = ("item",),
    field: Annotated[
        str,
        typer.Option(metavar="FIELD", help="Field with the verdict, such as result.verdict."),
    ] = "verdict",
    scale: Annotated[
        Kind, typer.Option("--scale", "--kind", help="Whether verdicts are yes or no, or grades.")
    ] = "binary",
    cluster: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Field of A whose equal values are drawn together."),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare two sets of verdicts.

    Binary verdicts are true/false, 1/0, yes/no, correct/incorrect or pass/fail; grades are whole
    numbers. Anything else, and null, is unjudged: counted, never compared.
    """
    from judges.verdict_file import read_verdicts
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.terminal import say, say_json

    first = read_verdicts(a, key, field, scale, cluster)
    second = read_verdicts(b, key, field, scale)
    result = compare_raters(first, second, scale, seed)
    if as_json:
        say_json(canonical(result))
    else:
        say(*describe_agreement(result))


if __name__ == "__main__":
    app()
