"""`python -m task3.answer --chat-model openai:M`: a model chooses a memory and answers with it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recallbed.chat_models.flags import DEFAULT_CHAT, ChatOptions, chat_options
from recallbed.harness.app import AllowCode, App, KeepGoing
from recallbed.harness.failures import with_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from task3.answer_run import AnswerConfig

app = App()


@app.command()
@chat_options
def answer(
    chat_model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="openai:MODEL, local:smollm2, local:FILE.gguf."),
    ] = None,
    retriever: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[LABEL=]NAME",
            help="Shows the model only what this ranks best. Default: the whole pool is shown.",
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
    depth: Annotated[
        int | None, typer.Option(min=1, help="How many of its memories are shown. Default: 20.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Folder above the splits of a release, or a .jsonl of your own memories."
                " Default: the embedded sample."
            )
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of it.")] = "dev",
    pools: Annotated[
        str | None,
        typer.Option(
            metavar="nested|released|as-released",
            help="How pools are made. Default: nested; released (as given) for your own file.",
        ),
    ] = None,
    pool_seed: Annotated[int, typer.Option(min=0, help="Seed of the pools.")] = 0,
    distractors: Annotated[
        int | None, typer.Option(min=1, help="Size of the pools. Default: 100.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first N queries; the bank stays whole.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the order in the prompt and of the intervals.")
    ] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest reply.")] = 1024,
    chat: ChatOptions = DEFAULT_CHAT,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. Default: runs/task3-answer-..., resumed.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start the run in --out again.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Resume, and ask for failed rows again.")
    ] = False,
    keep_going: KeepGoing = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary on stdout.")] = False,
) -> None:
    """Ask a model to answer every query with one memory of its pool, as the paper scores a model.

    Leaves manifest.json, rows.jsonl, summary.json and predictions.jsonl in the run folder; the
    last is what `python -m task3.score` reads.
    """
    from recallbed.errors import DataError, UserError
    from recallbed.harness.app import one_line_errors

    kept = "what was finished is kept; go on with --resume"
    with one_line_errors(DataError, OSError, on_stop=kept):
        if chat_model is None:
            raise UserError("no chat model named. Try --chat-model openai:MODEL")
        if overwrite and (resume or retry_failed):
            raise UserError("--overwrite goes with neither --resume nor --retry-failed")
        if not retriever and (setting or label or depth):
            raise UserError("--set, --label and --depth are for a --retriever, and none is named")

        from indexes.embedding_store import choose_store
        from recallbed.corpus.custom import is_custom
        from recallbed.corpus.options import STRATEGIES
        from recallbed.harness.configurations import parse_configurations
        from task3.answer_run import AnswerConfig

        strategies = {name: name for name in STRATEGIES}
        if pools is not None and pools not in strategies:
            raise UserError(f"--pools {pools}: choose one of {', '.join(strategies)}")
        configurations = (
            parse_configurations(retriever, setting or [], allow_code) if retriever else ()
        )
        labels = [one.label for one in configurations]
        if label is None and len(labels) > 1:
            raise UserError(f"--retriever: name one, or say with --label which of {labels}")
        if label is not None and label not in labels:
            raise UserError(f"--label {label}: no retriever has it (labels: {', '.join(labels)})")
        own = data is not None and is_custom(data)
        go_on = resume or retry_failed
        _run(
            AnswerConfig(
                model=chat_model,
                configurations=configurations,
                label=label or next(iter(labels), None),
                depth=depth or 20,
                data=data,
                split=split,
                pools=None if pools is None else strategies[pools],
                distractors=distractors or (None if own else 100),
                pool_seed=pool_seed,
                limit=limit,
                seed=seed,
                max_tokens=max_tokens,
                out=out,
                on_existing="overwrite" if overwrite else "resume" if go_on else "refuse",
                retry_failed=retry_failed,
                keep_going=keep_going,
                chat=chat,
                store=partial(choose_store, None),
            ),
            as_json,
        )


def _run(config: AnswerConfig, as_json: bool) -> None:
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.plan import print_plans
    from recallbed.harness.terminal import note, say, say_json
    from task3.answer_run import plan_answers, run_answers

    if config.chat.dry_run:
        print_plans(plan_answers(config), as_json)
        return
    outcome = run_answers(config)
    if as_json:
        say_json(canonical(outcome.summary))
    tell = note if as_json else say
    tell(*_lines(outcome.summary))
    note(f"{outcome.path}/ holds predictions.jsonl, rows and summary")


def _lines(summary: Mapping[str, object]) -> list[str]:
    lines = [f"{summary['answered']} of {summary['attempted']} queries answered"]
    for name, key in (
        ("recall@1, exact", "recall_at_1"),
        ("gold among what was shown", "gold_shown"),
        ("gold used, by overlap of the reason", "used_by_overlap"),
    ):
        if isinstance(found := summary[key], dict):
            lines.append(
                f"  {name:<36} {found['mean']:.4f}  95 % [{found['low']:.4f}, {found['high']:.4f}]"
            )
    failed, reasons = summary["failed"], summary["reasons"]
    assert isinstance(failed, dict)
    assert isinstance(reasons, dict)
    for cause, count in failed.items():
        lines.append(f"  failed, {with_reason(cause, reasons.get(cause, ''))}: {count}")
    return lines


if __name__ == "__main__":
    app()
