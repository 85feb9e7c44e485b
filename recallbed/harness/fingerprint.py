"""The fingerprint of a run: everything that can change its rows, and how two of them differ."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

JSON = Any
_ROOMS = (
    *("indexes", "judges", "memory_scoring", "memory_systems", "recallbed", "retrievers"),
    *("task1", "task2", "task3", "task4"),
)
OUR_PACKAGES = frozenset((*_ROOMS, "analysis", "benchmarks"))
"""The packages of this project, which a user's own code does not belong to."""


def canonical(value: JSON) -> str:
    """JSON with sorted keys, no spaces and no NaN: equal values give equal bytes."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
    # The bytes of a file name that are not UTF-8 are unpaired surrogates, in JSON escapes.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def short_hash(value: JSON) -> str:
    """Eight hex digits over `canonical(value)`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:8]


def difference(old: JSON, new: JSON, path: str = "") -> str | None:
    """The first field (in sorted order) in which two fingerprints differ, with both values.

    None where they are equal.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(set(old) | set(new)):
            name = f"{path}.{key}" if path else str(key)
            if key not in old or key not in new:
                side = "this" if key in new else "that"
                return f"{name} (only {side} run has it)"
            found = difference(old[key], new[key], name)
            if found:
                return found
        return None
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (one, other) in enumerate(zip(old, new, strict=True)):
            found = difference(one, other, f"{path}[{i}]")
            if found:
                return found
        return None
    if canonical(old) == canonical(new):
        return None
    return f"{path} (that run: {_brief(old)}, this run: {_brief(new)})"


def _brief(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def code_hash() -> str:
    """Sixteen hex digits over the sources of the rooms that can change a row."""
    house = Path(__file__).parents[2]
    digest = hashlib.sha256()
    files = [path for room in _ROOMS for path in (house / room).rglob("*.py")]
    ranking = [house / "analysis" / name for name in ("metrics.py", "rows.py")]
    for path in sorted([*files, *ranking]):
        digest.update(path.relative_to(house).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def file_hash(path: Path) -> str:
    """Sixteen hex digits over one file, of any size."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Python's version and that of each distribution named; "absent" where it isn't installed."""
    found = {"python": platform.python_version()}
    for name in libraries:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def own_version() -> str:
    """The version of recallbed; "0+source" in a checkout that isn't installed."""
    try:
        return metadata.version("recallbed")
    except metadata.PackageNotFoundError:
        return "0+source"
