"""Everything that finished runs show, on one page: `python -m analysis.report RUN... --out F`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis.published import chosen_published
from analysis.ranked_pools import material_of
from analysis.report_blocks import Blocks
from analysis.report_comparisons import (
    breakdowns_of,
    compared_by_report,
    grouped_by_report,
    significance_of,
)
from analysis.report_data import (
    check_one_origin,
    figures_of,
    frontier_of,
    manifests_of,
    of_all_sizes,
    report_curves,
)
from analysis.report_html import html_page, plotly_source
from analysis.report_queries import add_queries, page_groupings
from analysis.row_options import PublishedNames, SweepRuns
from analysis.runs import Run, read_run
from recallbed.corpus.options import Data
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.files import refuse_output, write_atomically
from recallbed.harness.options import Ks
from recallbed.harness.run_options import Overwrite
from recallbed.harness.terminal import note, say

app = App()


def write_report(
    runs: Sequence[Run],
    out: Path,
    *,
    data: Path | None = None,
    ks: Sequence[int] = (1, 5, 10),
    title: str | None = None,
    texts: bool = True,
    audit: bool = False,
    published: str = "none",
) -> None:
    """Write the report of runs on the same pools as one HTML file; equal runs give equal bytes.

    `data` is the data of the runs, None for the embedded sample. Without `texts` the page holds no
    text of the data, and `data` may be missing: then there are no breakdowns. Raise UserError for
    runs on different data or pools, for data that the runs were not made on, and without plotly.
    """
    plotly = plotly_source()
    check_one_origin(runs)
    whole = of_all_sizes(runs)
    known = texts or data is not None or whole.manifest["fingerprint"]["data"]["sample"]
    material = material_of(whole, data) if known else None
    curves = report_curves(runs)
    if not curves:
        raise UserError("no run has a row: nothing to report")
    figures = figures_of(runs, curves, ks, chosen_published(published))
    names = page_groupings(material, texts) if material else []
    grouped = grouped_by_report(ks)
    blocks = Blocks()
    page = {
        "title": title or "Retrieval of memories",
        **figures,
        "significance": significance_of(curves, figures["sizes"], compared_by_report(curves, ks)),
        "breakdown": breakdowns_of(curves, material, names, grouped) if material else None,
        "frontier": frontier_of(runs, ks, figures["sizes"]),
        "audit": _audit(whole, data) if audit else None,
        "runs": manifests_of(runs),
        "queries": add_queries(blocks, runs, curves, material, texts),
    }
    write_atomically(out, html_page(page["title"], page, blocks, plotly))


def _audit(run: Run, data: Path | None) -> dict[str, Any]:
    """The audit of the data."""
    from analysis.audit import audit

    prints = run.manifest["fingerprint"]
    if data is None and not prints["data"]["sample"]:
        raise UserError("--audit reads the data of the runs: pass their --data")
    found = audit(data, prints["data"]["split"], seed=prints["seed"])
    return found.to_json(examples=False)


@app.command(
    examples=(
        "recallbed report runs/a --out report.html",
        "recallbed report runs/a runs/b --data benchmark_data --audit",
    )
)
def command(
    runs: SweepRuns,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Page to write.")] = Path("report.html"),
    data: Data = None,
    ks: Ks = (1, 5, 10),
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Heading of the page.")] = None,
    no_texts: Annotated[
        bool,
        typer.Option(
            "--no-texts",
            help="Leave out every text and label of the data: ids, ranks and scores only, so that"
            " the page may be passed on when the data may not.",
        ),
    ] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="Audit the data, too; it takes longer.")
    ] = False,
    published: PublishedNames = "none",
    overwrite: Overwrite = False,
) -> None:
    """Write what runs show as one page that needs no network.

    Curves and table, significance, breakdowns, frontier, settings, and every query with its
    rankings. All runs are of the same data and pools; pool sizes may differ. --data names the data
    of the runs, unless it is the embedded sample.
    """
    refuse_output(out, overwrite)
    read = [read_run(path) for path in runs]
    write_report(
        read,
        out,
        data=data,
        ks=ks,
        title=title,
        texts=not no_texts,
        audit=audit,
        published=published,
    )
    say(out)
    if not no_texts and not read[0].manifest["fingerprint"]["data"]["sample"]:
        note(f"{out} holds texts of the data. Pass it on only if the data may be; see --no-texts")


if __name__ == "__main__":
    app()
