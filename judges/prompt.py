"""The instructions of a judge: a file of the package, with a version and a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from recallbed.chat_models.base import Message
from recallbed.chat_models.fence import fence_for, harmless

_ASK = "Now do with the material above as you were told."


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a judge is told. `identity` names file, version and content, such as `pa.v1#0a1b2c3d`.

    The identity goes into verdicts and fingerprints, so that an edited prompt is another prompt.
    """

    name: str
    text: str

    @property
    def identity(self) -> str:
        """The name with the first eight digits of the content's SHA-256."""
        return f"{self.name}#{hashlib.sha256(self.text.encode()).hexdigest()[:8]}"

    def messages(self, material: Mapping[str, str]) -> tuple[Message, ...]:
        """The prompt over this material: heading -> text, each text quoted as data."""
        body = "\n\n".join(f"{heading}\n{quoted(text)}" for heading, text in material.items())
        return self.over(body, list(material.values()))

    def over(self, body: str, texts: Sequence[str]) -> tuple[Message, ...]:
        """The prompt over a body made of these texts, each made `harmless`."""
        fence = fence_for(texts)
        told = self.text.replace("{rule}", fence.rule)
        return Message("system", told), Message("user", f"{fence.put(body)}\n\n{_ASK}")


def read_prompt(name: str) -> Prompt:
    """The prompt in `judges/prompts/<name>.md`."""
    file = files("judges") / "prompts" / f"{name}.md"
    return Prompt(name, file.read_text(encoding="utf-8").strip())


def quoted(text: str) -> str:
    """`text` with `> ` before each line: none of its lines can be taken for a heading of ours."""
    lines = harmless(text).splitlines() or ["(nothing)"]
    return "\n".join(f"> {line}" for line in lines)
