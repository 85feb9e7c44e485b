"""`python -m task3.predict --retriever bm25`: official prediction rows of one retriever."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recallbed.chat_models.flags import DEFAULT_CHAT, ChatOptions, chat_options
from recallbed.harness.app import AllowCode, App
from recallbed.harness.failures import Failures

if TYPE_CHECKING:
    from recallbed.harness.configurations import Configuration

app = App()


@app.command()
@chat_options
def predict(
    retriever: Annotated[
        list[str] | None,
        typer.Option(
            "--retriever",
            metavar="[LABEL=]NAME",
            help="bm25, minilm, dense, ...; your own as package.module:Class. Repeated for legs.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="LABEL.KEY=VALUE",
            help="A setting of it; @FILE for a file of them. May be repeated.",
        ),
    ] = None,
    allow_code: AllowCode = False,
    label: Annotated[
        str | None, typer.Option(help="Whose answers, where others are named as its legs.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder above the splits of a release. Default: the embedded sample."),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of it; needs no references.")] = "dev",
    size: Annotated[
        int | None, typer.Option(min=1, help="Which released pool. Default: the smallest.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the choice among ties and of random retrievers.")
    ] = 0,
    chat: ChatOptions = DEFAULT_CHAT,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("predictions.jsonl"),
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file if it is there.")
    ] = False,
) -> None:
    """Choose one memory for every query of a released pool.

    Writes a row {benchmark_id, answer, reason, selected_memory_id} a query, in file order.
    """
    from recallbed.errors import DataError, UserError
    from recallbed.harness.app import one_line_errors
    from recallbed.harness.configurations import parse_configurations
    from recallbed.harness.files import refuse_output

    with one_line_errors(DataError, OSError):
        configurations = parse_configurations(retriever or [], setting or [], allow_code)
        labels = [one.label for one in configurations]
        if label is None and len(labels) > 1:
            raise UserError(
                "--retriever: a file holds the answers of one. Name only one, or say whose with"
                " --label"
            )
        if label is not None and label not in labels:
            raise UserError(f"--label {label}: no retriever has it (labels: {', '.join(labels)})")
        refuse_output(out, overwrite)
        _run(configurations, label or labels[0], data, split, size, seed, chat, out)


def _run(
    configurations: tuple[Configuration, ...],
    label: str,
    data: Path | None,
    split: str,
    size: int | None,
    seed: int,
    chat: ChatOptions,
    out: Path,
) -> None:
    import gzip

    from indexes.embedding_store import choose_store
    from recallbed.chat_models.session import open_chats
    from recallbed.errors import UserError
    from recallbed.harness.files import write_atomically
    from recallbed.harness.plan import checked_plans, print_plans
    from recallbed.harness.run_folder import encode_row
    from recallbed.harness.terminal import note
    from retrievers.base import RunContext
    from retrievers.registry import build_retrievers
    from task3.answers import answer_all, bank_of
    from task3.released import load_released

    file = load_released(data, split, size)
    with open_chats(chat) as chats:
        run = RunContext(seed, bank_of(file), partial(choose_store, None), chats=chats)
        retriever = build_retrievers(configurations, run)[label]
        try:
            answers = answer_all(label, retriever, file, seed)
        except MemoryError as error:
            raise UserError(f"{label}: out of memory ({error})") from error
        if chat.dry_run:
            print_plans(checked_plans(chats.plans()))
            return
    causes = " ".join(str(Failures(answers.failed.elements())).split())
    if not answers.rows:
        raise UserError(f"not one of {len(file.rows)} queries could be scored ({causes})")
    content = b"".join(map(encode_row, answers.rows))
    write_atomically(out, gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)
    note(
        f"{out}: {len(answers.rows)} rows, {answers.tied} of them chosen among equal scores",
    )
    if causes:
        failed = answers.failed.total()
        note(f"no row for {failed} of {len(file.rows)} queries ({causes})")


if __name__ == "__main__":
    app()
