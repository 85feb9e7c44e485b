"""Retrievers on the same pools, or memory systems or models on the same rows, in pairs.

`python -m analysis.compare RUN:A RUN:B` for sweeps, `RUN RUN` for runs of tasks 1, 2 and 4 and for
answers of task 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from analysis.comparison_table import (
    area_table,
    comparison_table,
    note_left_out,
    note_reasons,
)
from analysis.groups import Where, parse_where
from analysis.metric_option import Area, MetricNames, named_metrics
from analysis.ranked_pools import material_of
from analysis.runs import Run, read_run
from analysis.sides import Side, parse_side, side_names
from analysis.significance import (
    Pairing,
    SideArea,
    area_pairings,
    compared_metrics,
    pairings,
    side_areas,
)
from analysis.task_runs import VerdictRuns, has_items, load_run_data, open_finished
from recallbed.corpus.layout import SAMPLE_NOTE
from recallbed.corpus.options import Data, OtherSplit, PoolOptions
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.fingerprint import canonical
from recallbed.harness.options import AsJson, Ks, Without
from recallbed.harness.terminal import note, say_json
from recallbed.harness.text_table import print_tables

app = App()


def queries_in_script(run: Run, data: Path | None, split: str | None, script: str) -> set[str]:
    """Return the queries with a letter of a script, such as `Han`, in query or gold memory.

    They are read from the data of the run. Raises UserError if that is not the embedded sample and
    `data` is None, or if what is there is not what the run was made on.
    """
    import regex

    try:
        letter = regex.compile(rf"\p{{Script={script}}}")
    except regex.error:
        raise UserError(f"--script {script}: not a Unicode script, such as Han or Latin") from None
    found = load_run_data(run.path, run.manifest["fingerprint"], data, split)
    return {
        row.benchmark_id
        for row in found.smallest.rows
        if letter.search(row.query) or any(letter.search(m.text) for m in row.gold_memories)
    }


def _keep(
    run: Run,
    data: Path | None,
    split: str | None,
    script: str | None,
    not_script: str | None,
    where: Sequence[str],
) -> Callable[[str], bool] | None:
    """Whether a query is compared, by --script, --not-script and --where; None if all are."""
    tests: list[Callable[[str], bool]] = []
    if name := script or not_script:
        in_script = queries_in_script(run, data, split, name)
        tests.append(lambda query: (query in in_script) == bool(script))
    if where:
        material = material_of(run, data)
        tests.append(parse_where(where, material).queries(material).__contains__)
    return (lambda query: all(test(query) for test in tests)) if tests else None


def sides_of(words: Sequence[str]) -> list[Side]:
    """Return the sides that were named; a run without a label is all of its retrievers."""
    found = []
    for word in words:
        if ":" in word:
            found.append(parse_side(word))
        else:
            run = read_run(Path(word))
            found += [Side(run, label) for label in run.labels]
    return found


def place_of(named: str, names: Sequence[str], *others: Sequence[str]) -> int:
    """Return the place of the side that --baseline names, by any of several lists of names.

    Raise UserError if there is none, or there are several.
    """
    for known in (names, *others):
        if known.count(named) == 1:
            return known.index(named)
    raise UserError(f"--baseline {named}: not one of the sides ({', '.join(names)})")


@app.command(
    examples=(
        "recallbed compare runs/a:bm25 runs/a:minilm runs/b:hybrid --all-pairs",
        "recallbed compare runs/mem0 runs/turns --verdicts runs/v1 --verdicts runs/v2",
    )
)
def main_command(
    sides: Annotated[
        tuple[str, ...],
        typer.Argument(
            metavar="RUN[:LABEL]",
            help="The sides, two or more. A run without a label means all of its retrievers.",
        ),
    ],
    pools: Annotated[PoolOptions, Without("pools", "pool_seeds")],
    ks: Ks = (1, 5, 10),
    metric: MetricNames = (),
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="SIDE", help="Side that the others are compared with. Default: the first."
        ),
    ] = None,
    all_pairs: Annotated[bool, typer.Option(help="Compare every side with every other.")] = False,
    area: Area = False,
    script: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Only queries with a letter of this script in query or gold, such as Han.",
        ),
    ] = None,
    not_script: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only queries without a letter of this script."),
    ] = None,
    where: Where = (),
    verdicts: VerdictRuns = (),
    data: Data = None,
    split: OtherSplit = None,
    as_json: AsJson = False,
) -> None:
    """Compare retrievers on the same pools, or memory systems or models, in pairs.

    Prints the paired difference with its 95 % bootstrap interval over sessions, wins, ties, losses,
    the p-value of a randomisation test that flips whole sessions, of McNemar's exact test if all
    values are 0 or 1, Holm's correction of the former for all comparisons of the call, and the
    standardised mean difference. Without --metric, recall@k is compared; without --distractors, at
    all sizes that two sides share. --area adds one figure over all sizes.

    --where, --script and --not-script read the data of the first run, which --data names unless it
    is the embedded sample; its split is that of the run.

    Of runs of task 1, 2 or 4 on the same rows, the figures of each session or question are
    compared: precision, recall and F1 by the matcher, or which gold memories were stored, found,
    shown and used; of answers of task 3, whether the gold was chosen, shown and used. --verdicts
    adds the figures of a judge who judged all of them.
    """
    if baseline is not None and all_pairs:
        raise UserError("--baseline and --all-pairs exclude each other")
    if any(map(has_items, sides)):
        if script or not_script or where or split or metric or area or pools.distractors:
            raise UserError(
                "--script, --not-script, --where, --split, --metric, --area and --distractors"
                " concern sweeps of task 3"
            )
        _compare_items([Path(one) for one in sides], verdicts, data, baseline, all_pairs, as_json)
        return
    if verdicts:
        raise UserError("--verdicts concerns runs of tasks 1, 2 and 4, and answers of task 3")
    if script and not_script:
        raise UserError("--script and --not-script exclude each other")
    chosen = sides_of(sides)
    if len(chosen) < 2 and not area:
        raise UserError(f"{' '.join(sides)}: one side only. Name two or more, as RUN:LABEL")
    place = None if all_pairs else 0
    if baseline is not None:
        paths = [str(side.run.path) for side in chosen]
        whole = [f"{side.run.path}:{side.label}" for side in chosen]
        place = place_of(baseline, side_names(chosen), whole, paths)
    keep = _keep(chosen[0].run, data, split, script, not_script, where)
    metrics = named_metrics(metric) or compared_metrics(ks)
    sizes = pools.distractors
    found = pairings(chosen, metrics, sizes=sizes, baseline=place, keep=keep)
    shown, areas = [comparison_table(found)] if found else [], []
    more: list[Pairing | SideArea] = []
    if area:
        of_sides = side_areas(chosen, metrics, sizes=sizes, keep=keep)
        areas = area_pairings(chosen, metrics, sizes=sizes, baseline=place, keep=keep)
        shown += [area_table(of_sides), *([comparison_table(areas)] if areas else [])]
        more = [*areas, *of_sides]
    if as_json:
        say_json(canonical([one.to_json() for one in [*found, *more]]))
        return
    print_tables(shown)
    note_left_out(found)
    families = {"comparisons": [one.holm for one in found], "areas": [one.holm for one in areas]}
    note_reasons([one.paired for one in [*found, *areas]], families)


def _compare_items(
    paths: Sequence[Path],
    verdicts: Sequence[Path],
    data: Path | None,
    baseline: str | None,
    all_pairs: bool,
    as_json: bool,
) -> None:
    from analysis.compare_runs import UNITS, compare_runs, run_names, run_table
    from analysis.verdict_runs import read_verdict_run

    for path in paths:
        if not has_items(str(path)):
            raise UserError(
                f"{path}: not the folder of a run of task 1, 2 or 4 or of answers of task 3, as the"
                " other is. Compare runs of one task, or sweeps as RUN:LABEL"
            )
    if len(paths) < 2:
        raise UserError(f"{paths[0]}: one run only. Name two or more")
    runs = [open_finished(path) for path in paths]
    place: int | None = None if all_pairs else 0
    if baseline is not None:
        place = place_of(baseline, run_names(runs), [str(path) for path in paths])
    results = compare_runs(runs, data, [read_verdict_run(path) for path in verdicts], place)
    if as_json:
        say_json(canonical([result.to_json() for result in results]))
        return
    print_tables([run_table(runs[0].task, results)])
    if runs[0].sample:
        note(SAMPLE_NOTE)
    for result in results:
        if result.unpaired:
            why = "failed, not answered or not judged on one side or both"
            units = UNITS[runs[0].task][result.unpaired != 1]
            pair = f"{result.a} and {result.b}: " if len(runs) > 2 else ""
            note(
                f"{pair}{result.figure}, {result.scale}: {result.unpaired} {units} left out: {why}"
            )
    families = {"comparisons": [one.holm for one in results]}
    note_reasons([one.paired for one in results if one.paired], families)


if __name__ == "__main__":
    app()
