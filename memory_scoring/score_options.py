"""The options of `task1.score` and `task2.score`, declared and read in one place.

`@score_options` gives them to a command, which adds its own behind them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from judges.options import KEPT, JudgeOptions
from recallbed.chat_models.flags import DEFAULT_CHAT, ChatOptions, chat_options
from recallbed.errors import UserError

if TYPE_CHECKING:
    from recallbed.harness.run_options import OnExisting

ScorerName = Literal["exact", "match", "judge"]
AssignmentName = Literal["hungarian", "greedy"]


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """What a scoring command was asked for. `data` None is the embedded sample."""

    predictions: Path
    data: Path | None = None
    split: str = "dev"
    scorer: ScorerName = "match"
    assign: AssignmentName = "hungarian"
    judge: JudgeOptions | None = None
    dry_run: bool = False
    seed: int = 0
    as_json: bool = False


def score_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command(options, **its own)` as typer should see it: its own options after the shared ones.

    A user's mistake in either ends in one line with exit code 2.
    """
    shared = inspect.signature(_read, eval_str=True).parameters
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    def outer(**given: Any) -> None:
        from recallbed.errors import DataError
        from recallbed.harness.app import one_line_errors

        on_stop = KEPT if given["scorer"] == "judge" else "nothing was written"
        with one_line_errors(DataError, OSError, ModuleNotFoundError, on_stop=on_stop):
            options = _read(**{name: given.pop(name) for name in shared})
            command(options, **given)

    outer.__doc__, outer.__name__ = command.__doc__, command.__name__
    own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    outer.__signature__ = inspect.Signature([*shared.values(), *own])  # type: ignore[attr-defined]
    return outer


@chat_options
def _read(
    predictions: Annotated[
        Path,
        typer.Argument(help="Rows with benchmark_id and memory_items; .jsonl or .jsonl.gz."),
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder above the splits of a release. Default: the embedded sample."),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of it; needs references.")] = "dev",
    scorer: Annotated[
        ScorerName,
        typer.Option(help="What pairs memories up: equality, likeness, or a chat model."),
    ] = "match",
    assign: Annotated[
        AssignmentName, typer.Option(help="How `match` makes its pairs one to one.")
    ] = "hungarian",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the intervals' bootstrap.")] = 0,
    chat_model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The judge: openai:MODEL, local:smollm2, ..."),
    ] = None,
    votes: Annotated[int, typer.Option(min=1, help="Verdicts a session; most of them decide.")] = 1,
    chat: ChatOptions = DEFAULT_CHAT,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the verdicts. Default: runs/TASK-judge-..., resumed."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on in --out.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start --out again.")] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Resume, and judge the unjudged again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> ScoreOptions:
    if overwrite and (resume or retry_failed):
        raise UserError("--overwrite goes with neither --resume nor --retry-failed")
    if (scorer == "judge") != (chat_model is not None):
        raise UserError("--scorer judge and --chat-model go together: give both, or neither")
    on_existing: OnExisting = "resume" if resume or retry_failed else "refuse"
    judge = None
    if chat_model is not None:
        judge = JudgeOptions(
            chat_model=chat_model,
            votes=votes,
            chats=chat,
            out=out,
            on_existing="overwrite" if overwrite else on_existing,
            retry_failed=retry_failed,
        )
    return ScoreOptions(
        predictions, data, split, scorer, assign, judge, chat.dry_run, seed, as_json
    )
