"""Shortcuts by fields that no loader reads: an annotator's mark may name the gold.

A field of a row is a shortcut if its value selects among the candidates: it equals the label, a
level of the label path, the id, the text, the position or a further field of some, or holds the
text. Which fields there are is found in the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from analysis.audit_data import AuditRow, Scalar
from analysis.shortcuts import Scores, Shortcut, learned, rarity

MOST = 200
"""Shortcuts of fields at most; those of the fields named first."""
_SHORT = 10
"""Shorter texts may be in a field by chance."""
_POSITION = "position"
Values = frozenset[Scalar]
Matches = Callable[[AuditRow, Values], list[bool]]


def field_shortcuts(rows: Sequence[AuditRow]) -> list[Shortcut]:
    """Return the shortcuts by fields of rows and of candidates."""
    return [*row_field_shortcuts(rows), *_by_candidate_fields(rows)][:MOST]


def row_field_shortcuts(rows: Sequence[AuditRow]) -> Iterator[Shortcut]:
    """Yield the shortcuts by fields of rows."""
    names = dict.fromkeys(name for row in rows for name in row.fields or ())
    targets = _targets(rows)
    for name in names:
        values = {value for row in rows for value in (row.fields or {}).get(name, ())}
        for what, matches in targets:
            if what.startswith(_POSITION) and len(values) < 2:  # a constant names no position
                continue
            score = _matching(name, matches)
            # A field that selects nothing, or everything, in every row is no shortcut.
            if any((found := score(row)) is not None and np.ptp(found) > 0 for row in rows):
                yield Shortcut(
                    f"field `{name}`: {what}",
                    "fields",
                    f"the {what} that the field `{name}` names",
                    score,
                )


def _targets(rows: Sequence[AuditRow]) -> list[tuple[str, Matches]]:
    """What of a candidate the value of a field may name."""

    def label(row: AuditRow, values: Values) -> list[bool]:
        return [bool(memory.label) and memory.label in values for memory in row.memories]

    def level(row: AuditRow, values: Values) -> list[bool]:
        paths = [(memory.label or "").split("/") for memory in row.memories]
        return [len(path) > 1 and any(one in values for one in path if one) for path in paths]

    def identity(row: AuditRow, values: Values) -> list[bool]:
        return [name in values for name in row.ids or ()] or [False] * len(row.memories)

    def text(row: AuditRow, values: Values) -> list[bool]:
        every = "\0".join(sorted(v for v in values if isinstance(v, str) and len(v) >= _SHORT))
        texts = [memory.text for memory in row.memories]
        return [bool(t) and (t in values or (len(t) >= _SHORT and t in every)) for t in texts]

    def position(start: int) -> Matches:
        def matches(row: AuditRow, values: Values) -> list[bool]:
            numbers = {value for value in values if type(value) is int}
            return [i + start in numbers for i in range(len(row.memories))]

        return matches

    def other(name: str) -> Matches:
        def matches(row: AuditRow, values: Values) -> list[bool]:
            mine = (row.candidate_fields or {}).get(name, (None,) * len(row.memories))
            return [value is not None and value in values for value in mine]

        return matches

    others = dict.fromkeys(name for row in rows for name in row.candidate_fields or ())
    return [
        ("label", label),
        ("level of the label", level),
        ("id", identity),
        ("text", text),
        (f"{_POSITION} from 0", position(0)),
        (f"{_POSITION} from 1", position(1)),
        *((f"`{name}`", other(name)) for name in others),
    ]


def _matching(name: str, matches: Matches) -> Callable[[AuditRow], Scores | None]:
    def score(row: AuditRow) -> Scores | None:
        values = (row.fields or {}).get(name)
        return None if values is None else np.array(matches(row, frozenset(values)), float)

    return score


def _by_candidate_fields(rows: Sequence[AuditRow]) -> Iterator[Shortcut]:
    names = dict.fromkeys(name for row in rows for name in row.candidate_fields or ())
    for name in names:
        values = _values_of(name)
        numeric = all(
            isinstance(value, int | float) and not isinstance(value, bool)
            for row in rows
            for value in values(row) or ()
            if value is not None
        )
        ways: list[tuple[str, Callable[[AuditRow], Scores | None]]] = [
            ("rarest value", _scored(values, rarity)),
            ("commonest value", _scored(values, lambda found: -rarity(found))),
            ("likeliest value of a gold", learned(rows, values)[1]),
        ]
        if numeric:
            ways += [
                ("largest value", _scored(values, _numbers)),
                ("smallest value", _scored(values, lambda found: _numbers(found, -1))),
            ]
        for what, score in ways:
            yield Shortcut(
                f"candidates' `{name}`: {what}",
                "fields",
                f"the {what} of the candidates' field `{name}`",
                score,
            )


def _values_of(name: str) -> Callable[[AuditRow], tuple[Any, ...] | None]:
    return lambda row: (row.candidate_fields or {}).get(name)


def _scored(
    values: Callable[[AuditRow], tuple[Any, ...] | None], find: Callable[[Sequence[Any]], Scores]
) -> Callable[[AuditRow], Scores | None]:
    def score(row: AuditRow) -> Scores | None:
        found = values(row)
        return None if found is None else find(found)

    return score


def _numbers(values: Sequence[Any], sign: int = 1) -> Scores:
    """The values as ranks, largest (or smallest) first; a missing one is last."""
    places = {v: i for i, v in enumerate(sorted({sign * v for v in values if v is not None}), 1)}
    return np.array([0 if v is None else places[sign * v] for v in values], float)
