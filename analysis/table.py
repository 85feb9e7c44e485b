"""Results of finished sweeps as a table: `python -m analysis.table RUN...`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from analysis.figure_options import Names
from analysis.metric_option import Area, MetricNames, named_metrics
from analysis.metrics import Recall
from analysis.published import chosen_published
from analysis.row_options import OfLabel, PublishedNames, SweepRuns
from analysis.runs import read_run
from recallbed.corpus.options import PoolOptions
from recallbed.harness.app import App
from recallbed.harness.files import refuse_output, write_atomically
from recallbed.harness.options import Without
from recallbed.harness.run_options import Overwrite
from recallbed.harness.terminal import note, say, say_json
from recallbed.harness.text_table import print_tables, terminal_width, wrapped

app = App()
Format = Literal["text", "markdown", "latex", "csv", "json"]
_ENDINGS: dict[str, Format] = {
    ".txt": "text",
    ".md": "markdown",
    ".tex": "latex",
    ".csv": "csv",
    ".json": "json",
}


@app.command(
    examples=(
        "recallbed table runs/a",
        "recallbed table runs/a runs/b --metric nDCG@10 --intervals --out table.tex",
    )
)
def table(
    runs: SweepRuns,
    pools: Annotated[PoolOptions, Without("pools", "pool_seeds")],
    metric: MetricNames = (),
    retriever: OfLabel = (),
    area: Area = False,
    intervals: Annotated[bool, typer.Option(help="Show 95 % intervals.")] = False,
    no_significance: Annotated[
        bool, typer.Option(help="Compare nothing: for runs on other queries or pools.")
    ] = False,
    published: PublishedNames = "none",
    names: Names = (),
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Default: by the ending of --out, else text."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write. Default: stdout.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Show results of sweeps as a table.

    A row is a label of a run, a column a metric at one number of distractors (R@1 at all sizes by
    default). The best of a column is marked. Letters, as superscripts, name the rows that a row is
    significantly better than, by paired randomisation tests over sessions with Holm's correction.
    Rows on other queries or pools are refused, unless --no-significance. Published rows are marked
    and neither ranked nor tested.
    """
    if out is not None:
        refuse_output(out, overwrite)
    chosen = format_ or (_ENDINGS.get(out.suffix.lower()) if out is not None else None) or "text"
    from analysis import table_formats
    from analysis.result_table import result_table

    found = result_table(
        [read_run(path) for path in runs],
        named_metrics(metric) or [Recall(1)],
        sizes=pools.distractors,
        labels=retriever,
        area=area,
        significance=not no_significance,
        published=chosen_published(published),
        names=names,
    )
    if chosen == "text":
        encoding = "utf-8" if out is not None else sys.stdout.encoding or "utf-8"
        shown = table_formats.text_table(found, intervals, encoding)
        below = table_formats.text_lines(found, intervals)
        if out is None:
            print_tables([shown])
            width = terminal_width()
            say("", *(part for line in below for part in wrapped(line, width)))
            return
        content = "\n".join([*shown.lines(), "", *below]) + "\n"
    elif chosen == "markdown":
        content = table_formats.results_markdown(found, intervals)
    elif chosen == "latex":
        content = table_formats.results_latex(found, intervals)
        if remark := table_formats.latex_remark(content):
            note(remark)
    elif chosen == "csv":
        content = table_formats.results_csv(found)
    else:
        content = table_formats.results_json(found)
    if out is not None:
        write_atomically(out, content)
    elif chosen == "json":
        say_json(content)
    else:
        say(*content.splitlines())


if __name__ == "__main__":
    app()
