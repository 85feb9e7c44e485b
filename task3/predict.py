"""`python -m task3.predict --retriever bm25`: official prediction rows of one retriever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recallbed.chat_models.session import ChatOptions
from recallbed.corpus.options import DataOptions, PoolOptions
from recallbed.harness.app import App
from recallbed.harness.failures import Failures
from recallbed.harness.options import Seed, Without
from recallbed.harness.run_options import Overwrite
from retrievers.options import OneRetrieverOptions

if TYPE_CHECKING:
    from recallbed.corpus.records import Task3File
    from retrievers.base import Retriever

app = App()
BATCH = 16


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
    file order. Without --distractors the smallest released pool is used. Queries of sessions that
    the retriever was trained on are refused, or left out with --unseen.
    """
    import gzip

    from recallbed.chat_models.session import open_chats
    from recallbed.corpus.records import bank_of
    from recallbed.errors import UserError
    from recallbed.harness.files import refuse_output, write_atomically
    from recallbed.harness.plan import checked_plans, print_plans
    from recallbed.harness.run_folder import encode_row
    from recallbed.harness.terminal import note
    from retrievers.registry import build_retrievers
    from retrievers.unseen import asked_of, unseen_rows
    from task3.released import load_released

    label = retrievers.chosen
    refuse_output(out, overwrite)
    file = load_released(data.data, data.split, pools.size)
    with open_chats(chat) as chats:
        run = retrievers.context(seed, bank_of(file.rows), chats)
        retriever = build_retrievers(retrievers.configurations, run)[label]
        kept = unseen_rows([(label, retriever)], asked_of(file.rows), retrievers.unseen)
        file = replace(file, rows=tuple(file.rows[i] for i in kept))
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


@dataclass(frozen=True, slots=True)
class Answers:
    """Prediction rows in file order, queries without one by cause, and the number of ties."""

    rows: Sequence[Mapping[str, str]]
    failed: Counter[str]
    tied: int


def answer_all(label: str, retriever: Retriever, file: Task3File, seed: int) -> Answers:
    """Choose a memory for every query that the retriever can score; `label` becomes the reason.

    Raise UserError if the retriever cannot be prepared, or if its scores depend on the order of
    the queries.
    """
    import numpy as np

    from analysis.official import prediction_row
    from recallbed.harness.progress import progress
    from retrievers.base import NotScored
    from task3.order_check import check_order

    memories = (memory for row in file.rows for memory in row.candidates)
    retriever.prepare_for(label, (row.query for row in file.rows), memories)
    check_order(
        label,
        retriever,
        [row.benchmark_id for row in file.rows],
        lambda i: (file.rows[i].query, file.rows[i].candidates),
        seed,
    )
    rows: list[Mapping[str, str]] = []
    failed: Counter[str] = Counter()
    ties = 0
    with progress(label, len(file.rows)) as advance:
        for start in range(0, len(file.rows), BATCH):
            batch = file.rows[start : start + BATCH]
            results = retriever.results([r.query for r in batch], [r.candidates for r in batch])
            for row, result in zip(batch, results, strict=True):
                if isinstance(result, NotScored):
                    failed[result.cause] += 1
                    continue
                chosen, tied = prediction_row(label, row, np.asarray(result.scores), seed)
                ties += tied > 1
                rows.append(chosen)
            advance(len(batch))
    return Answers(rows, failed, ties)


if __name__ == "__main__":
    app()
