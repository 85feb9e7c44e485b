"""Prompts of judges, which are package data with version and hash, and their reply schemas."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from recallbed.chat_models.base import Message
from recallbed.chat_models.prompts import fence_for, harmless

_ASK = "Now do with the material above as you were told."


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """The instructions of a judge.

    `identity` goes into verdicts and fingerprints, so that an edited prompt is another prompt.
    """

    name: str
    text: str

    @property
    def identity(self) -> str:
        """The name with eight digits of the content's SHA-256, such as `pa.v1#0a1b2c3d`."""
        return f"{self.name}#{hashlib.sha256(self.text.encode()).hexdigest()[:8]}"

    def messages(self, material: Mapping[str, str]) -> tuple[Message, ...]:
        """Return the prompt over this material: heading -> text, each text quoted as data."""
        body = "\n\n".join(f"{heading}\n{quoted(text)}" for heading, text in material.items())
        return self.over(body, list(material.values()))

    def over(self, body: str, texts: Sequence[str]) -> tuple[Message, ...]:
        """Return the prompt over a body made of these texts, each made `harmless`."""
        fence = fence_for(texts)
        rules = self.text.replace("{rule}", fence.rule)
        return Message("system", rules), Message("user", f"{fence.put(body)}\n\n{_ASK}")


def read_prompt(name: str) -> JudgePrompt:
    """Read `judges/prompts/<name>.md`."""
    file = files("judges") / "prompts" / f"{name}.md"
    return JudgePrompt(name, file.read_text(encoding="utf-8").strip())


def quoted(text: str) -> str:
    """Return `text` with `> ` before each line, so that no line looks like a heading."""
    lines = harmless(text).splitlines() or ["(nothing)"]
    return "\n".join(f"> {line}" for line in lines)


def _bare(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


Number = Annotated[int, BeforeValidator(_no_bool)]
"""A whole number; "2" is 2, but true is not 1."""


# The docstring is in the schema that a model is sent: another one would not find stored replies.
class YesOrNo(BaseModel):
    """The evidence comes before the verdict, so that it is looked for before one is taken."""

    evidence: str = Field(description="What in the material decides the question, briefly.")
    verdict: Annotated[Literal["yes", "no"], BeforeValidator(_bare)]


def is_yes(reply: YesOrNo, repairs: Counter[str]) -> bool:
    """Return the vote of a reply, which needs no repair."""
    return reply.verdict == "yes"
