"""An unexpected exception as the cause of a failure."""

from __future__ import annotations

import site
import sysconfig
import traceback
from functools import cache
from pathlib import Path

_HOUSE = Path(__file__).resolve().parents[1]
_PACKAGES = frozenset(
    (
        *("analysis", "chat_models", "corpus", "harness", "indexes", "judge", "memory"),
        *("retrievers", "task1", "task2", "task3", "task4"),
    )
)
_INSTALLED = ("stdlib", "platstdlib", "purelib", "platlib")


def cause_of(error: BaseException) -> str:
    """`ZeroDivisionError: division by zero (mymodule.py:12)`, on one line.

    The place is the innermost line of a user's own code that the exception passed through; it is
    left out if there is none.
    """
    words = f"{type(error).__name__}: {error}".split()
    found = " ".join(words).encode("utf-8", "backslashreplace").decode()
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if _is_users(f.filename)]
    return f"{found} ({places[-1]})" if places else found


@cache
def _is_users(file: str) -> bool:
    """Whether a file is neither ours nor installed (the standard library is installed too)."""
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    paths = sysconfig.get_paths()
    installed = [
        Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    installed.append(Path(site.getusersitepackages()).resolve())
    if any(path.is_relative_to(place) for place in installed):
        return False
    return not (path.is_relative_to(_HOUSE) and path.relative_to(_HOUSE).parts[0] in _PACKAGES)
