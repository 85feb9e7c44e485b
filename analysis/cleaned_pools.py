"""A view of the pools without their shortcuts, and the same as a file of own memories."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.audit_data import AuditRow
from analysis.encoding_faults import without_faults
from recallbed.corpus.records import Memory

IDS = "ids renumbered at random"
ORDER = "pools shuffled"
FIELDS = "fields dropped"
LABELS = "labels hidden"
MARKS = "marks cut out of the texts"
REPEATS = "repeated texts removed"
PARAPHRASES = "paraphrases of the gold removed"
IN_QUERY = "queries that hold their gold left out"
EQUAL = "later ones of equal rows left out"
CHARACTERS = "characters repaired"
ALWAYS = (FIELDS, IDS, ORDER)
"""Steps that no retriever of recallbed can notice, but for the order in which ties are shown."""
STEPS = (EQUAL, IN_QUERY, MARKS, CHARACTERS, PARAPHRASES, REPEATS, LABELS, *ALWAYS)
"""All steps, in the order in which they are made."""


@dataclass(frozen=True, slots=True)
class CleanedPools:
    """The rows of the view, and how many queries or memories each step changed."""

    rows: tuple[AuditRow, ...]
    changed: Mapping[str, int]

    def to_jsonl(self) -> str:
        """Return the rows as a file of own memories, which `recallbed sweep --data` reads."""
        return "".join(json.dumps(_line(row), ensure_ascii=False) + "\n" for row in self.rows)


def clean(
    rows: Sequence[AuditRow],
    steps: Collection[str],
    *,
    left_out: Mapping[str, Collection[str]],
    paraphrases: Mapping[str, Collection[int]],
    unmarked: Callable[[str], str],
    seed: int = 0,
) -> CleanedPools:
    """Make the view by `steps` of `STEPS`.

    `left_out` are the ids of the queries that a step leaves out, `paraphrases` the positions by
    query that are removed, `unmarked` returns a text without marks. Ids and order follow a hash of
    seed, query and text. A step that leaves nothing of the data changes nothing.
    """
    changed: dict[str, int] = {}
    kept = list(rows)
    for step in STEPS:
        if step not in steps:
            continue
        if step in (EQUAL, IN_QUERY):
            rest = [row for row in kept if row.query_id not in left_out.get(step, ())]
            if rest:
                changed[step] = len(kept) - len(rest)
                kept = rest
            continue
        made = [_STEPS[step](row, paraphrases, unmarked, seed) for row in kept]
        changed[step] = sum(_changes(a, b) for a, b in zip(kept, made, strict=True))
        kept = made
    return CleanedPools(tuple(kept), changed)


def _changes(before: AuditRow, after: AuditRow) -> int:
    if len(before.memories) != len(after.memories):
        return len(before.memories) - len(after.memories)
    return sum(a != b for a, b in zip(before.memories, after.memories, strict=True))


def _picked(row: AuditRow, places: Sequence[int]) -> AuditRow:
    """The row with the memories of `places`, in that order; golds are among them."""
    new = {old: i for i, old in enumerate(places)}
    fields = row.candidate_fields
    return replace(
        row,
        memories=tuple(row.memories[i] for i in places),
        golds=tuple(sorted(new[gold] for gold in row.golds)),
        ids=None if row.ids is None else tuple(row.ids[i] for i in places),
        candidate_fields=None
        if fields is None
        else {name: tuple(values[i] for i in places) for name, values in fields.items()},
    )


def _texts(row: AuditRow, change: Callable[[str], str]) -> AuditRow:
    memories = tuple(Memory(change(memory.text), memory.label) for memory in row.memories)
    return replace(row, memories=memories)


def _unmark(row: AuditRow, _: object, unmarked: Callable[[str], str], seed: int) -> AuditRow:
    return _texts(row, unmarked)


def _repair(row: AuditRow, _: object, unmarked: object, seed: int) -> AuditRow:
    return replace(_texts(row, without_faults), query=without_faults(row.query))


def _without_paraphrases(
    row: AuditRow, paraphrases: Mapping[str, Collection[int]], unmarked: object, seed: int
) -> AuditRow:
    dropped = paraphrases.get(row.query_id, ())
    return _picked(row, [i for i in range(len(row.memories)) if i not in dropped])


def _without_repeats(row: AuditRow, _: object, unmarked: object, seed: int) -> AuditRow:
    """One memory of each text: a gold, or the first."""
    first: dict[str, int] = {row.memories[gold].text: gold for gold in reversed(row.golds)}
    for i, memory in enumerate(row.memories):
        first.setdefault(memory.text, i)
    kept = {*first.values(), *row.golds}
    return _picked(row, [i for i in range(len(row.memories)) if i in kept])


def _without_labels(row: AuditRow, _: object, unmarked: object, seed: int) -> AuditRow:
    return replace(row, memories=tuple(Memory(memory.text) for memory in row.memories))


def _without_fields(row: AuditRow, _: object, unmarked: object, seed: int) -> AuditRow:
    return replace(row, fields=None, candidate_fields=None)


def _renumbered(row: AuditRow, _: object, unmarked: object, seed: int) -> AuditRow:
    if row.ids is None:
        return row
    order = sorted(range(len(row.memories)), key=lambda i: _key("id", row, i, seed))
    number = {place: i for i, place in enumerate(order, 1)}
    return replace(row, ids=tuple(f"m{number[i]}" for i in range(len(row.memories))))


def _shuffled(row: AuditRow, _: object, unmarked: object, seed: int) -> AuditRow:
    places = sorted(range(len(row.memories)), key=lambda i: _key("order", row, i, seed))
    return _picked(row, places)


def _key(what: str, row: AuditRow, place: int, seed: int) -> tuple[bytes, int]:
    text = f"{what}\x00{seed}\x00{row.query_id}\x00{row.memories[place].text}"
    return hashlib.blake2b(text.encode(), digest_size=8).digest(), place


_STEPS: Mapping[
    str, Callable[[AuditRow, Mapping[str, Collection[int]], Callable[[str], str], int], AuditRow]
] = {
    MARKS: _unmark,
    CHARACTERS: _repair,
    PARAPHRASES: _without_paraphrases,
    REPEATS: _without_repeats,
    LABELS: _without_labels,
    FIELDS: _without_fields,
    IDS: _renumbered,
    ORDER: _shuffled,
}


def _line(row: AuditRow) -> dict[str, object]:
    memories = [
        memory.text if memory.label is None else {"text": memory.text, "label": memory.label}
        for memory in row.memories
    ]
    golds = row.golds[0] if len(row.golds) == 1 else list(row.golds)
    return {
        "id": row.query_id,
        "query": row.query,
        "memories": memories,
        "gold": golds,
        "session": row.session,
    }
