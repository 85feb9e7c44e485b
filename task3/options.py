"""What a sweep is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from recallbed.chat_models.session import ChatOptions
from recallbed.corpus.options import DataOptions, PoolOptions
from recallbed.harness.options import Seed, numbers
from recallbed.harness.run_options import RunOptions
from retrievers.options import RetrieverOptions

Ks = Annotated[
    tuple[int, ...], typer.Option("--k", metavar="N,...", help="Depths of recall@k."), numbers()
]


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
