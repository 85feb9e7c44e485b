"""`python -m task3.score PREDICTIONS`: predictions of any system against the references."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from judges.options import JudgeOptions, kept_if_judged
from recallbed.corpus.options import DataOptions, PoolOptions
from recallbed.harness.app import App
from recallbed.harness.options import AsJson, Without

if TYPE_CHECKING:
    from recallbed.corpus.predictions import Matching, Selection
    from recallbed.corpus.records import Task3File
    from recallbed.harness.plan import Plan
    from task3.exact_match import SelectionReport
    from task3.used_memory import UseOptions

app = App()
_OFFICIAL = re.compile(r".+\.d(?P<size>\d+)\.predictions\.jsonl(\.gz)?")


@app.command(
    on_stop=kept_if_judged,
    examples=(
        "recallbed score predictions.jsonl",
        "recallbed score FILE.jsonl --use judge --judge-model openai:MODEL",
    ),
)
def score(
    predictions: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN_OR_PREDICTIONS",
            help="Run folders, files of rows with benchmark_id and selected_memory_id, or a folder"
            " of official files. Each is scored by itself.",
        ),
    ],
    *,
    data: Annotated[DataOptions, Without("limit")],
    pools: Annotated[PoolOptions, Without("pools", "pool_seeds")],
    exclude: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Queries to leave out, one benchmark_id per line: scores with and without them.",
        ),
    ] = None,
    use: Annotated[
        Literal["overlap", "judge"] | None,
        typer.Option(help="Report whether the gold was used, by overlap of the reason or a judge."),
    ] = None,
    judge_options: JudgeOptions,
    as_json: AsJson = False,
) -> None:
    """Score predictions of task 3 by exact match.

    Prints accuracy over answered queries, coverage, accuracy with unanswered queries counted as
    wrong, and every cause with its count and first lines. A faulty line does not stop the rest.
    A file called NAME.dN.predictions.jsonl, as `recallbed export` names it, is scored on pools with
    N distractors unless --distractors is given.
    """
    from recallbed.corpus.predictions import official_files
    from recallbed.errors import UserError
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.plan import print_plans
    from recallbed.harness.terminal import say, say_json
    from task3.used_memory import use_options

    judge = judge_options.named
    options = use_options(use, judge)
    files = [path for source in predictions for path in official_files(source, _OFFICIAL)]
    if judge is not None and len(files) > 1:
        raise UserError(f"--judge-model: a judge reads one file, and here are {len(files)}")
    if judge is not None and judge.chat.dry_run:
        plans = plan_file(files[0], data.data, data.split, pools.size or _size_of(files[0]), judge)
        print_plans(plans, as_json=True)
        return
    reports = [
        score_choices(path, data.data, data.split, pools.size or _size_of(path), exclude, options)
        for path in files
    ]
    if as_json:
        found = [report.to_json() for report in reports]
        say_json(canonical(found if len(found) > 1 else found[0]))
        return
    for number, report in enumerate(reports):
        say(*([""] if number else []), *report.lines())


def _size_of(path: Path) -> int | None:
    """The distractors that the name of an official file says, None without them."""
    named = _OFFICIAL.fullmatch(path.name)
    return None if named is None else int(named["size"])


def score_choices(
    path: Path,
    data: Path | None,
    split: str,
    size: int | None,
    exclude: Path | None = None,
    use: UseOptions | None = None,
) -> SelectionReport:
    """Score a file or a run folder's predictions.

    Raise DataError for faulty data or a split without references, and UserError if no line of
    `path` answers a query, for a faulty exclusion list and for one that leaves no query, and if a
    judge judges nothing.
    """
    from recallbed.errors import UserError
    from task3.exact_match import SelectionReport, exact_match, read_exclusions, shared_gold_ids
    from task3.used_memory import UsedMemory

    file, matching = _open(path, data, split, size)
    known = {row.benchmark_id for row in file.rows}
    left_out = None if exclude is None else read_exclusions(exclude, known)
    kept = [row for row in file.rows if row.benchmark_id not in (left_out or ())]
    if not kept:
        raise UserError(f"{exclude}: leaves out every query")
    report = SelectionReport(
        matching, split, file.size, shared_gold_ids(file.rows), exact_match(file.rows, matching)
    )
    if left_out is not None:
        report = replace(
            report, excluded=len(left_out), without_excluded=exact_match(kept, matching)
        )
    if use is not None:
        used = UsedMemory(file, matching)
        uses = used.uses(use)
        report = replace(report, use=used.rates(file.rows, uses, use))
        if left_out is not None:
            report = replace(report, use_without_excluded=used.rates(kept, uses, use))
    return report


def plan_file(
    path: Path, data: Path | None, split: str, size: int | None, judge: JudgeOptions
) -> Mapping[str, Plan]:
    """Return what would be sent to a judge of use, by its name. Raise as `score_choices` does."""
    from task3.used_memory import UsedMemory

    return UsedMemory(*_open(path, data, split, size)).plan(judge)


def _open(
    path: Path, data: Path | None, split: str, size: int | None
) -> tuple[Task3File, Matching[Selection]]:
    from recallbed.corpus.predictions import read_selections
    from recallbed.errors import DataError
    from task3.exact_match import match_selections
    from task3.released import load_released

    file = load_released(data, split, size)
    if any(row.gold is None for row in file.rows):
        raise DataError(
            "no reference_output.jsonl in this folder, so nothing can be scored",
            file.path,
            todo="Choose a split that has references",
        )
    return file, match_selections(file.rows, read_selections(path))


if __name__ == "__main__":
    app()
