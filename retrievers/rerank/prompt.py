"""Prompts of rerankers: versioned files, and the list of candidates that goes into them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from chat_models import Message, fence_for, one_line
from harness.fingerprint import short_hash

_PARTS = re.compile(r"^# (system|user)\n", re.MULTILINE)
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A file `NAME.vN.md` of this package: a system and a user part with slots in braces."""

    name: str
    system: str
    user: str

    @property
    def identity(self) -> str:
        """Its name with the hash of its words, for fingerprints."""
        return f"{self.name} {short_hash([self.system, self.user])}"

    def build(self, query: str, texts: Sequence[str], **slots: Any) -> tuple[Message, ...]:
        """The messages that show `texts` under the labels [1], [2], … and ask about `query`.

        The query and the texts are data: on one line each, inside one fence.
        """
        fence = fence_for([query, *texts])
        lines = [f"Query: {one_line(query)}", "", "Memories:"]
        lines += [f"[{label}] {one_line(text)}" for label, text in enumerate(texts, 1)]
        values = {
            "rule": fence.rule,
            "data": fence.put("\n".join(lines)),
            "count": len(texts),
            **slots,
        }
        return (
            Message("system", _fill(self.system, values)),
            Message("user", _fill(self.user, values)),
        )


def _fill(template: str, values: dict[str, Any]) -> str:
    # In one pass: a text that holds a slot's name must not be filled in turn.
    return _SLOT.sub(lambda slot: str(values[slot[1]]), template).strip()


@cache
def load_prompt(name: str) -> Prompt:
    """The prompt in `prompts/<name>.md`."""
    file = resources.files("retrievers.rerank").joinpath("prompts", f"{name}.md")
    _, _, system, _, user = _PARTS.split(file.read_text(encoding="utf-8"))
    return Prompt(name, system, user)
