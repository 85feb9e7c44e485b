"""The single queries of a report: an index of all of them, and blocks of rankings and texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.groups import GROUPINGS, field_names, group_of, groupings
from analysis.ranked_pools import RankedPool, ranked_pools
from analysis.report_blocks import Blocks, in_chunks
from analysis.report_data import ReportCurve
from analysis.rows import SweepRow
from analysis.runs import Run
from recallbed.corpus.material import Material
from recallbed.corpus.records import Task3Row

QUERIES_OF_A_BLOCK = 40
MEMORIES_OF_A_BLOCK = 1000
_OF_WORDS = ("label", "label_path", "direct")
"""Groupings whose groups hold words of the data, as those by further fields do."""
FAILED, NOT_RUN = -1, 0
"""What the index has for the ties of a row that has none."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A row with its place among the pools; `pool` is None if the data is not known."""

    curve: int
    cell: str
    row: SweepRow
    ranked: RankedPool | None


@dataclass(slots=True)
class _Memories:
    """Memories of the pools by a number of the page, in the order in which it needs them."""

    known: dict[int, int] = field(default_factory=dict)

    def number(self, ranked: RankedPool, position: int) -> int:
        return self.known.setdefault(int(ranked.pool.members[position]), len(self.known))


def add_queries(
    blocks: Blocks,
    runs: Sequence[Run],
    curves: Sequence[ReportCurve],
    material: Material | None,
    texts: bool,
) -> dict[str, Any]:
    """Add the index, the rankings and, if `texts`, the texts; return what the page needs of them.

    Without `material` only ids, positions and scores are known.
    """
    by_query: dict[str, list[_Placed]] = {}
    if material is not None:
        by_query = {row.benchmark_id: [] for row in material.pools.rows}
    for placed in _placed(runs, curves, material):
        by_query.setdefault(placed.row.query, []).append(placed)
    asked = {query: found for query, found in by_query.items() if found}
    memories = _Memories()
    names = list(asked)
    for number, chunk in in_chunks(names, QUERIES_OF_A_BLOCK):
        entries = [_entry(asked[name], memories) for name in chunk]
        blocks.add(f"rows-{number}", entries)
    blocks.add("index", _index(asked, material, len(curves), texts))
    every = material.pools.memories if material and texts else ()
    kept = [every[i] for i in memories.known] if every else []
    for number, chunk in in_chunks(kept, MEMORIES_OF_A_BLOCK):
        blocks.add(f"memories-{number}", [[m.text, m.label] for m in chunk])
    return {
        "count": len(names),
        "texts": texts,
        "queriesOfABlock": QUERIES_OF_A_BLOCK,
        "memoriesOfABlock": MEMORIES_OF_A_BLOCK,
        "memories": len(kept),
    }


def _placed(
    runs: Sequence[Run], curves: Sequence[ReportCurve], material: Material | None
) -> Iterator[_Placed]:
    for source, run in enumerate(runs):
        number = {c.label: i for i, c in enumerate(curves) if c.source == source}
        if material is not None:
            for ranked in ranked_pools(run, material):
                row = ranked.row
                cell = f"{row.distractors}/{ranked.seed}"
                yield _Placed(number[row.retriever], cell, row, ranked)
        else:
            seeds = run.manifest["fingerprint"]["pools"]["seeds"]
            seen: Counter[tuple[str, int, str]] = Counter()
            for row in run.rows:
                key = row.retriever, row.distractors, row.query
                cell = f"{row.distractors}/{seeds[seen[key]]}"
                seen[key] += 1
                yield _Placed(number[row.retriever], cell, row, None)


def _entry(placed: Sequence[_Placed], memories: _Memories) -> dict[str, Any]:
    """The pools and rankings of one query.

    A pool lists what any ranking shows of it, [position, memory] each; a ranking names places in
    this list, so that the same memory is not written for each retriever.
    """
    first = placed[0].ranked
    golds = [] if first is None else [memories.number(first, gold) for gold in first.pool.golds]
    pools: dict[str, dict[str, Any]] = {}
    places: dict[str, dict[int, int]] = {}
    rankings = []
    for one in placed:
        row, pool = one.row, one.ranked.pool if one.ranked else None
        if one.cell not in pools:
            size = row.distractors + len(row.golds) if pool is None else len(pool)
            pools[one.cell] = {"size": size, "golds": list(row.golds), "shown": []}
            places[one.cell] = {}
        place, shown = places[one.cell], pools[one.cell]["shown"]
        for position in (*row.golds, *(position for position, _ in row.top)):
            if position not in place:
                place[position] = len(shown)
                memory = memories.number(one.ranked, position) if one.ranked else None
                shown.append([position, memory])
        order = [place[position] for position, _ in row.top]
        found: list[Any] = [one.curve, one.cell, order, [score for _, score in row.top]]
        rankings.append([*found, more] if (more := _more(row)) else found)
    return {"gold": golds, "pools": pools, "rows": rankings}


def _more(row: SweepRow) -> dict[str, Any]:
    """What only some rows have: usage, the first stage, the error."""
    found: dict[str, Any] = {
        "calls": row.calls,
        "tokensIn": row.tokens_in,
        "tokensOut": row.tokens_out,
        "repairs": dict(row.repairs),
        "error": row.error,
    }
    if row.reranked is not None:
        first = row.reranked.first
        found["first"] = None if first is None else [list(tie) for tie in first]
        found["depth"] = row.reranked.depth
        found["estimated"] = row.reranked.estimated
    return {key: value for key, value in found.items() if value}


def _index(
    asked: dict[str, list[_Placed]],
    material: Material | None,
    curves: int,
    texts: bool,
) -> dict[str, Any]:
    """What filters and the list need of all queries, by column."""
    names = list(asked)
    of_query = {row.benchmark_id: row for row in material.pools.rows} if material else {}
    rows = [of_query.get(name) for name in names]
    number = {name: i for i, name in enumerate(names)}
    ties: list[dict[str, list[Any]]] = [{} for _ in range(curves)]
    for name, found in asked.items():
        for one in found:
            column = ties[one.curve].setdefault(one.cell, [NOT_RUN] * len(names))
            column[number[name]] = _ties(one.row)
    known: dict[str, Any] = {}
    if material is not None:
        known["groups"] = _groups(material, rows, texts)
    if material is not None and texts:
        known["text"] = [row.query if row else "" for row in rows]
        known["fields"] = {
            key: _column([_text(row.fields.get(key)) if row else None for row in rows])
            for key in field_names(material)
        }
    return {"id": names, "ties": ties, **known}


def page_groupings(material: Material, texts: bool) -> list[str]:
    """Return the groupings that the page offers; without `texts`, those that hold no word."""
    names = groupings(material)
    return names if texts else [n for n in names if n in GROUPINGS and n not in _OF_WORDS]


def _groups(
    material: Material, rows: Sequence[Task3Row | None], texts: bool
) -> dict[str, dict[str, Any]]:
    """The groupings of queries that do not depend on the pool; without `texts`, no own words."""
    pools = next(iter(material.pools.pools.values()))
    pool_of = {row.benchmark_id: pool for row, pool in zip(material.pools.rows, pools, strict=True)}
    found = {}
    for name in page_groupings(material, texts):
        grouping = group_of(name, material)
        if grouping.by_pool:
            continue
        groups = [grouping.group(row, pool_of[row.benchmark_id]) if row else None for row in rows]
        counts = Counter(group for group in groups if group is not None)
        if len(counts) > 1:
            found[name] = {"title": grouping.text, **_column(groups, grouping.ordered(counts))}
    return found


def _ties(row: SweepRow) -> Any:
    """[above, tied] of the only gold, a list of these for several golds; FAILED without a score."""
    if row.error is not None:
        return FAILED
    pairs = [list(tie) for tie in row.ties]
    return pairs[0] if len(pairs) == 1 else pairs


def _column(values: Sequence[str | None], names: Sequence[str] | None = None) -> dict[str, Any]:
    """Texts that repeat: the distinct ones in order, and the number of each row's, -1 for none."""
    if names is None:
        names = sorted({value for value in values if value is not None})
    number = {name: i for i, name in enumerate(names)}
    return {"names": list(names), "of": [-1 if v is None else number[v] for v in values]}


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
