"""`python -m analysis.export RUN --out FOLDER`: a run as TREC files, pools or predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recallbed.harness.app import App

app = App()


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Run folder of task3.sweep.")],
    out: Annotated[Path, typer.Option(help="Folder to write into.")],
    what: Annotated[
        str,
        typer.Option(
            metavar="trec|pools|predictions",
            help="Runs and qrels; the pools, for a system elsewhere; or official rows.",
        ),
    ] = "trec",
    data: Annotated[
        Path | None, typer.Option(help="The data of the sweep. Default: the embedded sample.")
    ] = None,
) -> None:
    """Write a finished run as files that other tools read. Existing files are replaced.

    A run without --keep-scores has the best ten memories of each pool.
    """
    from analysis.exporting import export_pools, export_predictions, export_trec
    from recallbed.errors import DataError, UserError
    from recallbed.harness.cli import one_line_errors
    from recallbed.harness.terminal import note, say

    with one_line_errors(DataError, OSError):
        kinds = {"trec": export_trec, "pools": export_pools, "predictions": export_predictions}
        if what not in kinds:
            raise UserError(f"--what {what}: choose one of {', '.join(kinds)}")
        say(*kinds[what](run, data, out, note))


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
