"""Operations of a system that reports none: what it lists after a dialogue, against before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict

from memory_systems.base import Action, Operation
from memory_systems.external.protocol import ListReply
from recallbed.corpus.records import MemoryItem


class KnownMemory(BaseModel):
    """A memory as the system last listed it, and the number of the operation that added it."""

    model_config = ConfigDict(frozen=True)

    text: str
    added: int


class Known(BaseModel):
    """What is known of a user's store: memories by the system's ids, and texts for every answer.

    `ingests` counts the dialogues so far.
    """

    model_config = ConfigDict(frozen=True)

    memories: Mapping[str, KnownMemory] = {}
    context: Sequence[str] = ()
    ingests: int = 0


def operations_between(
    known: Known,
    listed: ListReply,
    items: Mapping[str, MemoryItem],
    number: int,
    given: Mapping[str, MemoryItem],
) -> tuple[list[Operation], Known]:
    """Return the operations from `known` to `listed`, one NOOP for none, and what is known then.

    `items` are our memories by the system's ids, `number` counts the operations so far, and `given`
    are loaded items by their new ids: these are added first, in their order. Changes and deletions
    come before additions. A memory without text is none.
    """
    texts = {one.id: one.text for one in listed.memories if one.text.strip()}
    operations: list[Operation] = []
    memories = {}
    for their_id, before in known.memories.items():
        item = items[their_id]
        if their_id not in texts:
            operations.append(Operation(Action.DELETE, item))
            continue
        text = texts[their_id]
        if text != before.text:
            # What the old text was read from says nothing about the new one.
            after = replace(item, text=text, evidence=None)
            operations.append(Operation(Action.UPDATE, item, after))
        memories[their_id] = KnownMemory(text=text, added=before.added)
    for their_id in [*given, *(new for new in texts if new not in given)]:
        if their_id in memories:
            continue
        operations.append(
            Operation(Action.ADD, after=given.get(their_id, MemoryItem(texts[their_id])))
        )
        memories[their_id] = KnownMemory(text=texts[their_id], added=number + len(operations))
    found = Known(memories=memories, context=tuple(listed.context), ingests=known.ingests)
    return operations or [Operation(Action.NOOP)], found
