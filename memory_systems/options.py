"""The options that every run of a memory system has, declared and read in one place.

`@task_options` gives them to a command, which adds its own:

    @app.command()
    @task_options
    def run(options: TaskOptions, judge: Annotated[str | None, typer.Option(help="...")] = None):
        ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recallbed.chat_models.flags import DEFAULT_CHAT, ChatOptions, chat_options
from recallbed.errors import UserError
from recallbed.harness.app import AllowCode, KeepGoing
from recallbed.harness.configurations import Configuration, parse_configurations

if TYPE_CHECKING:
    from recallbed.harness.run_options import OnExisting

KEPT = "what was finished is kept; go on with --resume"


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What a command was asked for.

    `label` is that of the retriever the memory system stands on; the other `configurations` are
    its legs. `data` None is the embedded sample; `out` None a folder in `runs/` named by the
    fingerprint, which is then resumed without asking. `limit` takes the first rows of the file.
    """

    system: str
    configurations: tuple[Configuration, ...]
    label: str
    system_settings: Mapping[str, str]
    chats: ChatOptions
    chat_model: str | None = None
    data: Path | None = None
    split: str = "dev"
    limit: int | None = None
    seed: int = 0
    out: Path | None = None
    on_existing: OnExisting = "refuse"
    retry_failed: bool = False
    keep_going: bool = False
    as_json: bool = False


def task_options(command: Callable[..., None]) -> Callable[..., None]:
    """`command(options, **its own)` as typer should see it: its own options after the shared ones.

    A user's mistake in either ends in one line with exit code 2.
    """
    shared = inspect.signature(_read, eval_str=True).parameters
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    def outer(**given: Any) -> None:
        from recallbed.errors import DataError
        from recallbed.harness.app import one_line_errors

        with one_line_errors(DataError, OSError, on_stop=KEPT):
            options = _read(**{name: given.pop(name) for name in shared})
            command(options, **given)

    outer.__doc__, outer.__name__ = command.__doc__, command.__name__
    own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    outer.__signature__ = inspect.Signature([*shared.values(), *own])  # type: ignore[attr-defined]
    return outer


@chat_options
def _read(
    system: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="none, turns, mem0, ...; your own as package.module:Class.",
        ),
    ] = None,
    system_set: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of the system. May be repeated."),
    ] = None,
    retriever: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[LABEL=]NAME",
            help="What it searches with. Default: bm25. Repeated for the legs of a hybrid.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="LABEL.KEY=VALUE",
            help="A retriever's setting; @FILE for a file of them. May be repeated.",
        ),
    ] = None,
    allow_code: AllowCode = False,
    label: Annotated[
        str | None, typer.Option(help="Which retriever, where others are named as its legs.")
    ] = None,
    chat_model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="openai:MODEL, local:smollm2, local:FILE.gguf."),
    ] = None,
    chat: ChatOptions = DEFAULT_CHAT,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder above the splits of a release. Default: the embedded sample."),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of it; needs no references.")] = "dev",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N rows.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. Default: runs/TASK-SYSTEM-..., resumed.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start the run in --out again.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Resume, and do failed rows again.")
    ] = False,
    keep_going: KeepGoing = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary on stdout.")] = False,
) -> TaskOptions:
    if system is None:
        raise UserError("no memory system named. Try --system turns")
    if overwrite and (resume or retry_failed):
        raise UserError("--overwrite goes with neither --resume nor --retry-failed")
    configurations = parse_configurations(retriever or ["bm25"], setting or [], allow_code)
    on_existing: OnExisting = "resume" if resume or retry_failed else "refuse"
    return TaskOptions(
        system=system,
        configurations=configurations,
        label=_chosen(configurations, label),
        system_settings=_settings(system_set or []),
        chat_model=chat_model,
        chats=chat,
        data=data,
        split=split,
        limit=limit,
        seed=seed,
        out=out,
        on_existing="overwrite" if overwrite else on_existing,
        retry_failed=retry_failed,
        keep_going=keep_going,
        as_json=as_json,
    )


def _chosen(configurations: Sequence[Configuration], label: str | None) -> str:
    labels = [one.label for one in configurations]
    if label is None and len(labels) > 1:
        raise UserError(
            f"--retriever: a memory system searches with one of {', '.join(labels)}."
            " Say which with --label; the others are its legs"
        )
    if label is not None and label not in labels:
        raise UserError(f"--label {label}: no retriever has it (labels: {', '.join(labels)})")
    return label or labels[0]


def _settings(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (equals and key):
            raise UserError(f"--system-set {word}: write it as KEY=VALUE")
        if key in found:
            raise UserError(f"--system-set {word}: `{key}` is set twice")
        found[key] = value
    return found
