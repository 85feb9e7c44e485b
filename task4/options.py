"""Options of the commands of task 4."""

from __future__ import annotations

from typing import Annotated

import typer

Abilities = Annotated[
    tuple[int, ...],
    typer.Option(
        help="1 persona awareness, 2 preference following, 3 virtual-reality awareness,"
        " 4 constraint following, 5 emotional intelligence. May be repeated. Default: all.",
        rich_help_panel="Data",
    ),
]
