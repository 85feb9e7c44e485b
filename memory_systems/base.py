"""Interface of memory systems: ingest dialogues, keep memories, answer from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from memory_systems.shared import Shared
from recallbed.chat_models.base import NOTHING_USED, ChatModel, Usage
from recallbed.corpus.records import Memory, MemoryItem, Turn
from retrievers.base import Retriever

JSON = Any


class Action(StrEnum):
    """Effect of an operation on the store."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    NOOP = "NOOP"


@dataclass(frozen=True, slots=True)
class Operation:
    """One change, with the item before it (None for ADD) and after it (None for DELETE).

    A NOOP has the item that made it unnecessary in both, or None if there was nothing to do.
    """

    action: Action
    before: MemoryItem | None = None
    after: MemoryItem | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result with the retriever's score."""

    item: MemoryItem
    score: float


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, the memory that it says it used ("" for none), and the hits it was based on.

    `left_out` counts the memories that did not fit into the token budget, `hits_left_out` are the
    positions of those among the hits, from 0; None if they are unknown.
    """

    answer: str
    used_memory_fact: str = ""
    hits: tuple[Hit, ...] = ()
    usage: Usage = NOTHING_USED
    left_out: int = 0
    hits_left_out: tuple[int, ...] | None = None


class SystemFailure(Exception):
    """A dialogue or question failed. Counted by `cause`; nothing of it was stored.

    `usage` is that of the attempt. The system's own `usage` includes it.
    """

    def __init__(self, cause: str, usage: Usage = NOTHING_USED) -> None:
        self.cause, self.usage = cause, usage
        super().__init__(cause)


@dataclass(frozen=True, slots=True)
class SystemContext:
    """What a run provides to a memory system. `chat` is None if no model was named.

    `store` is the file of the persistent store; None keeps memories as long as the instance.
    `shared` holds what the systems of the run share; None if each has its own.
    """

    retriever: Retriever
    chat: ChatModel | None = None
    store: Path | None = None
    seed: int = 0
    shared: Shared | None = None


def item_json(item: MemoryItem) -> dict[str, JSON]:
    """Return a memory as in the release's references, which `corpus.tracks.read_item` reads."""
    evidence = item.evidence
    return {
        "memory_id": item.id,
        "type": item.type,
        "label": item.label,
        "value": item.text,
        "confidence": item.confidence,
        "time_scope": item.time_scope,
        "emotion": item.emotion,
        "preference_attitude": item.attitude,
        "evidence": evidence
        and {
            "session_id": evidence.session_id,
            "utterance_index": list(evidence.utterances),
            "text": evidence.text,
        },
    }


def operations_json(operations: Sequence[Operation]) -> list[dict[str, JSON]]:
    """Return operations in order; a missing item is null."""
    return [
        {
            "action": operation.action.value,
            "before": operation.before and item_json(operation.before),
            "after": operation.after and item_json(operation.after),
        }
        for operation in operations
    ]


def as_memory(item: MemoryItem) -> Memory:
    """Return what a retriever sees of an item: text and label, never the id."""
    return Memory(item.text, item.label)


class MemorySystem(ABC):
    """Keeps the memories of users. An instance serves one user at a time, chosen by `open`.

    `usage` sums the usage of all replies since the last `take_usage`, failures included.
    """

    needs_chat: bool = False
    """Whether a chat model is required."""
    libraries: tuple[str, ...] = ()
    """Distributions whose version can change a result."""
    searches: bool = False
    """Whether it has a search of its own, for `--retriever own`."""
    replies_lead_to_calls: bool = False
    """Whether a dialogue's first replies decide on further calls, which a dry run cannot count."""
    _configured: Mapping[str, JSON] = {}

    def __init__(self, context: SystemContext) -> None:
        self.context = context
        self.user = ""
        self.usage = Usage()
        self.cut: Counter[str] = Counter()
        """Dialogues that did not fit into one prompt, by what was done with them."""
        self.unknown_labels = 0
        """Labels in a model's replies that name no memory: counted, never guessed."""

    @classmethod
    def build(cls, settings: Mapping[str, JSON], context: SystemContext) -> Self:
        """Return an instance; `settings` are the constructor's arguments after the context."""
        return cls(context, **settings)

    def settings(self) -> Mapping[str, JSON]:
        """Return all settings that can change a result; prompts by their hash.

        By default the settings it was built with.
        """
        return dict(self._configured)

    def depends_on(self) -> Iterable[str | Path]:
        """Return files other than code that can change a result, such as weights; whole folders.

        Their hashes are part of the run's fingerprint. Relative paths start at the working folder.
        """
        return ()

    def open(self, user: str) -> None:
        """Serve `user` from now on; a new user has no memories."""
        self.user = user

    @abstractmethod
    def clear(self) -> None:
        """Delete all of the user's memories and their history."""

    @abstractmethod
    def load(self, items: Sequence[MemoryItem]) -> None:
        """Add memories to the user's store, in one step and without a model."""

    def read_before(self, dialogue: Sequence[Turn]) -> None:
        """Note the dialogue that the loaded memories came from; by default it is not used."""

    @abstractmethod
    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        """Read a dialogue and change the store in one step; return the operations.

        Raise SystemFailure, with the store unchanged. BudgetReached and UserError pass through.
        """

    @abstractmethod
    def memories(self) -> list[MemoryItem]:
        """Return the user's memories, oldest first."""

    @abstractmethod
    def search(self, query: str, k: int) -> list[Hit]:
        """Return the best k of `memories()` by the retriever's scores. Raise SystemFailure."""

    @abstractmethod
    def respond(self, query: str) -> Response:
        """Answer from the memories that a search finds. Raise SystemFailure."""

    def discard_files(self) -> None:
        """Remove files that are needed only to change the user's memories further."""

    def count_cut(self, what: str, happened: bool) -> None:
        """Count a dialogue that did not fit into one prompt."""
        if happened:
            self.cut[what] += 1

    def close(self) -> None:
        """Close files; memories without a file are lost."""

    def take_usage(self) -> Usage:
        """Return the usage since the last call, and reset it."""
        used, self.usage = self.usage, Usage()
        return used
