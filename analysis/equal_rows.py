"""Rows that are equal within a split, or in two splits of a release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.audit_data import AuditRow
from indexes.language import normalise
from recallbed.corpus.layout import released_sizes
from recallbed.corpus.pools import pool_hash
from recallbed.corpus.tracks import load_task3
from recallbed.errors import DataError


@dataclass(frozen=True, slots=True)
class EqualRow:
    """A row, and an earlier one of the split, or one of another split, that is equal in `what`."""

    query_id: str
    other: str
    split: str | None
    what: str


def query_key(text: str) -> str:
    """Return a query without regard to case, spaces and invisible characters."""
    return " ".join(normalise(text).split())


def equal_within(rows: Sequence[AuditRow]) -> Iterator[EqualRow]:
    """Yield the rows whose query, or whose query and golds, an earlier row has."""
    seen: dict[str, tuple[str, set[str]]] = {}
    for row in rows:
        key, golds = query_key(row.query), {memory.text for memory in row.gold_memories}
        if key in seen:
            other, theirs = seen[key]
            what = "query and gold" if golds & theirs else "query, with another gold"
            yield EqualRow(row.query_id, other, None, what)
        else:
            seen[key] = row.query_id, golds


@dataclass(frozen=True, slots=True)
class OtherSplit:
    """What is compared of another split: ids by session, query and pool."""

    name: str
    sessions: Mapping[str, str]
    queries: Mapping[str, str]
    pools: Mapping[str, str]


def other_splits(folder: Path, distractors: int) -> list[OtherSplit]:
    """Read the pools of one size of the other splits next to `folder`.

    A split without that size is left out. Raise DataError for a faulty one.
    """
    found = []
    for place in sorted(
        p for p in folder.parent.iterdir() if (p / "task3").is_dir() and p != folder
    ):
        try:
            sizes = released_sizes(place)
        except DataError:
            continue
        if distractors not in sizes:
            continue
        rows = load_task3(place, distractors).rows
        found.append(
            OtherSplit(
                place.name,
                {row.session_id: row.benchmark_id for row in rows},
                {query_key(row.query): row.benchmark_id for row in rows},
                {pool_hash(row.candidates): row.benchmark_id for row in rows},
            )
        )
    return found


def equal_across(rows: Sequence[AuditRow], others: Sequence[OtherSplit]) -> Iterator[EqualRow]:
    """Yield the rows whose query, pool or session another split has, once per split."""
    for row in rows:
        for other in others:
            known = {
                "query": other.queries.get(query_key(row.query)),
                "pool": other.pools.get(pool_hash(row.memories)),
                "session": other.sessions.get(row.session),
            }
            same = [what for what, name in known.items() if name is not None]
            if same:
                name = next(name for name in known.values() if name is not None)
                yield EqualRow(row.query_id, name, other.name, ", ".join(same))
