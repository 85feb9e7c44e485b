"""Misses as text for a terminal, and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.misses import KINDS, Miss, MissSummary
from analysis.query_views import RankedMemory, labelled
from analysis.show import score_text
from recallbed.harness.terminal import visible
from recallbed.harness.text_table import TextTable, text_block

CSV_COLUMNS = (
    *("query", "text", "retriever", "distractors", "pool_seed", "pool_size", "k", "kind"),
    *("success", "candidate", "gold_rank", "gold_score", "gold", "gold_label", "gold_why"),
    *("first_score", "first", "first_label", "first_why", "fields"),
)
_FORMULA = ("=", "+", "-", "@")


def summary_table(summaries: Sequence[MissSummary], of: str = "") -> TextTable:
    """Return hits, and misses by each kind that occurs, one column per retriever."""
    one = summaries[0]
    table = TextTable(
        f"Queries by outcome at {one.distractors} distractors; a hit has a gold among the first"
        f" {one.k}{f'; {of}' if of else ''}",
        ["outcome", *(summary.retriever for summary in summaries)],
    )
    table.add("scored", *(summary.scored for summary in summaries))
    table.add("hit", *(summary.hits for summary in summaries))
    for kind in KINDS:
        if any(summary.misses[kind] for summary in summaries):
            table.add(kind, *(summary.misses[kind] for summary in summaries))
    table.add("expected misses", *(f"{sum(s.expected.values()):.1f}" for s in summaries))
    for cause in sorted({cause for summary in summaries for cause in summary.failed}):
        table.add(f"failed: {cause}", *(summary.failed.get(cause, 0) for summary in summaries))
    return table


def summary_lines(summaries: Sequence[MissSummary], width: int | None, of: str = "") -> list[str]:
    """Return the table of a summary and what its kinds mean, as lines; `of` says which queries."""
    lines: list[str] = [*summary_table(summaries, of).lines(width), ""]
    for kind, meaning in KINDS.items():
        if any(summary.misses[kind] for summary in summaries):
            lines += text_block(f"{kind}: ", meaning, width)
    return lines


def misses_lines(found: Sequence[Miss], width: int | None) -> list[str]:
    """Return misses as lines, an empty one before each."""
    return [line for miss in found for line in ("", *miss_lines(miss, width))]


def miss_lines(miss: Miss, width: int | None) -> Iterator[str]:
    """Yield a miss as lines of at most `width` cells; None is unlimited."""
    yield f"{miss.query.benchmark_id}: {miss.kind}"
    yield from text_block("  query  ", miss.query.query, width)
    yield from _memory_lines("  gold   ", miss.gold, miss.pool_size, miss.gold_why, width)
    yield from _memory_lines("  first  ", miss.first, miss.pool_size, miss.first_why, width)


def _memory_lines(
    head: str, one: RankedMemory, pool_size: int, why: object, width: int | None
) -> Iterator[str]:
    yield from text_block(head, labelled(one.memory), width)
    known = [f"rank {one.rank_text} of {pool_size}"]
    if one.score is not None:
        known.append(f"score {score_text(one.score)}")
    if why is not None:
        known.append(str(why))
    yield from text_block(" " * len(head), "; ".join(known), width)


def misses_csv(found: Sequence[Miss]) -> str:
    """Return misses as CSV, one line each; texts are safe for a terminal and a spreadsheet."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for miss in found:
        gold, first, row = miss.gold, miss.first, miss.ranked.row
        fields = dict(miss.query.fields)
        writer.writerow(
            [
                *map(cell_text, (miss.query.benchmark_id, miss.query.query, row.retriever)),
                *(row.distractors, miss.ranked.seed, miss.pool_size),
                *(miss.k, miss.kind, miss.success),
                *("" if miss.candidate is None else str(miss.candidate).lower(), gold.rank_text),
                *("" if gold.score is None else gold.score, cell_text(gold.memory.text)),
                *(cell_text(gold.memory.label or ""), cell_text(miss.gold_why or "")),
                *("" if first.score is None else first.score, cell_text(first.memory.text)),
                *(cell_text(first.memory.label or ""), cell_text(miss.first_why or "")),
                _json_text(fields) if fields else "",
            ]
        )
    return stream.getvalue()


def _json_text(value: Mapping[str, Any]) -> str:
    """JSON on one line, characters that steer a terminal as JSON's escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def cell_text(text: object) -> str:
    """Return a text for a cell of CSV: control characters as escapes, and never a formula.

    A spreadsheet takes a cell that begins with =, +, - or @ as a formula, so such a text gets an
    apostrophe in front, which it does not show.
    """
    shown = visible(text)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown
