"""`python -m task3.sweep --retriever bm25`: recall of retrievers as distractors are added."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recallbed.chat_models.flags import DEFAULT_CHAT, ChatOptions, chat_options
from recallbed.harness.app import AllowCode, App, KeepGoing

if TYPE_CHECKING:
    from task3.sweep_run import SweepConfig

app = App()


@app.command()
@chat_options
def sweep(
    retriever: Annotated[
        list[str] | None,
        typer.Option(
            "--retriever",
            metavar="[LABEL=]NAME",
            help="bm25, minilm, dense, ...; your own as package.module:Class. May be repeated.",
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
    pool_seeds: Annotated[
        str, typer.Option(help="Seeds of the pools; several are averaged.")
    ] = "0",
    distractors: Annotated[
        str | None, typer.Option(help="Sizes to sweep over. Default: 100,300,500,700,1000.")
    ] = None,
    k: Annotated[str, typer.Option("--k", help="Recall at how many?")] = "1,5,10",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the intervals and of random retrievers.")
    ] = 0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first N queries; the bank stays whole.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that score.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. Default: runs/NAME-FINGERPRINT, resumed.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start the run in --out again.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Resume, and score failed rows again.")
    ] = False,
    keep_going: KeepGoing = False,
    keep_scores: Annotated[
        bool,
        typer.Option(
            "--keep-scores",
            help="Keep all scores in scores.jsonl, for `python -m analysis.export`.",
        ),
    ] = False,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|none",
            help="Embedding store. Default: $RECALLBED_STORE, else in the user's cache folder.",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Most embeddings held in memory, such as 512MB; more go on disk."
        ),
    ] = None,
    chat: ChatOptions = DEFAULT_CHAT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary on stdout.")] = False,
) -> None:
    """Score pools of memories and report recall against the number of distractors.

    Leaves manifest.json, rows.jsonl, summary.json, curve.csv and curve.png in the run folder.
    """
    from recallbed.errors import DataError, UserError
    from recallbed.harness.cli import one_line_errors
    from recallbed.harness.configurations import parse_configurations, parse_numbers, parse_size

    kept = "what was finished is kept; go on with --resume"
    with one_line_errors(DataError, OSError, on_stop=kept):
        from indexes.embedding_store import choose_store
        from recallbed.corpus.pools import STRATEGIES
        from task3.sweep_run import SweepConfig

        strategies = {name: name for name in STRATEGIES}
        if pools is not None and pools not in strategies:
            raise UserError(f"--pools {pools}: choose one of {', '.join(strategies)}")
        if (resume and overwrite) or (overwrite and retry_failed):
            raise UserError("--overwrite goes with neither --resume nor --retry-failed")
        config = SweepConfig(
            configurations=parse_configurations(retriever or [], setting or [], allow_code),
            data=data,
            split=split,
            pools=None if pools is None else strategies[pools],
            pool_seeds=parse_numbers("--pool-seeds", pool_seeds, minimum=0),
            distractors=parse_numbers("--distractors", distractors)
            if distractors is not None
            else None,
            ks=parse_numbers("--k", k),
            seed=seed,
            limit=limit,
            workers=workers,
            out=out,
            on_existing="overwrite" if overwrite else "resume" if resume else "refuse",
            retry_failed=retry_failed,
            keep_going=keep_going,
            keep_scores=keep_scores,
            store=partial(choose_store, store),
            max_memory=None if max_memory is None else parse_size("--max-memory", max_memory),
            chat=chat,
        )
        if chat.dry_run:
            _plan(config, as_json)
        else:
            _run(config, as_json)


def _run(config: SweepConfig, as_json: bool) -> None:
    from analysis.curves import draw_run
    from analysis.tables import print_remarks, print_table
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.terminal import note, say_json
    from task3.sweep_run import run_sweep

    outcome = run_sweep(config)
    draw_run(outcome.path, config.ks, outcome.summary)
    if as_json:
        print_remarks(outcome.summary)
        say_json(canonical(outcome.summary))
    else:
        print_table(outcome.path, outcome.summary)
    note(f"{outcome.path}/ holds rows, summary, curve.png and curve.csv")


def _plan(config: SweepConfig, as_json: bool) -> None:
    from dataclasses import asdict

    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.terminal import say, say_json
    from task3.sweep_run import plan_sweep, report

    plans = plan_sweep(config)
    if as_json:
        say_json(canonical({name: asdict(plan) for name, plan in plans.items()}))
    else:
        say(*report(plans))


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
