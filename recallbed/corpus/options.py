"""Options of commands that read a benchmark or build pools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

import typer

from recallbed.harness.options import numbers, only_one

Strategy = Literal["nested", "released", "as-released"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Release folder (holds the splits); for retrieval also a .jsonl of your own memories."
        " Default: the embedded sample.",
        rich_help_panel="Data",
    ),
]
_split = typer.Option(metavar="NAME", help="Split of the release.", rich_help_panel="Data")
Split = Annotated[str, _split]
OtherSplit = Annotated[str | None, _split]
"""A split that something else gives by default."""


Sizes = Annotated[
    tuple[int, ...] | None,
    typer.Option(
        "--distractors",
        "--size",
        metavar="N,...",
        help="Distractors per pool. Default: 100,300,500,700,1000, or as stated above.",
    ),
    numbers(),
]
"""Ascending and without repeats."""
_folds = typer.Option(metavar="N", help="Folds of the sessions for cross-validation.")
Folds = Annotated[int, _folds]
OtherFolds = Annotated[int | None, _folds]
"""Without it there is no cross-validation."""
_pool_seeds = typer.Option(
    "--pool-seeds",
    "--pool-seed",
    metavar="N,...",
    help="Seeds of the pools; several are averaged.",
)
PoolSeeds = Annotated[tuple[int, ...], _pool_seeds, numbers(0)]
OtherPoolSeeds = Annotated[tuple[int, ...] | None, _pool_seeds, numbers(0)]
"""Seeds that something else gives by default."""


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Which rows of which data. `data` None is the embedded sample."""

    PANEL: ClassVar[str] = "Data"
    data: Data = None
    split: Split = "dev"
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="First N queries or rows; the bank of distractors stays whole."),
    ] = None


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How pools are built. None is what `corpus.material` takes for this kind of data.

    `distractors` and `pool_seeds` are ascending and without repeats.
    """

    PANEL: ClassVar[str] = "Data"
    pools: Annotated[
        Strategy | None,
        typer.Option(help="How pools are built. Default: nested; released for a file of your own."),
    ] = None
    pool_seeds: PoolSeeds = (0,)
    distractors: Sizes = None

    @property
    def pool_seed(self) -> int:
        """The seed, for a command that builds one pool per query; UserError if there are more."""
        return only_one("--pool-seeds", self.pool_seeds)

    @property
    def size(self) -> int | None:
        """The size, for a command that builds one pool per query; UserError if there are more."""
        return None if self.distractors is None else only_one("--distractors", self.distractors)
