"""Options of commands that may ask a judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from recallbed.chat_models.session import ChatOptions
from recallbed.errors import UserError
from recallbed.harness.app import NOTHING
from recallbed.harness.run_options import RunOptions


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """The judge and the run of its verdicts. Without `judge_model` there is no judge."""

    PANEL: ClassVar[str] = "Judge"
    judge_model: Annotated[
        str | None,
        typer.Option(
            "--judge-model",
            "--chat-model",
            metavar="NAME",
            help="Judge: openai:MODEL, local:smollm2 or local:FILE.gguf.",
        ),
    ] = None
    votes: Annotated[int, typer.Option(min=1, help="Votes per item (majority decides).")] = 1
    run: RunOptions = RunOptions()
    chat: ChatOptions = ChatOptions()

    def __post_init__(self) -> None:
        asked = self.votes > 1 or self.run != RunOptions() or self.chat.dry_run
        if self.judge_model is None and asked:
            raise UserError(
                "--votes, --out, --resume, --overwrite, --retry-failed, --keep-going and --dry-run"
                " concern verdicts. Name a judge with --judge-model"
            )

    @property
    def model(self) -> str:
        """The judge's name; raises UserError if there is none."""
        if self.judge_model is None:
            raise UserError("no judge named. Try --judge-model openai:MODEL")
        return self.judge_model

    @property
    def named(self) -> JudgeOptions | None:
        """These options if a judge is named, else None."""
        return None if self.judge_model is None else self


def kept_if_judged(options: Mapping[str, Any]) -> str:
    """Return what is printed if a command with these options is interrupted."""
    if options["judge_model"] is None:
        return NOTHING
    return "finished verdicts are kept; repeat the command, with --resume if it has --out"
