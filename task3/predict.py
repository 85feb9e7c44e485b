"""`python -m task3.predict --retriever bm25`: official prediction rows of one retriever."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recallbed.chat_models.session import ChatOptions
from recallbed.corpus.options import DataOptions, PoolOptions
from recallbed.harness.app import App
from recallbed.harness.failures import Failures
from recallbed.harness.options import Seed, Without
from recallbed.harness.run_options import Overwrite
from retrievers.options import OneRetrieverOptions

app = App()


@app.command(
    examples=(
        "recallbed predict --retriever bm25 --out bm25.jsonl",
        "recallbed predict --retriever hybrid --retriever minilm --label hybrid",
    )
)
def predict(
    retrievers: OneRetrieverOptions,
    data: Annotated[DataOptions, Without("limit")],
    pools: Annotated[PoolOptions, Without("pools", "pool_seeds")],
    chat: ChatOptions,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")] = Path(
        "predictions.jsonl"
    ),
    overwrite: Overwrite = False,
) -> None:
    """Write a retriever's choices as official predictions.

    One row {benchmark_id, answer, reason, selected_memory_id} per query of a released pool, in
    file order. Without --distractors the smallest released pool is used.
    """
    import gzip

    from recallbed.chat_models.session import open_chats
    from recallbed.errors import UserError
    from recallbed.harness.files import refuse_output, write_atomically
    from recallbed.harness.plan import checked_plans, print_plans
    from recallbed.harness.run_folder import encode_row
    from recallbed.harness.terminal import note
    from retrievers.registry import build_retrievers
    from task3.answers import answer_all, bank_of
    from task3.released import load_released

    label = retrievers.chosen
    refuse_output(out, overwrite)
    file = load_released(data.data, data.split, pools.size)
    with open_chats(chat) as chats:
        run = retrievers.context(seed, bank_of(file), chats)
        retriever = build_retrievers(retrievers.configurations, run)[label]
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
