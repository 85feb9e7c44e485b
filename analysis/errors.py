"""The misses of a retriever: `python -m analysis.errors RUN --retriever L --distractors N`.

The only module of `analysis` that imports retrievers, and only when it runs: a retriever of the run
is built again to explain its scores.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from analysis.groups import Where
from analysis.row_options import Limit, OfLabel, RowOptions, SweepRun, known_labels
from indexes.options import Store
from recallbed.chat_models.session import ChatOptions
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.files import refuse_output, write_atomically
from recallbed.harness.options import AllowCode, Without
from recallbed.harness.run_options import Overwrite
from recallbed.harness.terminal import note, one_line, say, say_json
from recallbed.harness.text_table import terminal_width

if TYPE_CHECKING:
    from analysis.misses import Miss
    from analysis.retriever_agreement import RetrieverAgreement
    from analysis.runs import Run
    from analysis.sides import Side
    from recallbed.corpus.material import Material
    from retrievers.base import Retriever

app = App()
_UNUSED = (
    *("base_url", "temperature", "extra_body", "max_tokens_total", "max_cost", "prices", "dry_run"),
    *("in_flight", "requests_per_minute", "timeout", "retries"),
)
"""Options of chat models that have no effect without a call, or are those of the run."""
_DEFAULTS = ChatOptions()
_SHOWN = 10
"""Misses that are printed as text by default."""


def explained(
    run: Run,
    material: Material,
    found: Sequence[Miss],
    *,
    allow_code: bool = False,
    store: str | None = None,
    chat: ChatOptions = _DEFAULTS,
    models: Sequence[Path] = (),
) -> list[Miss]:
    """Return the misses of one retriever with its reasons for the gold and for the first memory.

    The retriever is built again from the run's manifest, and no chat model is called. Folders of
    local models are looked for in `models`, in the working folder and next to the run. If it cannot
    be built or explains nothing, the misses are returned as they are, with one note on stderr.
    """
    from indexes.embedding_store import choose_store
    from retrievers.base import RunContext
    from retrievers.recorded import RecordedChats, rebuild

    if not found:
        return []
    prints, label = run.manifest["fingerprint"], found[0].ranked.row.retriever
    chats = RecordedChats(prints["retrievers"], chat)
    stored = partial(choose_store, store)
    context = RunContext(prints["seed"], material.data.bank, stored, chats=chats)
    try:
        retriever = rebuild(
            *(prints["retrievers"], label, context),
            allow_code=allow_code,
            models=[*models, Path(), run.path.parent],
        )
        memories = (memory for miss in found for memory in miss.ranked.memories)
        retriever.prepare_for(label, (miss.query.query for miss in found), memories)
        return _with_reasons(retriever, found)
    except (UserError, OSError, ModuleNotFoundError) as error:
        note(f"reasons are left out: {one_line(error)}")
        return list(found)
    finally:
        chats.close()


def _with_reasons(retriever: Retriever, found: Sequence[Miss]) -> list[Miss]:
    """The misses with their reasons; notes count those without one."""
    from retrievers.base import RetrieverError

    causes: Counter[str] = Counter()
    none = other = 0
    result = []
    for miss in found:
        positions = [miss.gold.position, miss.first.position]
        ranked = miss.ranked
        try:
            reasons = retriever.explanations(ranked.query.query, ranked.memories, positions)
        except RetrieverError as error:
            causes[error.cause] += 1
            reasons = None
        else:
            none += reasons is None
        if reasons is not None:
            why_gold, why_first = reasons
            other += not _adds_up(miss.first.score, why_first.score)
            miss = replace(miss, gold_why=why_gold, first_why=why_first)
        result.append(miss)
    of = f"of {len(found)} misses"
    note(*(f"no reason for {n} {of} ({one_line(cause)})" for cause, n in causes.items()))
    if none:
        note(f"no reason for {none} {of}: {found[0].ranked.row.retriever} gives none")
    if other:
        note(
            f"the reasons for {other} {of} do not add up to the scores of the run, which another"
            " version of recallbed or of a library may have made"
        )
    return result


def _adds_up(score: float | None, explained_score: float | None) -> bool:
    """Whether an explanation makes the score of the row, which has seven digits."""
    if score is None or explained_score is None:
        return True
    return abs(score - explained_score) <= 1e-3 * max(abs(score), 1.0)


def _side(run: Run, word: str) -> Side:
    """A label of the run, or `RUN:LABEL` of another."""
    from analysis.sides import Side, parse_side

    return Side(run, word) if word in run.labels else parse_side(word)


def _agreement(
    run: Run, words: tuple[str, str], rows: RowOptions, where: Sequence[str]
) -> RetrieverAgreement:
    from analysis.groups import parse_where
    from analysis.ranked_pools import material_of, ranked_pools
    from analysis.retriever_agreement import agreement_of

    if rows.pool_seeds is not None:
        raise UserError("--agreement averages over all pool seeds. Leave --pool-seeds out")
    a, b = (_side(run, word) for word in words)
    size = rows.size(a.run, [a.label])
    if not where:
        return agreement_of(a, b, size, rows.k)
    material = material_of(run, rows.data)
    kept = parse_where(where, material)
    queries = {
        ranked.query.benchmark_id
        for ranked in ranked_pools(a.run, material, [a.label], [size])
        if kept(ranked)
    }
    return agreement_of(a, b, size, rows.k, queries.__contains__)


@app.command(
    examples=(
        "recallbed errors runs/a --retriever bm25 --distractors 100",
        "recallbed errors runs/a --agreement bm25 minilm --k 10",
    )
)
def errors(
    run: SweepRun,
    retriever: OfLabel = (),
    miss_kind: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="KIND",
            help="Only misses of this kind, such as tied. May be repeated.",
            rich_help_panel="Rows",
        ),
    ] = (),
    agreement: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Count the queries that both, one or neither of two retrievers finds: labels of"
            " this run, or RUN:LABEL.",
        ),
    ] = None,
    where: Where = (),
    *,
    rows: RowOptions,
    kind: Annotated[
        Literal["text", "jsonl", "csv"], typer.Option("--format", help="Format of the output.")
    ] = "text",
    limit: Limit = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write.")] = None,
    overwrite: Overwrite = False,
    allow_code: AllowCode = False,
    store: Store = None,
    models: Annotated[
        tuple[Path, ...],
        typer.Option(
            metavar="FOLDER",
            help="Folder that holds local models of the run. Default: the working folder and the"
            " folder of the run.",
            rich_help_panel="Retrievers",
        ),
    ] = (),
    chat: Annotated[ChatOptions, Without(*_UNUSED)] = _DEFAULTS,
) -> None:
    """List the misses of a retriever: the gold, what was ranked first, and why.

    Without --retriever the misses of all retrievers are counted by kind; with one, each of its
    misses is listed as well: ten as text, all in other formats. The default of --distractors is the
    largest size, of --pool-seeds the first seed, of --k 1. For the reasons the retriever is built
    again from the settings of the run; replies of a chat model are taken from the reply cache, and
    no model is called. A class of your own needs --allow-code.

    --agreement compares two retrievers on the same pools instead: what both, one or neither finds,
    and the recall of an oracle that follows the right one, next to that of the run's hybrids.
    """
    from analysis.groups import parse_where
    from analysis.miss_texts import misses_csv, misses_lines, summary_lines
    from analysis.misses import KINDS, misses
    from analysis.ranked_pools import material_of
    from analysis.runs import read_run

    if out is not None:
        refuse_output(out, overwrite)
    for word in miss_kind:
        if word not in KINDS:
            raise UserError(f"--miss-kind {word}: choose one of {', '.join(KINDS)}")
    finished, width = read_run(run), terminal_width() if out is None else None
    labels = known_labels(finished, retriever)
    if agreement is not None:
        if labels or miss_kind or kind == "csv":
            raise UserError("--agreement excludes --retriever, --miss-kind and --format csv")
        agreed = _agreement(finished, agreement, rows, where)
        as_text = kind == "text"
        _give(out, agreed.lines(width) if as_text else [json.dumps(agreed.to_json())], as_text)
        if agreed.unpaired:
            queries = "query" if agreed.unpaired == 1 else "queries"
            note(f"{agreed.unpaired} {queries} left out: failed on one side or both")
        return
    labels = labels or finished.labels
    size, seeds = rows.size(finished, labels), rows.seeds(finished)
    material = material_of(finished, rows.data)
    keep = parse_where(where, material)
    all_of = [
        misses(finished, material, label, size, rows.k, seeds=seeds, keep=keep) for label in labels
    ]
    summaries = [one.summary for one in all_of]
    if not any(one.scored or one.failed for one in summaries):
        raise UserError(f"no query is left at {size} distractors")
    if len(labels) > 1:
        if miss_kind or limit or kind == "csv":
            raise UserError(
                "--miss-kind, --limit and --format csv list the misses of one retriever."
                f" Pass --retriever with one of {', '.join(labels)}"
            )
        lines = summary_lines(summaries, width, str(keep))
        if kind == "jsonl":
            lines = [json.dumps(one.to_json(), ensure_ascii=False) for one in summaries]
        _give(out, lines, kind == "text")
        note("--retriever with one label lists its misses")
        return
    found = [miss for miss in all_of[0].found if not miss_kind or miss.kind in miss_kind]
    shown = found[: limit or (_SHOWN if kind == "text" else None)]
    listed = explained(
        *(finished, material, shown),
        allow_code=allow_code,
        store=store,
        chat=chat,
        models=models,
    )
    if kind == "text":
        lines = summary_lines(summaries, width, str(keep))
        _give(out, [*lines, *misses_lines(listed, width)], True)
    elif kind == "jsonl":
        _give(out, [json.dumps(one.to_json(), ensure_ascii=False) for one in listed], False)
    else:
        _give(out, misses_csv(listed).rstrip("\n").split("\n"), True)
    if len(shown) < len(found):
        note(f"{len(shown)} of {len(found)} misses. --limit {len(found)} lists all")


def _give(out: Path | None, lines: Sequence[str], as_text: bool) -> None:
    """Write lines to `out`, or print them: text, or JSON with escapes for a terminal."""
    if out is not None:
        write_atomically(out, "".join(f"{line}\n" for line in lines))
        note(f"{out} is written")
        return
    for line in lines:
        (say if as_text else say_json)(line)


if __name__ == "__main__":
    app()
