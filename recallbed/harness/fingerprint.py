"""The fingerprint of a run: everything that can change its rows, and how two of them differ."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from recallbed import __version__
from recallbed.packages import ROOT, own_packages

JSON = Any


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

    None if they are equal.
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


@cache
def code_identity() -> dict[str, str]:
    """Return version and source hash of recallbed, as a fingerprint holds them.

    The hash is sixteen hex digits over every module of our packages. `analysis` is covered whole:
    rows are made with it, and no list says which of its modules will take part.
    """
    digest = hashlib.sha256()
    for path in sorted(file for name in own_packages() for file in (ROOT / name).rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return {"version": __version__, "sha256": digest.hexdigest()[:16]}


def file_hash(path: Path) -> str:
    """Sixteen hex digits over one file, of any size."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Python's version and that of each distribution named; "absent" if it is not installed."""
    found = {"python": platform.python_version()}
    for name in libraries:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found
