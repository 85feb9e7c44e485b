"""Options of commands that read finished sweeps: which runs, which of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from recallbed.corpus.options import Data, OtherPoolSeeds, Sizes
from recallbed.errors import UserError
from recallbed.harness.options import Ks, only_one

if TYPE_CHECKING:
    from analysis.runs import Run

SweepRun = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of a sweep.")]
SweepRuns = Annotated[
    tuple[Path, ...], typer.Argument(metavar="RUN", help="Run folders of a sweep.")
]
PublishedNames = Annotated[
    str,
    typer.Option(
        metavar="none|baselines|all|NAME,...", help="Published reference figures to show."
    ),
]
OfLabel = Annotated[
    tuple[str, ...],
    typer.Option(
        "--retriever",
        metavar="LABEL",
        help="Label of a retriever in the run. May be repeated.",
        rich_help_panel="Rows",
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Most queries shown.", rich_help_panel="Rows"),
]


@dataclass(frozen=True, slots=True)
class RowOptions:
    """Which rows of a sweep are read, as they were typed. None is what the run has."""

    PANEL: ClassVar[str] = "Rows"
    distractors: Sizes = None
    pool_seeds: OtherPoolSeeds = None
    ks: Ks = (1,)
    data: Data = None

    @property
    def k(self) -> int:
        """The depth at which a gold is a hit. Raise UserError for several."""
        return only_one("--k", self.ks)

    def size(self, run: Run, labels: Sequence[str]) -> int:
        """Return the size: by default the largest at which all labels have rows.

        Raise UserError for several, and for one that the run does not have.
        """
        of_label = {label: set[int]() for label in labels}
        for row in run.rows:
            if row.retriever in of_label:
                of_label[row.retriever].add(row.distractors)
        sizes = sorted(set.intersection(*of_label.values()) or set.union(*of_label.values()))
        if not sizes:
            raise UserError(f"{run.path}: the run has no rows of {', '.join(labels)} yet")
        if self.distractors is None:
            return sizes[-1]
        size = only_one("--distractors", self.distractors)
        if size not in sizes:
            known = ", ".join(map(str, sizes))
            raise UserError(f"--distractors {size}: the run has no such rows. It has {known}")
        return size

    def seeds(self, run: Run) -> tuple[int, ...]:
        """Return the pool seeds, by default the first. Raise UserError for another one."""
        known = tuple(run.manifest["fingerprint"]["pools"]["seeds"])
        if self.pool_seeds is None:
            return known[:1]
        if odd := [seed for seed in self.pool_seeds if seed not in known]:
            raise UserError(
                f"--pool-seeds {odd[0]}: the run has no such pools. It has"
                f" {', '.join(map(str, known))}"
            )
        return self.pool_seeds


def one_label(run: Run, named: Sequence[str], what: str) -> str:
    """Return the retriever that `what` concerns: the one named, or the run's only one.

    Raise UserError if that is not one of the run's.
    """
    if len(named) > 1:
        raise UserError(f"--retriever: {what} concerns one retriever. Name one")
    if not named and len(run.labels) > 1:
        raise UserError(
            f"{run.path}: has several retrievers, and {what} concerns one."
            f" Pass --retriever with one of {', '.join(run.labels)}"
        )
    return known_labels(run, named or run.labels)[0]


def known_labels(run: Run, named: Sequence[str]) -> tuple[str, ...]:
    """Return the labels, each once. Raise UserError for one that the run does not have."""
    for label in named:
        if label not in run.labels:
            raise UserError(
                f"--retriever {label}: no retriever of the run (labels: {', '.join(run.labels)})"
            )
    return tuple(dict.fromkeys(named))
