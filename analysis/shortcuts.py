"""Rankers that read no text: each sees one thing of a pool, such as the stored ids.

A shortcut gives every memory of a pool a score, higher is better, or None if it says nothing about
the pool. `shortcuts_of` lists those that apply to some data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.audit_data import AuditRow

Scores = NDArray[np.float64]
TENTHS = 10
_DIGITS = re.compile(r"(\d+)")
MARK = re.compile(r"\s*\[[A-Z][A-Z_ -]{2,}(?::[^\]]*)?(?:\]|$)")
"""An annotator's mark in a text, such as ` [ERROR: unsupported]`."""


@lru_cache(1 << 16)
def _script(text: str) -> str | None:
    from indexes.language import script_of

    return script_of(text)


@lru_cache(1 << 16)
def _language(text: str) -> str:
    from indexes.language import language_of

    return language_of(text)


@dataclass(frozen=True)
class Shortcut:
    """A ranker: its name, the group of its row in an audit, and what it ranks by in words."""

    name: str
    group: str
    by: str
    score: Callable[[AuditRow], Scores | None]


def shortcuts_of(rows: tuple[AuditRow, ...]) -> list[Shortcut]:
    """Return the shortcuts for these rows, whether or not any of them says something."""
    from analysis.field_shortcuts import field_shortcuts

    return [
        *_id_shortcuts(),
        *_position_shortcuts(),
        Shortcut("shortest", "length", "the shortest text", lambda row: -_lengths(row)),
        Shortcut("longest", "length", "the longest text", _lengths),
        *_label_shortcuts(rows),
        *_language_shortcuts(),
        *_repeat_shortcuts(rows),
        *_mark_shortcuts(),
        *field_shortcuts(rows),
    ]


def rarity(values: Sequence[Any]) -> Scores:
    """Return minus the number of times that each value occurs among the values."""
    counts = Counter(values)
    return -np.array([counts[value] for value in values], float)


def _id_shortcuts() -> list[Shortcut]:
    def ids(find: Callable[[tuple[str, ...]], Scores]) -> Callable[[AuditRow], Scores | None]:
        return lambda row: None if row.ids is None else find(row.ids)

    def rarest_smallest(ids: tuple[str, ...]) -> Scores:
        keys = list(zip(-rarity(ids), -_smallest(ids), strict=True))
        return _smallest_first(keys)

    return [
        Shortcut("smallest id", "ids", "the smallest number in the stored id", ids(_smallest)),
        Shortcut(
            "largest id",
            "ids",
            "the largest number in the stored id",
            ids(lambda found: -_smallest(found)),
        ),
        Shortcut("rarest id", "ids", "the stored id that is rarest in the pool", ids(rarity)),
        Shortcut(
            "commonest id",
            "ids",
            "the stored id that is commonest in the pool",
            ids(lambda found: -rarity(found)),
        ),
        Shortcut(
            "rarest id, then smallest",
            "ids",
            "the rarest stored id in the pool, then the smallest number",
            ids(rarest_smallest),
        ),
    ]


def _smallest(ids: Sequence[str]) -> Scores:
    """Numbers in an id count as numbers: m2 is before m10."""
    return _smallest_first([_natural(name) for name in ids])


@lru_cache(1 << 16)
def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    parts = _DIGITS.split(name[:200])
    return tuple((1, int(p), "") if p.isdecimal() else (0, 0, p) for p in parts if p)


def _smallest_first(keys: Sequence[Any]) -> Scores:
    place = {key: i for i, key in enumerate(sorted(set(keys)))}
    return -np.array([place[key] for key in keys], float)


def _position_shortcuts() -> list[Shortcut]:
    def tenth(number: int) -> Callable[[AuditRow], Scores | None]:
        def score(row: AuditRow) -> Scores | None:
            size = len(row.memories)
            found: Scores = (np.arange(size) * TENTHS // size == number).astype(float)
            return found if size >= TENTHS else None

        return score

    def first(row: AuditRow) -> Scores:
        return -np.arange(len(row.memories), dtype=float)

    return [
        Shortcut("first position", "position", "the first position in the file", first),
        Shortcut("last position", "position", "the last position in the file", lambda r: -first(r)),
        *(
            Shortcut(
                f"tenth {number + 1} of positions",
                "position",
                f"a position in tenth {number + 1} of the pool",
                tenth(number),
            )
            for number in range(TENTHS)
        ),
    ]


def _lengths(row: AuditRow) -> Scores:
    return np.array([len(memory.text) for memory in row.memories], float)


def _labels(row: AuditRow) -> list[str] | None:
    found = [memory.label for memory in row.memories]
    return None if not any(found) else [label or "" for label in found]


def _label_shortcuts(rows: tuple[AuditRow, ...]) -> list[Shortcut]:
    def rare(sign: int) -> Callable[[AuditRow], Scores | None]:
        def score(row: AuditRow) -> Scores | None:
            labels = _labels(row)
            return None if labels is None else sign * rarity(labels)

        return score

    common, lift = learned(rows, _labels)
    return [
        Shortcut(
            "commonest gold label",
            "label",
            "the label that most golds of other sessions have",
            common,
        ),
        Shortcut(
            "likeliest label of a gold",
            "label",
            "the label whose memories are most often gold in other sessions",
            lift,
        ),
        Shortcut("rarest label", "label", "the label that is rarest in the pool", rare(1)),
        Shortcut("commonest label", "label", "the label that is commonest in the pool", rare(-1)),
    ]


def learned(
    rows: Sequence[AuditRow], values_of: Callable[[AuditRow], Sequence[Any] | None]
) -> tuple[Callable[[AuditRow], Scores | None], Callable[[AuditRow], Scores | None]]:
    """Return two rankers by a value of the candidates that are learned from the other sessions.

    The first scores a value by the golds that have it, the second by their share of all memories
    with it, (golds + 1/2) / (memories + 1). The session of a row is left out of its counts.
    """
    held: dict[str, tuple[Counter[Any], Counter[Any]]] = {}
    golds: Counter[Any] = Counter()
    memories: Counter[Any] = Counter()
    for row in rows:
        values = values_of(row)
        if values is None:
            continue
        mine = held.setdefault(row.session, (Counter(), Counter()))
        for counts in (mine, (golds, memories)):
            counts[0].update(values[i] for i in row.golds)
            counts[1].update(values)

    def common(row: AuditRow) -> Scores | None:
        values = values_of(row)
        if values is None:
            return None
        mine = held[row.session][0]
        return np.array([golds[value] - mine[value] for value in values], float)

    def lift(row: AuditRow) -> Scores | None:
        values = values_of(row)
        if values is None:
            return None
        mine = held[row.session]
        known = {v: (golds[v] - mine[0][v], memories[v] - mine[1][v]) for v in set(values)}
        share = {v: (hits + 0.5) / (count + 1) for v, (hits, count) in known.items()}
        return np.array([share[value] for value in values], float)

    return common, lift


def _language_shortcuts() -> list[Shortcut]:
    def same(find: Callable[[str], str | None]) -> Callable[[AuditRow], Scores]:
        def score(row: AuditRow) -> Scores:
            asked = find(row.query)
            return np.array([find(memory.text) == asked for memory in row.memories], float)

        return score

    def minority(row: AuditRow) -> Scores:
        return rarity([_script(memory.text) for memory in row.memories])

    return [
        Shortcut("script of the query", "language", "the script of the query", same(_script)),
        Shortcut("language of the query", "language", "the language of the query", same(_language)),
        Shortcut("rarest script", "language", "the script that is rarest in the pool", minority),
    ]


def _repeat_shortcuts(rows: Sequence[AuditRow]) -> list[Shortcut]:
    texts = Counter(memory.text for row in rows for memory in row.memories)

    def in_pool(row: AuditRow) -> Scores:
        return rarity([memory.text for memory in row.memories])

    def in_bank(row: AuditRow) -> Scores:
        return -np.array([texts[memory.text] for memory in row.memories], float)

    found = []
    for where, score in (("in the pool", in_pool), ("in all pools", in_bank)):
        found += [
            Shortcut(f"text rarest {where}", "repeats", f"the text that is rarest {where}", score),
            Shortcut(
                f"text commonest {where}",
                "repeats",
                f"the text that is repeated most {where}",
                _reversed(score),
            ),
        ]
    return found


def _reversed(score: Callable[[AuditRow], Scores]) -> Callable[[AuditRow], Scores]:
    return lambda row: -score(row)


def without_marks(text: str) -> str:
    """Return a text without the marks of annotators, or as it is if nothing else is in it."""
    return MARK.sub("", text) if MARK.sub("", text).strip() else text


@lru_cache(1 << 16)
def _is_marked(text: str) -> bool:
    return MARK.search(text) is not None


def _mark_shortcuts() -> list[Shortcut]:
    def marked(row: AuditRow) -> Scores:
        return np.array([_is_marked(memory.text) for memory in row.memories], float)

    return [
        Shortcut(
            "marked text", "marks", "an annotator's mark in the text, such as [ERROR: ...]", marked
        ),
        Shortcut("unmarked text", "marks", "a text without an annotator's mark", _reversed(marked)),
    ]
