"""Recall against what a query takes: `python -m analysis.frontier RUN... --x tokens`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recallbed.harness.app import App

app = App()


@app.command()
def frontier(
    runs: Annotated[list[Path], typer.Argument(help="Run folders of task3.sweep.")],
    distractors: Annotated[
        int | None,
        typer.Option("--distractors", min=1, help="Size of the pools. Default: the largest."),
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Recall at how many?")] = 1,
    x: Annotated[
        str, typer.Option("--x", metavar="tokens|cost|ms", help="What a query takes.")
    ] = "tokens",
    out: Annotated[
        Path, typer.Option("--out", help="Picture to write: .png, .pdf or .svg.")
    ] = Path("frontier.png"),
    note: Annotated[
        str | None, typer.Option("--note", help="A line for the picture's heading.")
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a .csv next to --out that holds other data."),
    ] = False,
) -> None:
    """Draw recall against tokens, cost or milliseconds a query, a point a configuration.

    Writes a picture and, beside it, a CSV of the figures with all three. Configurations that take
    nothing are dashed lines.
    """
    from recallbed.errors import UserError
    from recallbed.harness.cli import one_line_errors

    with one_line_errors(OSError):
        from analysis.frontier_picture import draw_frontier
        from analysis.frontier_points import AXES, as_csv, as_table, points_of, remarks
        from analysis.pictures import check_out
        from analysis.runs import read_run
        from analysis.tables import title
        from recallbed.harness.files import write_atomically
        from recallbed.harness.terminal import note as tell
        from recallbed.harness.text_table import print_tables

        if x not in AXES:
            raise UserError(f"--x {x}: choose one of {', '.join(AXES)}")
        check_out(out, overwrite)
        read = [read_run(path) for path in runs]
        size, points = points_of(read, distractors, k)
        titles = dict.fromkeys(title(run.summary((k,))) for run in read)
        out.parent.mkdir(parents=True, exist_ok=True)
        told = f"{size:,} distractors" + (f"; {note}" if note else "")
        draw_frontier(points, x, k, [*titles, told], out)
        write_atomically(out.with_suffix(".csv"), as_csv(points, x, size, k))
        print_tables([as_table(points, x, size, k)])
        tell(*remarks(points, x), f"{out} and {out.with_suffix('.csv')} are written")


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
