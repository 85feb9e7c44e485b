"""Two retrievers on the same pools, query by query: `python -m analysis.compare RUN:A RUN:B`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from analysis.runs import Run

app = typer.Typer(add_completion=False)


def parse_side(word: str) -> tuple[Run, str]:
    """`RUN:LABEL`, or `RUN` alone where the run has one retriever."""
    from analysis.runs import read_run
    from harness.errors import UserError

    path, colon, label = word.rpartition(":")
    if not colon:
        path, label = word, ""
    run = read_run(Path(path))
    if not label and len(run.labels) == 1:
        label = run.labels[0]
    if label not in run.labels:
        raise UserError(f"{word}: name a retriever, as in {path}:{run.labels[0]}")
    return run, label


def recalls(run: Run, label: str, distractors: int, k: int) -> dict[str, tuple[list[str], float]]:
    """For each query the pools it was scored on and its recall@k, averaged over pool seeds.

    A query with a failed row is left out.
    """
    from analysis.golds import recall, ties_of

    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in run.rows:
        if row["retriever"] == label and row["distractors"] == distractors:
            found.setdefault(row["query"], []).append(row)
    return {
        query: (
            [row["pool"] for row in rows],
            sum(recall(k, ties_of(row)) for row in rows) / len(rows),
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


def queries_in_script(root: Path, split: str, script: str) -> set[str]:
    """The queries in which query or gold memory holds a letter of a script, such as `Han`."""
    import regex

    from corpus.dataset import load_dataset
    from harness.errors import UserError

    try:
        letter = regex.compile(rf"\p{{Script={script}}}")
    except regex.error:
        raise UserError(f"--script {script}: not a Unicode script, such as Han or Latin") from None
    rows = load_dataset(root, split).smallest.rows
    return {
        row.benchmark_id
        for row in rows
        if letter.search(row.query) or any(letter.search(m.text) for m in row.gold_memories)
    }


def compare(
    a: tuple[Run, str], b: tuple[Run, str], ks: Sequence[int], only: set[str] | None, without: bool
) -> list[dict[str, Any]]:
    """A paired comparison for each size that both runs have, and each k.

    Raises UserError where the two were not scored on the same pools, or nothing is left.
    """
    from analysis.statistics import paired
    from harness.errors import UserError

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
            left_out = len(set(one) ^ set(two))
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
        Path | None, typer.Option(help="With --script: the data. Default: the embedded sample.")
    ] = None,
    split: Annotated[str, typer.Option(help="With --script: its split.")] = "dev",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two retrievers on the same pools.

    Prints the paired difference a - b of recall with its 95 % bootstrap interval over sessions,
    wins, losses and the p of an exact sign test, or of a sign-flip test where ties give fractions.
    """
    from corpus.errors import DataError
    from corpus.layout import sample_root
    from harness.cli import one_line_errors
    from harness.configurations import parse_numbers
    from harness.errors import UserError
    from harness.fingerprint import canonical
    from harness.terminal import note, say, say_json

    with one_line_errors(DataError):
        if script and not_script:
            raise UserError("--script and --not-script exclude each other")
        chosen = script or not_script
        only = queries_in_script(data or sample_root(), split, chosen) if chosen else None
        sides = parse_side(a), parse_side(b)
        results = compare(*sides, parse_numbers("--k", k), only, bool(not_script))
        if as_json:
            say_json(canonical(results))
            return
        head = f"{'distractors':>11} {'k':>3} {'n':>5} {'a':>7} {'b':>7} {'a - b':>8}"
        say(f"{head}  95 % interval      wins losses      p  verdict")
        for r in results:
            say(
                f"{r['distractors']:>11} {r['k']:>3} {r['n']:>5} {r['a']:7.4f} {r['b']:7.4f}"
                f" {r['difference']:+8.4f}  [{r['low']:+.4f}, {r['high']:+.4f}] {r['wins']:>5}"
                f" {r['losses']:>6} {r['p']:6.3f}  {r['verdict']}"
            )
        if any(r["unpaired"] for r in results):
            note(f"left out, failed on one side: {results[0]['unpaired']} queries")


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
