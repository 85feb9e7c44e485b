"""Real memory systems, each in a process and an environment of its own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory_systems.external.system import CustomSystem, ExternalSystem

__all__ = ["CustomSystem", "ExternalSystem"]


def __getattr__(name: str) -> Any:
    """Import the public names when they are first asked for: the catalogue needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'memory_systems.external' has no attribute {name!r}")
    return getattr(import_module("memory_systems.external.system"), name)
