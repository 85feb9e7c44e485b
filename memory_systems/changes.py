"""Draft of what a dialogue changes in a user's memories, before any of it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memory_systems.base import Action, Operation
from memory_systems.facts import same_text
from recallbed.corpus.records import MemoryItem


@dataclass(slots=True, eq=False)
class _Draft:
    """A memory before (None: not stored yet) and now (None: deleted)."""

    before: MemoryItem | None
    now: MemoryItem | None
    deleted_for: str = ""
    """The text of the fact for which it was deleted."""


class Changes:
    """Draft of the changes that a dialogue makes to the `stored` memories, oldest first.

    Each decision sees the effect of those before it. At the end there is one operation per memory:
    an addition that was then reworded is one ADD, and a memory that was deleted and added again is
    an UPDATE that keeps its id.
    """

    def __init__(self, stored: Sequence[MemoryItem]) -> None:
        self._drafts = [_Draft(item, item) for item in stored]
        self._order: list[_Draft | Operation] = []

    @property
    def items(self) -> list[MemoryItem]:
        """The memories now, oldest first; those that are not stored have no id."""
        return [draft.now for draft in self._drafts if draft.now is not None]

    def like(self, text: str) -> MemoryItem | None:
        """Return the oldest memory whose text equals `text` apart from case and white space."""
        return next((item for item in self.items if same_text(item.text, text)), None)

    def add(self, item: MemoryItem) -> None:
        """Add `item`, or restore with it a memory that was deleted for the same fact."""
        for draft in self._drafts:
            before = draft.before
            if (
                draft.now is None
                and before is not None
                and any(same_text(item.text, text) for text in (draft.deleted_for, before.text))
            ):
                draft.now = replace(item, id=before.id)
                return
        self._drafts.append(_Draft(None, item))
        self._order.append(self._drafts[-1])

    def update(self, old: MemoryItem, new: MemoryItem) -> None:
        """Replace `old`, one of `items`, by `new`."""
        self._touch(old).now = replace(new, id=old.id)

    def delete(self, old: MemoryItem, fact: str) -> None:
        """Delete `old`, one of `items`, because of the text `fact`."""
        draft = self._touch(old)
        draft.now, draft.deleted_for = None, fact

    def keep(self, item: MemoryItem | None = None) -> None:
        """Record a NOOP, because of `item` if there is one."""
        self._order.append(Operation(Action.NOOP, item, item))

    def operations(self) -> list[Operation]:
        """Return one operation per changed memory, and the NOOPs, in the order of first mention."""
        return [one if isinstance(one, Operation) else _net(one) for one in self._order]

    def _touch(self, item: MemoryItem) -> _Draft:
        draft = next(draft for draft in self._drafts if draft.now is item)
        if draft not in self._order:
            self._order.append(draft)
        return draft


def _net(draft: _Draft) -> Operation:
    before, now = draft.before, draft.now
    if before == now:
        return Operation(Action.NOOP, before, now)
    if before is None:
        return Operation(Action.ADD, after=now)
    return Operation(Action.DELETE if now is None else Action.UPDATE, before, now)
