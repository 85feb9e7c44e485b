"""Options of `python -m training.reranker`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

import typer

from recallbed.corpus.options import Data, PoolSeeds, Sizes, Split
from recallbed.harness.options import Seed
from recallbed.harness.run_options import Overwrite

Combination = Literal["auto", "sum", "linear", "boosting"]
COMBINATIONS: tuple[Combination, ...] = get_args(Combination)


@dataclass(frozen=True)
class CombinationOptions:
    """What is learned from, what is fitted, and the folder of the result.

    `folds` None fits one model on all sessions; a number fits one for each fold, on the sessions
    outside it, and measures each on the sessions inside.
    """

    PANEL: ClassVar[str] = "Training"
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the trained model.")]
    data: Data = None
    split: Split = "dev"
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Train a model for each of N folds of the sessions, and measure each on its fold.",
        ),
    ] = None
    trained: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="LABEL=FOLDER",
            help="Model that takes the place of a `folds` leg in the result. May be repeated.",
        ),
    ] = ()
    depth: Annotated[
        int, typer.Option(min=2, help="Candidates that are ordered by their features.")
    ] = 20
    features: Annotated[
        tuple[str, ...],
        typer.Option(
            "--feature",
            metavar="KIND",
            help="Kind of feature (retrievers/features.py); may be repeated. Default: all.",
        ),
    ] = ()
    combination: Annotated[
        Combination,
        typer.Option(help="What orders the candidates. auto: what inner folds of sessions choose."),
    ] = "auto"
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="RUN:LABEL", help="Finished sweep whose order of the first ten is learned too."
        ),
    ] = None
    teacher_weight: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the teacher in what is learned.")
    ] = 0.5
    distractors: Sizes = None
    pool_seeds: PoolSeeds = (0, 1, 2)
    seed: Seed = 0
    overwrite: Overwrite = False
