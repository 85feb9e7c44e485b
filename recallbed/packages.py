"""The packages of this project: their names, their folder, and how commands find them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder that holds our packages: a checkout, or site-packages."""


@cache
def own_packages() -> frozenset[str]:
    """Return the names of our top-level packages as `ROOT` holds them.

    A checkout lists them in its pyproject.toml, an installed wheel in its RECORD. A copy without
    either counts every package next to `recallbed` as ours.
    """
    return _of_checkout() or _of_wheel() or _beside()


def _of_checkout() -> frozenset[str]:
    import tomllib

    try:
        found = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        if found["project"]["name"] == "recallbed":
            return _top_level(found["tool"]["setuptools"]["packages"], ".")
    except (OSError, ValueError, KeyError):
        pass
    return frozenset()


def _of_wheel() -> frozenset[str]:
    from importlib import metadata

    for distribution in metadata.distributions(name="recallbed", path=[str(ROOT)]):
        files = [file.as_posix() for file in distribution.files or ()]
        return _top_level([file for file in files if file.endswith("/__init__.py")], "/")
    return frozenset()


def _beside() -> frozenset[str]:
    return frozenset(path.parent.name for path in ROOT.glob("*/__init__.py"))


def _top_level(names: Sequence[str], separator: str) -> frozenset[str]:
    return frozenset(name.partition(separator)[0] for name in names)


class _OwnPackagesFirst:
    """A finder that takes our packages from `ROOT`, whatever else has their names."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        own = path is None and name in own_packages()
        return PathFinder.find_spec(name, [str(ROOT)]) if own else None


def guard_commands() -> None:
    """Keep the working folder from shadowing our packages if this process runs a command of ours.

    `python -m` searches the working folder first. It is searched last instead, for the user's
    classes; an editable install needs a finder besides, as Python asks its own finder last of all.
    """
    started = sys.argv[0] if sys.argv else ""
    if started == "-m":
        folder = os.getcwd()
        if folder in sys.path and folder != str(ROOT):
            sys.path[:] = [entry for entry in sys.path if entry != folder] + [folder]
    elif not (Path(started).stem.startswith("recallbed") or is_own(Path(started))):
        return  # a program of the user's that imports us; worker processes know the command's file
    own_packages()  # before the finder asks, which would ask it again for what this imports
    if _OwnPackagesFirst not in sys.meta_path:
        sys.meta_path.insert(0, _OwnPackagesFirst)


def is_own(file: Path) -> bool:
    """Return whether a file belongs to one of our packages."""
    path = Path(os.path.realpath(file))
    return path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in own_packages()
