"""Options of `task1.score` and `task2.score`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

from judges.options import JudgeOptions
from recallbed.corpus.options import Data, Split
from recallbed.errors import UserError
from recallbed.harness.options import AsJson, Seed

ScorerName = Literal["exact", "match", "judge", "blended"]
AssignmentName = Literal["hungarian", "greedy"]
Assign = Annotated[
    AssignmentName, typer.Option(help="How the pairs of --scorer match become one to one.")
]


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """What is scored, and how. `data` None is the embedded sample."""

    PANEL: ClassVar[str] = "Scoring"
    predictions: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_PREDICTIONS",
            help="Run folder, or rows with benchmark_id and memory_items; .jsonl or .jsonl.gz.",
        ),
    ]
    data: Data = None
    split: Split = "dev"
    scorer: Annotated[
        ScorerName,
        typer.Option(
            help="What pairs memories: equality, similarity, a judge, or similarity with a judge's"
            " review of the pairs and of what is left over."
        ),
    ] = "match"
    assign: Assign = "hungarian"
    seed: Seed = 0
    judge_options: JudgeOptions = JudgeOptions()
    as_json: AsJson = False

    def __post_init__(self) -> None:
        if (self.scorer in ("judge", "blended")) != (self.judge is not None):
            wanted = self.scorer if self.judge is None else "judge"
            raise UserError(
                f"--scorer {wanted} and --judge-model go together: pass both or neither"
            )

    @property
    def judge(self) -> JudgeOptions | None:
        """The judge, which `--scorer judge` and `--scorer blended` have."""
        return self.judge_options.named

    @property
    def by_similarity(self) -> bool:
        """Whether pairs are those of the matcher."""
        return self.scorer in ("match", "blended")

    @property
    def dry_run(self) -> bool:
        """Whether only the requests are counted."""
        return self.judge_options.chat.dry_run
