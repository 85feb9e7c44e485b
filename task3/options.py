"""What the commands of task 3 are asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import typer

from recallbed.chat_models.session import ChatModelName, ChatOptions
from recallbed.corpus.options import DataOptions, Folds, PoolOptions
from recallbed.errors import UserError
from recallbed.harness.options import Ks, Seed
from recallbed.harness.run_options import RunOptions
from retrievers.options import OneRetrieverOptions, RetrieverOptions

Objective = Literal["floor", "mean"]
"""What `task3.tune` maximises."""


@dataclass(frozen=True, slots=True)
class SweepConfig:
    """One sweep: labelled retrievers over pools of several sizes.

    `ks` are ascending and without repeats. `keep_scores` keeps every score of every pool in
    scores.jsonl.
    """

    PANEL: ClassVar[str] = "Sweep"
    retrievers: RetrieverOptions
    data: DataOptions = DataOptions()
    pools: PoolOptions = PoolOptions()
    ks: Ks = (1, 5, 10)
    seed: Seed = 0
    workers: Annotated[int, typer.Option(min=1, help="Processes that score.")] = 1
    keep_scores: Annotated[
        bool,
        typer.Option(help="Keep all scores in scores.jsonl, for `recallbed export`."),
    ] = False
    run: RunOptions = RunOptions()
    chat: ChatOptions = ChatOptions()


@dataclass(frozen=True, slots=True)
class AnswerConfig:
    """What `task3.answer` is asked to do.

    Without a retriever the whole pool is shown; else the `depth` memories that
    `retrievers.chosen` ranks best, 20 by default.
    """

    PANEL: ClassVar[str] = "Answer"
    chat_model: ChatModelName
    retrievers: OneRetrieverOptions = OneRetrieverOptions()
    depth: Annotated[
        int | None,
        typer.Option(min=1, help="Memories of the retriever that are shown. Default: 20."),
    ] = None
    data: DataOptions = DataOptions()
    pools: PoolOptions = PoolOptions()
    seed: Seed = 0
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply in tokens.")] = 1024
    run: RunOptions = RunOptions()
    chat: ChatOptions = ChatOptions()

    def __post_init__(self) -> None:
        one = self.retrievers
        if not one.retriever and (one.setting or one.label or one.unseen or self.depth):
            raise UserError("--set, --label, --unseen and --depth need a --retriever")

    @property
    def model(self) -> str:
        """The chat model's name; raises UserError if there is none."""
        if self.chat_model is None:
            raise UserError("no chat model named. Try --chat-model openai:MODEL")
        return self.chat_model


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What `task3.tune` is asked to do: fit the settings of `retrievers.chosen`."""

    PANEL: ClassVar[str] = "Tuning"
    retrievers: OneRetrieverOptions
    grid: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="LABEL.KEY=VALUE/VALUE/...",
            help="Values to try, of any label; all combinations. Default: bm25's k1 and b, the"
            " weights of a hybrid of two legs. May be repeated.",
        ),
    ] = ()
    folds: Folds = 5
    objective: Annotated[
        Objective,
        typer.Option(
            help="floor: the worst size's lower 95 % bound of the difference to the best leg (or to"
            " the given settings); mean: the mean of recall over sizes."
        ),
    ] = "floor"
    ks: Ks = (1,)
    data: DataOptions = DataOptions()
    pools: PoolOptions = PoolOptions()
    seed: Seed = 0
    chat: ChatOptions = ChatOptions()
