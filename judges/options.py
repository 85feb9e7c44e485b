"""The options of commands that may ask a judge, declared and read in one place.

`@judge_options` gives them to a command, which puts its own before them:

    @app.command()
    @judge_options
    def score(judge: JudgeOptions | None, predictions: Annotated[Path, typer.Argument()]):
        ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recallbed.chat_models.flags import DEFAULT_CHAT, ChatOptions, chat_options
from recallbed.errors import UserError

if TYPE_CHECKING:
    from recallbed.harness.run_options import OnExisting

KEPT = "verdicts that came are kept; give the command again, with --resume where it has --out"


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """Who judges, and where the verdicts are kept; `out` None is a folder named by fingerprint."""

    chat_model: str
    votes: int = 1
    chats: ChatOptions = field(default_factory=ChatOptions)
    out: Path | None = None
    on_existing: OnExisting = "refuse"
    retry_failed: bool = False


def judge_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command(judge, **its own)` as typer should see it; `judge` is None where none was named.

    A user's mistake in either ends in one line with exit code 2.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = inspect.signature(_read, eval_str=True).parameters

    def outer(**given: Any) -> None:
        from recallbed.errors import DataError
        from recallbed.harness.app import one_line_errors

        on_stop = KEPT if given["judge_model"] else "nothing was written"
        with one_line_errors(DataError, OSError, on_stop=on_stop):
            judge = _read(**{name: given.pop(name) for name in shared})
            command(judge, **given)

    outer.__doc__, outer.__name__ = command.__doc__, command.__name__
    own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    outer.__signature__ = inspect.Signature([*own, *shared.values()])  # type: ignore[attr-defined]
    return outer


@chat_options
def _read(
    judge_model: Annotated[
        str | None,
        typer.Option(
            "--judge-model",
            "--chat-model",
            metavar="NAME",
            help="Who judges: openai:MODEL, local:smollm2, ...",
        ),
    ] = None,
    votes: Annotated[int, typer.Option(min=1, help="How often it is asked; most decide.")] = 1,
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
) -> JudgeOptions | None:
    if overwrite and (resume or retry_failed):
        raise UserError("--overwrite goes with neither --resume nor --retry-failed")
    if judge_model is None:
        if chat.dry_run or out or votes > 1 or resume or overwrite or retry_failed:
            raise UserError(
                "--votes, --out, --resume, --overwrite, --retry-failed and --dry-run are about"
                " verdicts, and no --judge-model is named"
            )
        return None
    on_existing: OnExisting = "resume" if resume or retry_failed else "refuse"
    return JudgeOptions(
        chat_model=judge_model,
        votes=votes,
        chats=chat,
        out=out,
        on_existing="overwrite" if overwrite else on_existing,
        retry_failed=retry_failed,
    )
