"""Options of `python -m training.reranker`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

import typer

from recallbed.corpus.options import Data, OtherFolds, PoolSeeds, Sizes, Split
from recallbed.harness.options import Seed
from recallbed.harness.run_options import Overwrite
from training.options import Figures

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
    folds: OtherFolds = None
    figures: Figures = None
    trained: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="LABEL=MODEL",
            help="Folder or shipped model that takes the place of a `folds` leg in the result."
            " May be repeated.",
        ),
    ] = ()
    candidates: Annotated[
        int, typer.Option(min=2, help="Best memories of the sum that are ordered by features.")
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

    def command_words(self) -> list[str]:
        """Return the options that are not the defaults, without paths, as they are typed."""
        numbers = {"folds": self.folds, "candidates": self.candidates, "seed": self.seed}
        defaults = {"folds": None, "candidates": 20, "seed": 0}
        found = ["--data DATA"] if self.data is not None else []
        found += [f"--{key} {n}" for key, n in numbers.items() if n != defaults[key]]
        found += [f"--feature {kind}" for kind in self.features]
        if self.combination != "auto":
            found.append(f"--combination {self.combination}")
        if self.teacher is not None:
            found.append(f"--teacher RUN --teacher-weight {self.teacher_weight:g}")
        if self.distractors is not None:
            found.append(f"--distractors {','.join(map(str, self.distractors))}")
        return found
