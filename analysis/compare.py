"""Two retrievers on the same pools, query by query: `python -m analysis.compare RUN:A RUN:B`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recallbed.harness.app import App

if TYPE_CHECKING:
    from analysis.runs import Run
    from recallbed.harness.text_table import TextTable

app = App()


def parse_side(word: str) -> tuple[Run, str]:
    """`RUN:LABEL`, or `RUN` alone where the run has one retriever."""
    from analysis.runs import read_run
    from recallbed.errors import UserError

    path, colon, label = word.rpartition(":")
    if not colon:
        path, label = word, ""
    run = read_run(Path(path))
    if not label and len(run.labels) == 1:
        label = run.labels[0]
    if label not in run.labels:
        asked = f"no retriever `{label}` in this run" if label else "the run has several retrievers"
        raise UserError(
            f"{word}: {asked} (labels: {', '.join(run.labels)})."
            f" Name one, as in {path}:{run.labels[0]}"
        )
    return run, label


def recalls(run: Run, label: str, distractors: int, k: int) -> dict[str, tuple[list[str], float]]:
    """For each query the pools it was scored on and its recall@k, averaged over pool seeds.

    A query with a failed row is left out.
    """
    from analysis.metrics import Recall
    from analysis.rows import ties_of

    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in run.rows:
        if row["retriever"] == label and row["distractors"] == distractors:
            found.setdefault(row["query"], []).append(row)
    return {
        query: (
            [row["pool"] for row in rows],
            sum(Recall(k).value(ties_of(row)) for row in rows) / len(rows),
        )
        for query, rows in found.items()
        if all(row["error"] is None for row in rows)
    }


def asked(run: Run, label: str, distractors: int) -> set[str]:
    """The queries that a retriever was asked at a size, failed ones included."""
    return {
        row["query"]
        for row in run.rows
        if row["retriever"] == label and row["distractors"] == distractors
    }


def queries_in_script(run: Run, data: Path | None, split: str | None, script: str) -> set[str]:
    """The queries in which query or gold memory holds a letter of a script, such as `Han`.

    They are read from the data of the run. Raises UserError if that is not the embedded sample and
    `data` is None, or if what is there is not what the run was made on.
    """
    import regex

    from recallbed.corpus.dataset import load_dataset
    from recallbed.corpus.layout import sample_root
    from recallbed.errors import UserError

    try:
        letter = regex.compile(rf"\p{{Script={script}}}")
    except regex.error:
        raise UserError(f"--script {script}: not a Unicode script, such as Han or Latin") from None
    made_on = run.manifest["fingerprint"]["data"]
    if data is None and not made_on["sample"]:
        raise UserError(
            f"{run.path}: this run is not of the embedded sample. Name its data with --data"
        )
    root, split = data or sample_root(), split or made_on["split"]
    pools = run.manifest["fingerprint"]["pools"]
    released = pools["strategy"] == "released" and not made_on.get("own")
    found = load_dataset(root, split, tuple(pools["distractors"]) if released else ())
    if found.sha256 != made_on["sha256"]:
        raise UserError(
            f"{root}: split {split} is not the data that {run.path} was made on (another hash)."
            " Name that data with --data and --split"
        )
    return {
        row.benchmark_id
        for row in found.smallest.rows
        if letter.search(row.query) or any(letter.search(m.text) for m in row.gold_memories)
    }


def compare(
    a: tuple[Run, str], b: tuple[Run, str], ks: Sequence[int], only: set[str] | None, without: bool
) -> list[dict[str, Any]]:
    """A paired comparison for each size that both runs have, and each k.

    Raises UserError where the two were not scored on the same pools, or nothing is left.
    """
    from analysis.statistics import paired
    from recallbed.errors import UserError

    (run_a, label_a), (run_b, label_b) = a, b
    sizes = [{r["distractors"] for r in run.rows} for run in (run_a, run_b)]
    results = []
    for size in sorted(sizes[0] & sizes[1]):
        for k in ks:
            one, two = recalls(run_a, label_a, size, k), recalls(run_b, label_b, size, k)
            odd = asked(run_a, label_a, size) ^ asked(run_b, label_b, size)
            if odd:
                raise UserError(
                    f"not the same queries at {size} distractors: {len(odd)} are in one run only,"
                    f" such as `{min(odd)}`"
                )
            both = sorted(set(one) & set(two))
            for query in both:
                if one[query][0] != two[query][0]:
                    raise UserError(f"not the same pools: `{query}` at {size} distractors")
            kept = [q for q in both if only is None or (q in only) != without]
            if not kept:
                raise UserError(f"no query is left to compare at {size} distractors")
            clusters = {**run_a.manifest["sessions"]}
            seed = run_a.manifest["fingerprint"]["seed"]
            result = paired(
                {q: one[q][1] for q in kept}, {q: two[q][1] for q in kept}, clusters, seed
            )
            # Failed on either side, of those that --script and --not-script leave.
            failed = asked(run_a, label_a, size) - set(both)
            left_out = sum(only is None or (q in only) != without for q in failed)
            results.append({"distractors": size, "k": k, **asdict(result), "unpaired": left_out})
    if not results:
        raise UserError("the two runs have no pool size in common")
    return results


@app.command()
def main_command(
    a: Annotated[str, typer.Argument(metavar="RUN[:LABEL]", help="One side.")],
    b: Annotated[str, typer.Argument(metavar="RUN[:LABEL]", help="The other side.")],
    k: Annotated[str, typer.Option("--k", help="Recall at how many?")] = "1,5,10",
    script: Annotated[
        str | None,
        typer.Option(help="Only queries with a letter of this script in query or gold: Han, ..."),
    ] = None,
    not_script: Annotated[
        str | None, typer.Option("--not-script", help="Only queries without one.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="With --script: the data of the run, if it is not the embedded sample."),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="With --script: its split. Default: that of the run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two retrievers on the same pools.

    Prints the paired difference of recall with its 95 % bootstrap interval over sessions, wins,
    ties, losses and the p-value of an exact sign test, or of a sign-flip test if ties give
    fractions. Without two sessions, or if all differences are equal, there is no interval.
    """
    from recallbed.errors import DataError, UserError
    from recallbed.harness.app import one_line_errors
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.options import parse_numbers
    from recallbed.harness.terminal import note, say_json
    from recallbed.harness.text_table import print_tables

    with one_line_errors(DataError):
        if script and not_script:
            raise UserError("--script and --not-script exclude each other")
        chosen = script or not_script
        sides = parse_side(a), parse_side(b)
        only = queries_in_script(sides[0][0], data, split, chosen) if chosen else None
        results = compare(*sides, parse_numbers("--k", k), only, bool(not_script))
        if as_json:
            say_json(canonical(results))
            return
        print_tables([_table(sides, results)])
        left_out = {r["distractors"]: r["unpaired"] for r in results if r["unpaired"]}
        for size, count in left_out.items():
            note(f"{count} queries left out at {size} distractors: they failed on one side or both")
        reasons = {r["reason"]: r["distractors"] for r in results if r["reason"]}
        for reason in reasons:
            note(f"no interval and no verdict: {reason}")


def _table(sides: Sequence[tuple[Run, str]], results: Sequence[Mapping[str, Any]]) -> TextTable:
    from analysis.statistics import p_text
    from recallbed.harness.text_table import TextTable

    labels = [label for _, label in sides]
    names = labels if labels[0] != labels[1] else [f"{run.path}:{label}" for run, label in sides]
    if names[0] == names[1]:
        names = ["a", "b"]
    verdicts = {"a is better": f"{names[0]} is better", "b is better": f"{names[1]} is better"}
    table = TextTable(
        f"Recall@k of {names[0]} and {names[1]}, paired by query",
        [
            *("distractors", "k", "n", *names, "difference", "95 % interval"),
            *("wins", "ties", "losses", "p", "verdict"),
        ],
        keys=2,
        texts=("verdict",),
    )
    for r in results:
        interval = "-" if r["low"] is None else f"[{r['low']:+.4f}, {r['high']:+.4f}]"
        table.add(
            *(r["distractors"], r["k"], r["n"], f"{r['a']:.4f}", f"{r['b']:.4f}"),
            *(f"{r['difference']:+.4f}", interval, r["wins"], r["ties"], r["losses"]),
            *(p_text(r["p"]), verdicts.get(r["verdict"], r["verdict"] or "-")),
        )
    return table


if __name__ == "__main__":
    app()
