"""Finding a memory system by name and building it from settings typed as text."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from memory_systems.base import MemorySystem, SystemContext
from recallbed.errors import UserError
from recallbed.harness.typed_settings import plain_defaults, require_all, typed
from recallbed.harness.users_class import load_class
from recallbed.harness.users_code import made_of

S = TypeVar("S", bound=type[MemorySystem])
_REGISTRY: dict[str, type[MemorySystem]] = {}
_GIVEN = ("context",)


def register_system(name: str) -> Callable[[S], S]:
    """Make the class known as `name`; a name taken by another class is a ValueError."""

    def enter(cls: S) -> S:
        taken = _REGISTRY.get(name)
        if taken is not None and _origin(taken) != _origin(cls):
            raise ValueError(f"two memory systems are called {name}: {taken} and {cls}")
        _REGISTRY[name] = cls
        return cls

    return enter


def _origin(cls: type[MemorySystem]) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def names() -> tuple[str, ...]:
    """The names of all registered systems, every file of this package having been imported."""
    package = importlib.import_module("memory_systems")
    for module in pkgutil.walk_packages(package.__path__, "memory_systems."):
        importlib.import_module(module.name)
    return tuple(sorted(_REGISTRY))


def find(name: str) -> type[MemorySystem]:
    """The class registered as `name`, or the user's own `package.module:Class`.

    The working folder is searched last. Raises UserError with what is wrong.
    """
    if ":" not in name:
        if name not in names():
            raise UserError(
                f"no memory system `{name}` (there are: {', '.join(names())});"
                " your own is named package.module:Class"
            )
        return _REGISTRY[name]
    return load_class(name, MemorySystem, "memory_systems.MemorySystem")


def build_system(
    name: str,
    settings: Mapping[str, str],
    context: SystemContext,
    option: str = "--system-set ",
) -> MemorySystem:
    """An instance of the system `name`, each setting checked against its constructor.

    `option` is what a user types before `key=value`. Raises UserError for an unknown name, an
    unknown setting or a wrong value, and where the system needs a chat model and there is none.
    """
    cls = find(name)
    known = typed(cls, name, option, settings, _GIVEN)
    require_all(cls, name, option, settings, _GIVEN)
    if cls.needs_chat and context.chat is None:
        raise UserError(
            f"the memory system `{name}` needs a chat model;"
            " give --chat-model, such as --chat-model openai:MODEL"
        )
    try:
        system = cls.build(known, context)
    except (ValueError, OSError) as error:
        label = name.rpartition(":")[2]
        raise UserError(f"{label}: {error}") from error
    system._configured = {**plain_defaults(cls, _GIVEN), **known}
    return system


def describe(name: str, system: MemorySystem) -> Mapping[str, Any]:
    """What the fingerprint holds of a configured system."""
    return {"name": name, "settings": dict(system.settings()), **made_of(system)}
