"""Registry of memory systems, and how one is built from settings given as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory_systems.base import MemorySystem, SystemContext
from recallbed.errors import UserError
from recallbed.harness.registry import Registry
from recallbed.harness.typed_settings import plain_defaults, require_all, typed
from recallbed.harness.users_code import made_of

MEMORY_SYSTEMS: Registry[MemorySystem] = Registry("memory_systems", "memory system", MemorySystem)  # type: ignore[type-abstract]
register_system = MEMORY_SYSTEMS.register
_GIVEN = ("context",)


def build_system(
    name: str,
    settings: Mapping[str, str],
    context: SystemContext,
    option: str = "--system-set ",
) -> MemorySystem:
    """Return an instance of the system `name`, its settings checked against the constructor.

    `option` is what a user types before `key=value`. Raise UserError for an unknown name, an
    unknown setting or a wrong value, and if the system needs a chat model and there is none.
    """
    cls = MEMORY_SYSTEMS.find(name)
    known = typed(cls, name, option, settings, _GIVEN)
    require_all(cls, name, option, settings, _GIVEN)
    if cls.needs_chat and context.chat is None:
        raise UserError(
            f"the memory system `{name}` needs a chat model."
            " Pass --chat-model, such as --chat-model openai:MODEL"
        )
    try:
        system = cls.build(known, context)
    except (ValueError, OSError) as error:
        label = name.rpartition(":")[2]
        raise UserError(f"{label}: {error}") from error
    system._configured = {**plain_defaults(cls, _GIVEN), **known}
    return system


def describe_system(name: str, system: MemorySystem) -> Mapping[str, Any]:
    """Return the fingerprint's fields of a configured system."""
    return {"name": name, "settings": dict(system.settings()), **made_of(system)}
