"""Messages of the protocol between this process and a worker, see docs/external_systems.md."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

Finite = Annotated[float, Field(allow_inf_nan=False)]


class ProtocolMessage(BaseModel):
    """A message, checked without conversions. Fields of a later version are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)


class Capabilities(ProtocolMessage):
    """What a system can do. `reason` says why it cannot, for the user.

    `reopen`: one process can serve one store after another. `load`: memories can be stored as they
    are given. `search`: it has a search of its own.
    """

    model_config = ConfigDict(extra="forbid")

    reopen: bool = True
    load: bool = True
    search: bool = True
    reason: str = ""


class Hello(ProtocolMessage):
    """First message of a worker."""

    protocol: Literal[1]
    system: str
    version: str
    capabilities: Capabilities = Capabilities()


class ListedMemory(ProtocolMessage):
    """A memory of the system, under the system's id."""

    id: Annotated[str, Field(min_length=1)]
    text: str


class FoundMemory(ListedMemory):
    """A memory that a search found; a higher score is better."""

    score: Finite


class EmptyReply(ProtocolMessage):
    """Reply to `open`, `reset`, `ingest` and `close`; its content is ignored."""


class LoadReply(ProtocolMessage):
    """Reply to `load`: the ids of the items, in their order."""

    ids: list[str]


class ListReply(ProtocolMessage):
    """Reply to `list`, oldest first. `context` is shown for every answer, such as a profile."""

    memories: list[ListedMemory]
    context: list[str] = []

    @field_validator("memories")
    @classmethod
    def _every_id_once(cls, memories: list[ListedMemory]) -> list[ListedMemory]:
        if len({memory.id for memory in memories}) != len(memories):
            raise ValueError("an id is listed twice")
        return memories


class SearchReply(ProtocolMessage):
    """Reply to `search`, best first. `context` is shown for this answer, such as relations."""

    hits: list[FoundMemory]
    context: list[str] = []
