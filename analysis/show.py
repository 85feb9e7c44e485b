"""Single queries of a sweep, in the terminal: `python -m analysis.show RUN --query ID`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.groups import Where
from analysis.row_options import Limit, OfLabel, RowOptions, SweepRun, known_labels, one_label
from recallbed.errors import UserError
from recallbed.harness.app import App
from recallbed.harness.options import AsJson
from recallbed.harness.terminal import note, say, say_json
from recallbed.harness.text_table import TextTable, terminal_width, text_block

if TYPE_CHECKING:
    from analysis.query_views import LabelledRows, LabelRanking, QueryView, RankedMemory
    from analysis.runs import Run

app = App()
Keep = Callable[["LabelledRows"], bool]
GOLD = "GOLD"
_EXAMPLES = 5
"""Queries that a filter shows by default."""


def view_lines(view: QueryView, width: int | None) -> Iterator[str]:
    """Yield a view as lines of text of at most `width` cells; None is unlimited."""
    from analysis.query_views import labelled

    row = view.row
    yield f"{row.benchmark_id}: {view.distractors} distractors, pool seed {view.seed}"
    yield from text_block("query  ", row.query, width)
    for gold in view.golds:
        yield from text_block("gold   ", labelled(gold), width)
    for name, value in row.fields.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield from text_block(f"{name}  ", text, width)
    yield ""
    yield from _ranks(view).lines(width)
    for ranking in view.rankings:
        yield ""
        yield from ranking_lines(ranking, view.pool_size, width)


def _ranks(view: QueryView) -> TextTable:
    several = len(view.golds) > 1
    table = TextTable(
        f"Rank of {'each' if several else 'the'} gold among {view.pool_size} memories",
        ["retriever", "rank", "score", f"at {view.k}"],
        texts=("rank", f"at {view.k}"),
    )
    for ranking in view.rankings:
        ranks = ", ".join(gold.rank_text for gold in ranking.golds) or "-"
        scores = ", ".join(score_text(gold.score) for gold in ranking.golds) or "-"
        table.add(ranking.retriever, ranks, scores, ranking.outcome)
    return table


def ranking_lines(ranking: LabelRanking, pool_size: int, width: int | None) -> Iterator[str]:
    """Yield the memories that a retriever ranked first, golds marked by a word."""
    if ranking.error is not None:
        yield from text_block(f"{ranking.retriever}: failed: ", ranking.error, width)
        return
    yield f"{ranking.retriever}: first {len(ranking.first)} of {pool_size}"
    for place, one in enumerate(ranking.first, 1):
        yield from memory_lines(str(place), one, width)


def memory_lines(head: str, one: RankedMemory, width: int | None) -> Iterator[str]:
    """Yield a memory with its score; `head` names its place."""
    from analysis.query_views import labelled

    mark = GOLD if one.gold else ""
    line = f"{head:>4}  {score_text(one.score):>9}  {mark:<4}  "
    yield from text_block(line, labelled(one.memory), width)


def score_text(score: float | None) -> str:
    """Return a score with four digits after the point, fewer if it is large; `-` for none."""
    if score is None:
        return "-"
    return f"{score + 0.0:.4f}" if abs(score) < 1e4 else f"{score:.6g}"


def _is_query(query: str) -> Keep:
    return lambda rows: rows.any.query.benchmark_id == query


def _filter(
    run: Run,
    named: Sequence[str],
    k: int,
    miss: bool,
    hit: bool,
    a_beats_b: tuple[str, str] | None,
) -> tuple[Keep, tuple[str, ...]]:
    """The filter of hits and misses, and the labels that it shows."""
    if miss + hit + (a_beats_b is not None) > 1:
        raise UserError("--miss, --hit and --a-beats-b exclude each other")
    if a_beats_b is not None:
        a, b = a_beats_b
        for label in a_beats_b:
            if label not in run.labels:
                raise UserError(
                    f"--a-beats-b {a} {b}: no retriever `{label}` in the run"
                    f" (labels: {', '.join(run.labels)})"
                )

        def beats(rows: LabelledRows) -> bool:
            values = rows.success(a, k), rows.success(b, k)
            return values[0] is not None and values[1] is not None and values[0] > values[1]

        return beats, known_labels(run, named or (a, b))
    if not (miss or hit):
        if not named:
            return lambda _: True, (one_label(run, named, "a list of queries"),)
        return lambda _: True, known_labels(run, named)
    label = one_label(run, named, "--hit" if hit else "--miss")

    def outcome(rows: LabelledRows) -> bool:
        success = rows.success(label, k)
        return success is not None and (success == 1) == hit

    return outcome, (label,)


@app.command(
    examples=(
        "recallbed show runs/a --query sample_en_001",
        "recallbed show runs/a --retriever bm25 --miss --where language=english",
    )
)
def show(
    run: SweepRun,
    query: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The query with this id.", rich_help_panel="Rows"),
    ] = None,
    retriever: OfLabel = (),
    miss: Annotated[
        bool, typer.Option(help="Only queries without a hit.", rich_help_panel="Rows")
    ] = False,
    hit: Annotated[
        bool,
        typer.Option(
            help="Only queries with a gold among the first k, however equal scores are ordered.",
            rich_help_panel="Rows",
        ),
    ] = False,
    a_beats_b: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B",
            help="Only queries on which label A has a higher expected success than B.",
            rich_help_panel="Rows",
        ),
    ] = None,
    where: Where = (),
    *,
    rows: RowOptions,
    limit: Limit = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Memories per query.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Show queries of a sweep: golds, their ranks, and the memories ranked first.

    With --query all retrievers are shown, or those of --retriever. Otherwise the first queries that
    the filters let through are shown (five, or --limit), of one retriever; --a-beats-b shows two.
    The default of --distractors is the largest size, of --pool-seeds the first seed, of --k 1. A
    run keeps the first ten memories of a pool; --top 20 needs a sweep with --keep-scores. --json
    prints one object per line. A row that failed shows its cause.
    """
    from analysis.groups import parse_where
    from analysis.query_views import query_rows, query_views
    from analysis.ranked_pools import material_of
    from analysis.rows import TOP
    from analysis.runs import read_run
    from recallbed.harness.run_folder import SCORES

    finished = read_run(run)
    k = rows.k
    if query is not None:
        if miss or hit or a_beats_b or where:
            raise UserError("--query excludes --miss, --hit, --a-beats-b and --where")
        labels = known_labels(finished, retriever or finished.labels)
        if all(row.query != query for row in finished.rows):
            raise UserError(
                f"--query {query}: no such query in the run, such as `{finished.rows[0].query}`"
            )

        keep: Keep = _is_query(query)
    else:
        keep, labels = _filter(finished, retriever, k, miss, hit, a_beats_b)
    size, seeds = rows.size(finished, labels), rows.seeds(finished)
    material = material_of(finished, rows.data)
    let_through = parse_where(where, material)
    found = [
        one
        for one in query_rows(finished, material, labels, size, seeds)
        if keep(one) and let_through(one.any)
    ]
    shown = found if query is not None else found[: limit or _EXAMPLES]
    views = query_views(finished, shown, labels, k, top)
    width = terminal_width()
    for number, view in enumerate(views):
        if as_json:
            say_json(json.dumps(view.to_json(), ensure_ascii=False))
        else:
            say(*["", ""] * (number > 0), *view_lines(view, width))
    if not found:
        note("no query to show: none has such rows")
    elif len(shown) < len(found):
        note(f"{len(shown)} of {len(found)} queries. --limit {len(found)} shows all")
    missing = [label for label in labels if any(label not in one.by_label for one in shown)]
    if missing:
        note(f"no row yet of {', '.join(missing)} at {size} distractors")
    if views and top > TOP and not (finished.path / SCORES).exists():
        note(f"the run keeps the first {TOP} memories of each pool, with --keep-scores all of them")
    known = finished.manifest["fingerprint"]["pools"]["seeds"]
    if len(known) > len(seeds):
        note(f"pool seed {seeds[0]} of {', '.join(map(str, known))}: --pool-seeds names others")


if __name__ == "__main__":
    app()
