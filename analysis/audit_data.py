"""The pools of an audit: what a retriever sees, and whatever else the rows of the file hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recallbed.corpus.custom import FIELDS, is_custom
from recallbed.corpus.dataset import load_dataset
from recallbed.corpus.jsonl import read_jsonl
from recallbed.corpus.layout import sample_root
from recallbed.corpus.records import Memory, Task3Row
from recallbed.errors import DataError

Scalar = str | int | float | bool
LONGEST = 10_000
"""Characters of a field that are compared with the candidates."""
_MANY = 1_000
_DEEP = 20
_RELEASED = ("memory_id", "value", "label")
_OWN = ("id", "text", "label")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A query with its pool as it is stored.

    `ids` are the stored ids, one per memory; None if the data has none. `fields` are the other
    fields of the row by path, such as `input.metadata.language`, with all their values;
    `candidate_fields` those of the candidates by name, one value per memory, None if missing.
    """

    query_id: str
    session: str
    query: str
    memories: tuple[Memory, ...]
    golds: tuple[int, ...]
    line: int
    ids: tuple[str, ...] | None = None
    fields: Mapping[str, tuple[Scalar, ...]] | None = None
    candidate_fields: Mapping[str, tuple[Scalar | None, ...]] | None = None

    @property
    def gold_memories(self) -> tuple[Memory, ...]:
        """The gold memories."""
        return tuple(self.memories[i] for i in self.golds)


@dataclass(frozen=True, slots=True)
class AuditData:
    """The rows of one pool size of a split, or of a user's own file (`split` is then its name).

    `raw` is False if the other fields of the rows could not be read, which is so for a pipe.
    `repairs` counts what the loader repaired. `folder` is that of the split, None for a file.
    """

    rows: tuple[AuditRow, ...]
    distractors: int
    split: str
    sample: bool
    own: bool
    raw: bool
    repairs: Mapping[str, int]
    folder: Path | None


def read_audit_data(data: Path | None, split: str, distractors: int | None) -> AuditData:
    """Read the released pools of one size (the smallest by default), or a user's own file.

    Raise DataError for faulty data, and a size that is not there.
    """
    root = data or sample_root()
    own = is_custom(root)
    if own and distractors is not None:
        raise DataError(
            "the pools of this file come in the sizes that it gives them",
            root,
            todo="Leave --distractors out",
        )
    raw = not own or root.is_file()
    loaded = load_dataset(root, split, () if distractors is None else (distractors,))
    file = loaded.smallest if distractors is None else loaded.released[distractors]
    rows = tuple(_rows(file.rows, file.path, own) if raw else map(_bare, file.rows))
    return AuditData(
        rows,
        file.size,
        loaded.split,
        data is None or root.resolve() == sample_root().resolve(),
        own,
        raw,
        dict(sorted(file.repairs.items())),
        None if own else file.path.parents[2],
    )


def _rows(rows: Sequence[Task3Row], path: Path, own: bool) -> Iterator[AuditRow]:
    """The rows with the fields that the loader leaves behind."""
    by_line = {row.line: row for row in rows}
    known = _OWN if own else _RELEASED
    for line, value in read_jsonl(path, Counter()):
        row = by_line.get(line)
        if row is None:  # a query that no memory answers
            continue
        members = _members(value, own)
        names = dict.fromkeys(
            name for member in members if isinstance(member, dict) for name in member
        )
        given = {
            name: tuple(_scalar(member, name) for member in members)
            for name in names
            if name not in known
        }
        ids = row.memory_ids if not own else _own_ids(members)
        rest = {key: inner for key, inner in value.items() if not (own and key in FIELDS)}
        given = {name: found for name, found in given.items() if any(v is not None for v in found)}
        yield _bare(row, ids, scalar_fields(rest), given)


def _bare(
    row: Task3Row,
    ids: tuple[str, ...] | None = None,
    fields: Mapping[str, tuple[Scalar, ...]] | None = None,
    candidate_fields: Mapping[str, tuple[Scalar | None, ...]] | None = None,
) -> AuditRow:
    return AuditRow(
        *(row.benchmark_id, row.session_id, row.query, row.candidates, row.golds, row.line),
        *(ids, fields, candidate_fields),
    )


def _members(value: dict[str, Any], own: bool) -> list[Any]:
    """The raw candidates, which the rest of the row then no longer holds."""
    place = value if own else value["input"]
    found: list[Any] = place.pop("memories" if own else "candidate_memories")
    return found


def _own_ids(members: Sequence[Any]) -> tuple[str, ...] | None:
    """The ids of a user's memories, None if any has none."""
    ids = [member.get("id") if isinstance(member, dict) else None for member in members]
    return None if any(one is None or isinstance(one, dict | list) for one in ids) else _texts(ids)


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(str, values))


def _scalar(member: Any, name: str) -> Scalar | None:
    found = member.get(name) if isinstance(member, dict) else None
    return found if isinstance(found, Scalar) else None


def scalar_fields(row: Mapping[str, Any]) -> dict[str, tuple[Scalar, ...]]:
    """Return the values of a row by path, without its id and its query.

    The values in a list are under one path, `name[]`; long texts are cut, and long lists.
    """
    fields: dict[str, list[Scalar]] = {}
    for name, found in _scalars(row, ""):
        kept = fields.setdefault(name, [])
        if len(kept) < _MANY:
            kept.append(found)
    for name in ("benchmark_id", "input.query"):
        fields.pop(name, None)
    return {name: tuple(values) for name, values in fields.items()}


def _scalars(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Scalar]]:
    if depth > _DEEP:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _scalars(inner, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _scalars(inner, f"{path}[]", depth + 1)
    elif isinstance(value, str):
        yield path, value[:LONGEST]
    elif value is not None:
        yield path, value
