"""Memory systems: a store, a retriever and a chat model behind one interface."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import recallbed  # noqa: F401  (first: its guard against folders of the same names)

if TYPE_CHECKING:
    from memory_systems.base import (
        Action,
        Hit,
        MemorySystem,
        Operation,
        Response,
        SystemContext,
        SystemFailure,
        as_memory,
    )
    from memory_systems.registry import (
        MEMORY_SYSTEMS,
        build_system,
        describe_system,
        register_system,
    )
    from memory_systems.stored import StoredSystem

__all__ = [
    "MEMORY_SYSTEMS",
    "Action",
    "Hit",
    "MemorySystem",
    "Operation",
    "Response",
    "StoredSystem",
    "SystemContext",
    "SystemFailure",
    "as_memory",
    "build_system",
    "describe_system",
    "register_system",
]
_REGISTRY = ("MEMORY_SYSTEMS", "build_system", "describe_system", "register_system")


def __getattr__(name: str) -> Any:
    """Import a public name on first use: a command's `--help` needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'memory_systems' has no attribute {name!r}")
    home = {"StoredSystem": "stored"} | dict.fromkeys(_REGISTRY, "registry")
    return getattr(import_module(f"memory_systems.{home.get(name, 'base')}"), name)
