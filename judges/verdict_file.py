"""Files of verdicts of one rater, one per row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from recallbed.errors import DataError

Kind = Literal["binary", "grade", "nominal", "pairs"]
PairSet = frozenset[tuple[str, str]]
Label = int | str | PairSet
_LABELS = {
    **dict.fromkeys(("true", "yes", "correct", "pass", "1"), 1),
    **dict.fromkeys(("false", "no", "incorrect", "fail", "0"), 0),
}
NO_VERDICT, UNREADABLE = "no verdict", "not a verdict"
SHOWN = 5


@dataclass(slots=True)
class VerdictFile:
    """Verdicts by item: `labels` has the usable ones, `unjudged` the causes of the others.

    A label is 0 or 1, a grade, a text, or a set of pairs. `unreadable` holds the first rows with a
    value that is neither a verdict nor null. `clusters` holds the group of each item, if requested.
    """

    path: Path
    labels: dict[str, Label] = field(default_factory=dict)
    unjudged: dict[str, str] = field(default_factory=dict)
    unreadable: list[tuple[int, str]] = field(default_factory=list)
    clusters: dict[str, str] = field(default_factory=dict)

    @property
    def items(self) -> set[str]:
        """All items with a row."""
        return {*self.labels, *self.unjudged}

    def causes(self) -> dict[str, int]:
        """Return the number of unjudged items by cause."""
        return dict(sorted(Counter(self.unjudged.values()).items()))


def read_verdicts(
    path: Path,
    keys: Sequence[str] = ("item",),
    label: str = "verdict",
    kind: Kind = "binary",
    cluster: str | None = None,
) -> VerdictFile:
    """Read a file of verdicts. Names of fields may be paths, such as `result.verdict`.

    `keys` name an item together. A verdict that is null, missing or unreadable is unjudged, with
    the cause in its row (`cause` next to it, or `error`). Raise DataError for a repeated
    item, a row without a key or cluster, a field that no row has, and the other kind's verdicts.
    """
    from recallbed.corpus.jsonl import read_jsonl

    found, lines, seen = VerdictFile(path), dict[str, int](), False
    for line, row in read_jsonl(path, Counter()):
        name = " ".join(_name(row, key, path, line) for key in keys)
        if name in lines:
            raise DataError(
                f"item `{name}` has a row on line {lines[name]} too",
                path,
                line,
                todo="Name with --key all fields that tell items apart",
            )
        lines[name] = line
        if cluster is not None:
            found.clusters[name] = _name(row, cluster, path, line)
        present, value = _at(row, label)
        seen |= present
        if value is None:
            found.unjudged[name] = _cause(row, label)
            continue
        parsed = _label(value, kind, path, line)
        if parsed is not None:
            found.labels[name] = parsed
            continue
        found.unjudged[name] = UNREADABLE
        if len(found.unreadable) < SHOWN:
            found.unreadable.append((line, json.dumps(value, ensure_ascii=False)[:80]))
    if not seen:
        raise DataError(f"no row has the field `{label}`", path, todo="Name it with --field")
    return found


def _name(row: Mapping[str, Any], key: str, path: Path, line: int) -> str:
    value = _at(row, key)[1]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"field `{key}` must be a string or a whole number", path, line)
    return str(value)


def _at(row: Mapping[str, Any], path: str) -> tuple[bool, Any]:
    """Return whether the field exists, and its value; a null on the path counts as its value."""
    value: Any = row
    for part in path.split("."):
        if value is None:
            return True, None
        if not isinstance(value, Mapping) or part not in value:
            return False, None
        value = value[part]
    return True, value


def _cause(row: Mapping[str, Any], label: str) -> str:
    parts = label.split(".")[:-1]
    paths = [".".join([*parts[:n], "cause"]) for n in range(len(parts), -1, -1)]
    causes = (_at(row, place)[1] for place in [*paths, "error"])
    return next((cause for cause in causes if isinstance(cause, str)), NO_VERDICT)


def _label(value: Any, kind: Kind, path: Path, line: int) -> Label | None:
    if kind == "pairs":
        return _pair_set(value)
    if kind == "nominal":
        text = json.dumps(value) if isinstance(value, int | float) else value
        return text.strip() or None if isinstance(text, str) else None
    return _number(value, kind, path, line)


def _pair_set(value: Any) -> PairSet | None:
    """Return a list of two-element lists of names or numbers as a set, None for anything else."""
    if not isinstance(value, list):
        return None
    pairs = [tuple(map(str, pair)) for pair in value if _is_pair(pair)]
    return (
        frozenset((gold, predicted) for gold, predicted in pairs)
        if len(pairs) == len(value)
        else None
    )


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(one, str | int) and not isinstance(one, bool) for one in value)
    )


def _number(value: Any, kind: Kind, path: Path, line: int) -> int | None:
    """Return the label of a value, None if it has none; raise DataError for the other kind's."""
    wanted, scale = ("yes or no", "grade") if kind == "binary" else ("a grade", "binary")
    message = f"{json.dumps(value)} is not {wanted}"
    other = DataError(message, path, line, todo=f"Pass --scale {scale}")
    if isinstance(value, bool):
        if kind == "grade":
            raise other
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        if kind == "binary" and value not in (0, 1):
            raise other
        return value
    if not isinstance(value, str):
        return None
    text = value.strip().lower()
    if kind == "binary":
        return _LABELS.get(text)
    return int(text) if text.isascii() and text.isdigit() else None
