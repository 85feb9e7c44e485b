"""Prompts as files of a package: versioned, hashed, filled without rereading what goes in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Self

from recallbed.chat_models.base import Message
from recallbed.harness.fingerprint import short_hash

_PARTS = re.compile(r"^# (system|user)\n", re.MULTILINE)
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class PromptFile:
    """`prompts/NAME.vN.md` of a package: a system and a user part, with slots in braces."""

    name: str
    system: str
    user: str

    @classmethod
    def load(cls, package: str, name: str) -> Self:
        """The prompt in `prompts/<name>.md` of `package`."""
        return cls(name, *_parts(package, name))

    @property
    def identity(self) -> str:
        """Its name with the hash of its words, for fingerprints."""
        return f"{self.name} {short_hash([self.system, self.user])}"

    def fill(self, **slots: Any) -> tuple[Message, Message]:
        """The messages, every slot filled; what fills one is never searched for slots."""
        return (
            Message("system", _fill(self.system, slots)),
            Message("user", _fill(self.user, slots)),
        )


@cache
def _parts(package: str, name: str) -> tuple[str, str]:
    file = resources.files(package).joinpath("prompts", f"{name}.md")
    _, _, system, _, user = _PARTS.split(file.read_text(encoding="utf-8"))
    return system, user


def _fill(template: str, slots: dict[str, Any]) -> str:
    return _SLOT.sub(lambda slot: str(slots[slot[1]]), template).strip()
