"""Options of every command that writes a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

from recallbed.errors import UserError

OnExisting = Literal["refuse", "resume", "overwrite"]
KEPT = "finished rows are kept; resume with --resume"
"""What is printed if a run is interrupted."""
Overwrite = Annotated[bool, typer.Option(help="Replace what --out names.")]
Resume = Annotated[bool, typer.Option(help="Resume what --out names.")]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where a run is written, and what happens to an existing run.

    `out` None is a folder in `runs/` named by the fingerprint, which is then resumed without
    asking.
    """

    PANEL: ClassVar[str] = "Run"
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Run folder. Default: runs/NAME-FINGERPRINT, resumed if it exists.",
        ),
    ] = None
    resume: Resume = False
    overwrite: Overwrite = False
    retry_failed: Annotated[bool, typer.Option(help="Resume, and repeat failed rows.")] = False
    keep_going: Annotated[
        bool,
        typer.Option(help="Continue if the first ten queries or items fail in the same way."),
    ] = False

    def __post_init__(self) -> None:
        if self.overwrite and (self.resume or self.retry_failed):
            raise UserError("--overwrite excludes --resume and --retry-failed")

    @property
    def on_existing(self) -> OnExisting:
        """What is done if the folder exists."""
        if self.overwrite:
            return "overwrite"
        return "resume" if self.resume or self.retry_failed else "refuse"
