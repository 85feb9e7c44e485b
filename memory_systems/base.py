"""The interface: a memory system takes dialogues in, keeps memories, and answers from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from recallbed.chat_models.base import NOTHING_USED, ChatModel, Usage
from recallbed.corpus.records import Memory, MemoryItem, Turn
from retrievers.base import Retriever

JSON = Any


class Action(StrEnum):
    """What an operation does to the store."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    NOOP = "NOOP"


@dataclass(frozen=True, slots=True)
class Operation:
    """One change, with the item before it (None for ADD) and after it (None for DELETE).

    A NOOP has the item that made it needless in both, or neither where there was nothing to do.
    """

    action: Action
    before: MemoryItem | None = None
    after: MemoryItem | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that a search found, with the retriever's score."""

    item: MemoryItem
    score: float


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, the memory that it says it used ("" for none), and what was found for it.

    `left_out` counts what was to be shown and didn't fit into the token budget.
    """

    answer: str
    used_memory_fact: str = ""
    hits: tuple[Hit, ...] = ()
    usage: Usage = NOTHING_USED
    left_out: int = 0


class SystemFailure(Exception):
    """This dialogue or question failed. Counted by `cause`; nothing of it was stored.

    `usage` is what the attempt took. The system's own `usage` holds it too: count one of them.
    """

    def __init__(self, cause: str, usage: Usage = NOTHING_USED) -> None:
        self.cause, self.usage = cause, usage
        super().__init__(cause)


@dataclass(frozen=True, slots=True)
class SystemContext:
    """What a run offers to a memory system. `chat` is None where no model was named.

    `store` is the file of the persistent store, None for one that lasts as long as the instance.
    """

    retriever: Retriever
    chat: ChatModel | None = None
    store: Path | None = None
    seed: int = 0


def visible(item: MemoryItem) -> Memory:
    """What a retriever sees of an item: its text and label, never its id."""
    return Memory(item.text, item.label)


class MemorySystem(ABC):
    """Keeps the memories of users. An instance serves one user at a time, chosen by `open`.

    `usage` adds up what the replies since the last `take_usage` took, those of failures included.
    """

    needs_chat: bool = False
    """Whether it can do nothing without a chat model."""
    _configured: Mapping[str, JSON] = {}

    def __init__(self, context: SystemContext) -> None:
        self.context = context
        self.user = ""
        self.usage = Usage()
        self.unknown_labels = 0
        """How many labels of a model named nothing; counted, never guessed at."""

    @classmethod
    def build(cls, settings: Mapping[str, JSON], context: SystemContext) -> Self:
        """An instance with the settings of its constructor beside the context."""
        return cls(context, **settings)

    def settings(self) -> Mapping[str, JSON]:
        """All of the system itself that can change a result; prompts by their hash.

        By default the settings it was built with.
        """
        return dict(self._configured)

    def depends_on(self) -> Iterable[str | Path]:
        """Files other than code that can change a result, such as weights; folders whole.

        Their hashes are part of the run's fingerprint. Relative paths start at the working folder.
        """
        return ()

    def open(self, user: str) -> None:
        """Turn to the memories of `user`, whatever they are: none for a new one."""
        self.user = user

    @abstractmethod
    def clear(self) -> None:
        """Forget all of the user's memories, their history included."""

    @abstractmethod
    def load(self, items: Sequence[MemoryItem]) -> None:
        """Put given memories into the user's store, in one step and without a model."""

    @abstractmethod
    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        """Read a dialogue and change the store, in one step. Raises SystemFailure, then unchanged.

        BudgetReached and UserError pass through.
        """

    @abstractmethod
    def memories(self) -> list[MemoryItem]:
        """The user's memories, oldest first."""

    @abstractmethod
    def search(self, query: str, k: int) -> list[Hit]:
        """The best k by the retriever's scores over `memories()`. Raises SystemFailure."""

    @abstractmethod
    def respond(self, query: str) -> Response:
        """Answer from the memories that a search finds. Raises SystemFailure."""

    def close(self) -> None:
        """Give back files; a store without a file is gone then."""

    def take_usage(self) -> Usage:
        """What was used since the last call of this."""
        used, self.usage = self.usage, Usage()
        return used
