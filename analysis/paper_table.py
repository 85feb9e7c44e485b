"""Tables 2, 3 and 4 of the AlpsBench paper from runs: `python -m analysis.paper_table 3 RUN...`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.published import published_table
from recallbed.corpus.layout import SAMPLE_NOTE
from recallbed.corpus.options import Data
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.options import AsJson
from recallbed.harness.terminal import note, say, say_json
from recallbed.harness.text_table import TextTable, print_tables

if TYPE_CHECKING:
    from analysis.paper_figures import PaperColumn, PaperFigures

app = App()
SOURCE = "arXiv 2603.26680"
TITLES: Mapping[int, Mapping[str, str]] = {
    2: {
        "task1": "Table 2, task 1: extraction",
        "task2": "Table 2, task 2: update",
        "task3": "Table 2, task 3: retrieval at N distractors",
        "task4": "Table 2, task 4: utilization",
    },
    3: {"task1": "Table 3, memory systems, task 1: extraction"},
    4: {"task4": "Table 4, memory systems, task 4: utilization"},
}
CSV_COLUMNS = (
    *("figure", "task", "system", "scale", "mean", "low", "high", "interval", "scored"),
    *("attempted", "split", "sample", "run", "state", "published", "published_scale"),
)
SAMPLE_MARK = " *"


def paper_tables(figures: PaperFigures) -> Iterator[TextTable]:
    """Return a table for each task of the paper's table, and one of what our figures are over.

    A column is one scale, and published figures have a column of their own. For each figure our
    systems come first, as they were named, then the published ones in the paper's order: they are
    not ranked.
    """
    published = published_table(figures.number)
    for task, group in groupby(figures.columns, lambda column: column.task):
        columns, scales = list(group), figures.scales(task)
        theirs = list(dict.fromkeys(columns[0].published_scale(name) for name in published))
        table = TextTable(
            TITLES[figures.number][task],
            ("figure", "system", *scales, *(f"published: {scale}" for scale in theirs)),
            keys=2,
            texts=("system",),
        )
        for column in columns:
            for system in figures.tasks:
                name = system + SAMPLE_MARK * (system in figures.samples)
                cells = [_cell(figures, system, column, scale) for scale in scales]
                table.add(column.title, name, *cells, *[""] * len(theirs))
            for name, values in published.items():
                if column.key in values:
                    found = dict.fromkeys([*scales, *theirs], "")
                    found[column.published_scale(name)] = _digits(column, values[column.key])
                    table.add(column.title, name, *found.values())
        yield table
    if not figures.entries:
        return
    table = TextTable(
        "What our figures are over",
        ("system", "figure", "scale", "scored", "attempted", "split", "run"),
        texts=("figure", "scale", "split", "run"),
    )
    for one in figures.entries:
        counts = one.scored, one.attempted
        table.add(one.system, one.column.key, one.scale, *counts, one.run.split, one.run.path)
    yield table


def _cell(figures: PaperFigures, system: str, column: PaperColumn, scale: str) -> str:
    one = figures.entry(system, column, scale)
    if one is None:
        return figures.absence(system, column, scale)
    if one.interval is None:
        return f"0 of {one.attempted} scored"
    ends = (one.interval.mean, one.interval.low, one.interval.high)
    mean, low, high = (_digits(column, value) for value in ends)
    return f"{mean} [{low}, {high}]"


def _digits(column: PaperColumn, value: float) -> str:
    return f"{value:.2f}" if column.figure.startswith("ei_") else f"{value:.4f}"


def table_json(figures: PaperFigures) -> dict[str, Any]:
    """Return what --json prints: our figures, those that are missing, and the published ones."""
    published = published_table(figures.number)
    return {
        "table": figures.number,
        "systems": [
            {"system": name, "sample": name in figures.samples, "tasks": sorted(tasks)}
            for name, tasks in figures.tasks.items()
        ],
        "ours": [one.to_json() for one in figures.entries],
        "missing": list(_missing(figures)),
        "published": {
            "source": SOURCE,
            "scales": {
                name: {c.key: c.published_scale(name) for c in figures.columns if c.key in values}
                for name, values in published.items()
            },
            "systems": published,
        },
        "remarks": figures.remarks,
    }


def _missing(figures: PaperFigures) -> Iterator[dict[str, str]]:
    for system in figures.tasks:
        for column in figures.columns:
            for scale in figures.scales(column.task):
                if figures.entry(system, column, scale) is None:
                    yield {
                        "figure": column.key,
                        "task": column.task,
                        "system": system,
                        "scale": scale,
                        "state": figures.absence(system, column, scale),
                    }


def table_csv(figures: PaperFigures) -> str:
    """Return one line per figure of a system; `published` is a column of its own."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, CSV_COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for one in figures.entries:
        state = "nothing scored" if one.interval is None else "scored"
        sample = str(one.run.sample).lower()
        writer.writerow({**one.to_json(), "sample": sample, "state": state})
    writer.writerows(_missing(figures))
    for name, values in published_table(figures.number).items():
        for column in figures.columns:
            if column.key in values:
                writer.writerow(
                    {
                        "figure": column.key,
                        "task": column.task,
                        "system": name,
                        "state": "published",
                        "published": values[column.key],
                        "published_scale": column.published_scale(name),
                    }
                )
    return stream.getvalue()


@app.command(
    examples=(
        "recallbed paper-table 3 runs/mem0 runs/turns --data release",
        "recallbed paper-table 2 llm=runs/t1 llm=runs/t4 runs/verdicts --markdown",
    )
)
def paper_table(
    table: Annotated[int, typer.Argument(metavar="TABLE", help="2, 3 or 4, as in the paper.")],
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="[LABEL=]RUN",
            help="Run folders of any task, and of judges of their answers.",
        ),
    ],
    data: Data = None,
    markdown: Annotated[bool, typer.Option(help="Print Markdown.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, one line per figure of a system.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make Table 2, 3 or 4 of the AlpsBench paper from finished runs.

    Table 2 has all tasks, Table 3 task 1 and Table 4 task 4. Runs with one label are one row; by
    default the label is the system with its retriever and model. Published figures are in columns
    of their own, each named with its scale, and are not ranked with ours. Verdicts are joined with
    the run whose answers they judge. Intervals are of 95 %.
    """
    from analysis.paper_figures import paper_figures
    from recallbed.harness.fingerprint import canonical

    if markdown + as_csv + as_json > 1:
        raise UserError("--markdown, --csv and --json exclude each other")
    figures = paper_figures(table, runs, data)
    if as_json:
        say_json(canonical(table_json(figures)))
    elif as_csv:
        say(*table_csv(figures).splitlines())
    elif markdown:
        for one in paper_tables(figures):
            say(*one.markdown(), "")
        say(*_explained(figures))
    else:
        print_tables(paper_tables(figures))
        say("", *_explained(figures))
    if (as_json or as_csv) and figures.samples:
        note(SAMPLE_NOTE)
    note(*figures.remarks)


def _explained(figures: PaperFigures) -> Iterator[str]:
    yield f"Means with 95 % intervals. Published: {SOURCE}, on the paper's data and scales."
    if figures.samples:
        yield f"{SAMPLE_MARK.strip()} {SAMPLE_NOTE}"


if __name__ == "__main__":
    app()
