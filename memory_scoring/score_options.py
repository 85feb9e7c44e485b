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

ScorerName = Literal["exact", "match", "judge"]
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
        typer.Option(help="What pairs memories: equality, similarity or a judge."),
    ] = "match"
    assign: Assign = "hungarian"
    seed: Seed = 0
    judge_options: JudgeOptions = JudgeOptions()
    as_json: AsJson = False

    def __post_init__(self) -> None:
        if (self.scorer == "judge") != (self.judge is not None):
            raise UserError("--scorer judge and --judge-model go together: pass both or neither")

    @property
    def judge(self) -> JudgeOptions | None:
        """The judge, which only `--scorer judge` has."""
        return self.judge_options.named

    @property
    def dry_run(self) -> bool:
        """Whether only the requests are counted."""
        return self.judge_options.chat.dry_run
