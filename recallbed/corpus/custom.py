"""A user's own memories: one JSON object a line, with a query, memories and gold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from recallbed.corpus.jsonl import Fields, OnFault, Repairs, new_digest, read_jsonl
from recallbed.corpus.records import Memory, Task3File, Task3Row, bank_of
from recallbed.errors import DataError

REQUIRED = ("query", "memories", "gold")
FIELDS = ("id", *REQUIRED, "session")
_CLOSE = 0.75


@dataclass(frozen=True, slots=True)
class CustomFile:
    """The rows that can be scored, as a task 3 file, and the other rows.

    `file.size` is the number of distractors of the largest pool. `abstentions` are the ids of
    rows whose `gold` is empty: no memory answers them, so no recall is defined. Their memories
    still belong to `bank`, the distinct memories of all rows by text.
    """

    file: Task3File
    abstentions: tuple[str, ...]
    bank: tuple[Memory, ...]


def is_custom(path: Path) -> bool:
    """Whether `path` names such a file (or a pipe), and not the folder of a release."""
    named = path.name.endswith((".jsonl", ".jsonl.gz"))
    return named or (path.exists() and not path.is_dir())


def load_custom(path: Path) -> CustomFile:
    """The rows of `path` (.jsonl or .jsonl.gz).

    A row is

        {"query": str, "memories": [str | {"text": str, "label": str}, ...], "gold": int | [int],
         "id": str, "session": str, ...}

    `gold` holds positions in `memories`, from 0. `id` is the line number by default, `session`
    (what intervals are resampled by) the id. Further fields, whatever their names and values, are
    kept in `Task3Row.fields`.

    Raises DataError, with file and line, for a faulty row, an id used twice, and a file in which no
    row has a gold.
    """
    repairs, digest = Repairs(), new_digest()
    every = list(read_custom(path, repairs, digest))
    rows = tuple(row for row in every if row.golds)
    abstentions = tuple(row.benchmark_id for row in every if not row.golds)
    if not rows:
        raise DataError(
            f"none of {len(abstentions)} rows has a gold, so nothing can be scored",
            path,
            todo="Give `gold` the positions of the memories that answer the query, from 0",
        )
    size = max(len(row.candidates) - len(row.golds) for row in rows)
    return CustomFile(
        Task3File(path, size, rows, digest.hexdigest(), Counter(repairs), 0),
        abstentions,
        bank_of(every),
    )


def read_custom(
    path: Path, repairs: Repairs, digest: Any = None, on_fault: OnFault | None = None
) -> Iterator[Task3Row]:
    """The rows of `path` one by one; a faulty one raises DataError or is handed to `on_fault`."""
    lines: dict[str, int] = {}
    for line, value in read_jsonl(path, repairs, digest, on_fault):
        try:
            row = _row(value, Fields(path, line, repairs))
            before = lines.setdefault(row.benchmark_id, line)
            if before != line:
                raise DataError(
                    f"id `{row.benchmark_id}` already appears on line {before}", path, line
                )
        except DataError as error:
            if on_fault is None:
                raise
            on_fault(error)
            continue
        yield row


def _row(value: dict[str, Any], fields: Fields) -> Task3Row:
    further = {key: member for key, member in value.items() if key not in FIELDS}
    for key in REQUIRED:
        if key not in value:
            raise fields.fault(f"field `{key}` is missing", _advice(key, further))
    name = value.get("id")
    if not isinstance(name, int) or isinstance(name, bool):
        name = fields.optional_text(value, "id")
    given = None if name in (None, "") else str(name)
    name = str(fields.line) if given is None else given
    session = fields.optional_text(value, "session") or None
    memories = [
        _memory(member, where, fields) for where, member in fields.objects(value, "memories")
    ]
    if not memories:
        raise fields.fault("`memories` is empty", "A pool needs at least one memory")
    golds = _golds(value, len(memories), fields)
    return Task3Row(
        benchmark_id=name,
        session_id=session or name,
        query=fields.text(value, "query"),
        candidates=tuple(memories),
        memory_ids=tuple(map(str, range(len(memories)))),
        line=fields.line,
        gold=golds[0] if golds else None,
        more_golds=golds[1:],
        fields=fields.json(further),
        unnamed=given is None and session is None,
    )


def meant(name: str) -> str | None:
    """The field of a row that the name of a further field may be a slip of, such as `golds`."""
    known = [key for key in FIELDS if key != name]
    return next(iter(get_close_matches(name.casefold(), known, 1, _CLOSE)), None)


def _advice(missing: str, further: Collection[str]) -> str:
    """What to do about a missing field: rename the one that is close to it."""
    close = [name for name in further if meant(name) == missing]
    if close:
        return f"Rename `{close[0]}`"
    if missing == "gold":
        return "Write [] if no memory answers the query"
    others = ", ".join(f"`{name}`" for name in further)
    return f"The row has {others}" if others else ""


def _memory(member: Any, where: str, fields: Fields) -> Memory:
    if isinstance(member, str):
        return Memory(fields.text({"text": member}, "text", where))
    return Memory(fields.text(member, "text", where), fields.optional_text(member, "label", where))


def _golds(value: dict[str, Any], memories: int, fields: Fields) -> tuple[int, ...]:
    given = value["gold"]
    golds = given if isinstance(given, list) else [given]
    for gold in golds:
        if isinstance(gold, bool) or not isinstance(gold, int):
            raise fields.fault("`gold` must be a position in `memories`, or a list of positions")
        if not 0 <= gold < memories:
            raise fields.fault(
                f"gold {gold} is no position in {memories} memories", "Positions go from 0"
            )
    if len(set(golds)) < len(golds):
        raise fields.fault("`gold` names a position twice")
    return tuple(sorted(golds))
