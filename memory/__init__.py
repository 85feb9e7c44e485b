"""Memory systems: a store, a retriever and a chat model behind one interface."""

from memory.base import (
    Action,
    Hit,
    MemorySystem,
    Operation,
    Response,
    SystemContext,
    SystemFailure,
    visible,
)
from memory.registry import build_system, describe, find, names, register_system
from memory.stored import StoredSystem

__all__ = [
    "Action",
    "Hit",
    "MemorySystem",
    "Operation",
    "Response",
    "StoredSystem",
    "SystemContext",
    "SystemFailure",
    "build_system",
    "describe",
    "find",
    "names",
    "register_system",
    "visible",
]
