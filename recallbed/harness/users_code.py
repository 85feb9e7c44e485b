"""What a user's class is made of: its modules, those that they import, and the files it names.

A module is a user's if its file belongs neither to Python, nor to an installed package, nor to
recallbed. Installed packages are described by their version.
"""

from __future__ import annotations

import ast
import inspect
import os
import site
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from recallbed.errors import UserError
from recallbed.harness.fingerprint import file_hash
from recallbed.packages import is_own

JSON = Any
_before: set[str] = set()
_described: dict[str, tuple[Path, str]] = {}
"""By name, every module of a user's that a description of this process holds, with its hash."""


@dataclass(frozen=True, slots=True)
class Code:
    """By name, the files of a user's modules and the installed packages that these import."""

    modules: Mapping[str, Path]
    packages: frozenset[str]


def before_users_code() -> None:
    """Call this before a user's class is imported: what is loaded later may belong to it."""
    _before.update(() if _before else sys.modules)


def made_of(instance: Any) -> dict[str, JSON]:
    """What a fingerprint holds of the class of `instance` besides its settings.

    `code`: a hash for every module of the user's that the class is defined in, inherits from or
    imports, directly or not, inside functions too. `packages`: the version of each installed
    package that these import. `files`: a hash for every file that `depends_on` names. Keys without
    content are left out, so a class of recallbed gives {}.

    Raises UserError for a file that is missing.
    """
    code = _code_of(type(instance))
    hashes = {}
    for name, path in sorted(code.modules.items()):
        hashes[name] = file_hash(path)
        _described[name] = path, hashes[name]
    found = {
        "code": hashes,
        "packages": {name: _version(name) for name in sorted(code.packages)},
        "files": _named_files(instance),
    }
    return {key: value for key, value in found.items() if value}


def late_modules(before: Collection[str], fingerprint: JSON) -> dict[str, dict[str, str]]:
    """By name, file and hash of the user's modules that were loaded after those of `before`.

    Without those that the fingerprint holds.
    """
    held = set(_held(fingerprint))
    late = {name: path for name, path in _loaded(before).items() if name not in held}
    return {name: {"file": str(path), "sha256": file_hash(path)} for name, path in late.items()}


def changed_modules(fingerprint: JSON) -> list[str]:
    """The user's modules that the fingerprint holds and whose file is another by now."""
    named = ((name, *_described[name]) for name in _held(fingerprint) if name in _described)
    return sorted(n for n, path, was in named if not path.exists() or file_hash(path) != was)


def _held(fingerprint: JSON) -> Iterator[str]:
    """The names of all modules in the parts of a fingerprint that `made_of` gave."""
    if isinstance(fingerprint, Mapping):
        for key, value in fingerprint.items():
            if key == "code" and isinstance(value, Mapping):
                yield from value
            else:
                yield from _held(value)
    elif isinstance(fingerprint, list):
        for value in fingerprint:
            yield from _held(value)


def _named_files(instance: Any) -> dict[str, str]:
    named = getattr(instance, "depends_on", ())
    names = named() if callable(named) else named
    if isinstance(names, (str, os.PathLike)):
        names = [names]
    found: dict[str, str] = {}
    for name in names:
        path = Path(name).expanduser()
        inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in inside:
            try:
                found[str(file)] = file_hash(file)
            except OSError as error:
                raise UserError(
                    f"{type(instance).__name__}.depends_on: {file} cannot be read"
                    f" ({error.strerror}). Relative paths start at the working folder"
                ) from None
    return found


def _code_of(cls: type) -> Code:
    modules: dict[str, Path] = {}
    packages: set[str] = set()
    waiting: list[tuple[str, Path]] = []
    for base in cls.__mro__:
        try:
            waiting.append((base.__module__, Path(inspect.getfile(base))))
        except (TypeError, OSError):  # built in, or made without a file
            continue
    waiting = [(name, path) for name, path in waiting if is_users(path)]
    if waiting:  # what its modules load by other means than an import statement
        roots = {path.parent for _, path in waiting}
        waiting += [
            (name, path)
            for name, path in (_loaded(_before) if _before else {}).items()
            if any(path.is_relative_to(root) for root in roots)
        ]
    while waiting:
        name, path = waiting.pop()
        if name in modules:
            continue
        modules[name] = path
        for imported in _imports(name, path):
            if imported.partition(".")[0] in sys.stdlib_module_names:
                continue
            file = _file_of(imported)
            if file is not None and is_users(file):
                waiting.append((imported, file))
            elif file is not None and not is_own(file):
                packages.add(imported.partition(".")[0])
    return Code(modules, frozenset(packages))


def _loaded(before: Collection[str]) -> dict[str, Path]:
    """The user's modules that are loaded, without those of `before`."""
    new = [(name, module) for name, module in [*sys.modules.items()] if name not in before]
    files = {name: getattr(module, "__file__", None) for name, module in new}
    paths = {name: _users_path(file) for name, file in files.items() if isinstance(file, str)}
    # torch.ops names a file that does not exist.
    return {name: path for name, path in paths.items() if path is not None and path.is_file()}


@cache
def _users_path(file: str) -> Path | None:
    return path if is_users(path := Path(file)) else None


def _imports(name: str, path: Path) -> Sequence[str]:
    """The full names of all that a module's import statements may name, parents first."""
    if path.suffix != ".py":
        return ()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    try:
        return _imported(path.read_bytes(), package)
    except (OSError, SyntaxError, ValueError):
        return ()


@lru_cache(maxsize=1000)
def _imported(source: bytes, package: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_names(ast.parse(source), package)))


def _names(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                above = ".".join(parts[: len(parts) - node.level + 1])
                base = f"{above}.{base}".strip(".")
            yield from _parents(base)
            # `from package import name`: the name may be a module.
            yield from (f"{base}.{alias.name}" for alias in node.names if base)


def _parents(name: str) -> Iterable[str]:
    parts = name.split(".")
    return (".".join(parts[: i + 1]) for i in range(len(parts)) if name)


def _file_of(name: str) -> Path | None:
    """The file of a module, found without importing anything; None if there is none."""
    if name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
        return Path(file) if isinstance(file, str) else None
    folders: Any = None
    head, _, _ = name.rpartition(".")
    if head:
        parent = sys.modules.get(head)
        folders = getattr(parent, "__path__", None) if parent else _search_path(head)
        if folders is None:
            return None
    try:
        spec = PathFinder.find_spec(name, folders)
    except (ImportError, ValueError, AttributeError):
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


def _search_path(package: str) -> Any:
    folders: Any = None
    for name in _parents(package):
        spec = PathFinder.find_spec(name, folders)
        folders = spec.submodule_search_locations if spec is not None else None
        if folders is None:
            return None
    return folders


@cache
def is_users(path: Path) -> bool:
    """Whether a file is neither ours nor installed (the standard library is installed too)."""
    real = Path(os.path.realpath(path))
    if {"site-packages", "dist-packages"} & {*real.parts, *path.parts} or is_own(path):
        return False
    return not any(real.is_relative_to(folder) for folder in _installed())


@cache
def _installed() -> frozenset[Path]:
    """The folders of Python's library and of installed packages."""
    paths = sysconfig.get_paths()
    named = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    named += [*site.getsitepackages(), site.getusersitepackages()]
    return frozenset(Path(os.path.realpath(name)) for name in named)


@cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(package)
        return metadata.version(names[0]) if names else "unknown"
