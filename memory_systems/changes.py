"""What a dialogue does to a user's memories, drafted before any of it is stored.

Each fact is decided on with the ones before it in effect. What is stored at the end is one
operation a memory: an addition that was then reworded is one ADD, a memory that was deleted and
added again an UPDATE that keeps its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memory_systems.base import Action, Operation
from memory_systems.facts import same_text
from recallbed.corpus.records import MemoryItem


@dataclass(slots=True)
class _Place:
    """A memory before (None: not stored yet) and as it is now (None: deleted)."""

    before: MemoryItem | None
    now: MemoryItem | None
    deleted_for: str = ""
    """The text of the fact that it was deleted for."""


class Changes:
    """A draft over the `stored` memories, oldest first."""

    def __init__(self, stored: Sequence[MemoryItem]) -> None:
        self._places = [_Place(item, item) for item in stored]
        self._order: list[_Place | Operation] = []

    @property
    def items(self) -> list[MemoryItem]:
        """The memories as they are now, oldest first; those that aren't stored have no id."""
        return [place.now for place in self._places if place.now is not None]

    def like(self, text: str) -> MemoryItem | None:
        """The oldest memory that reads like `text`, case and spacing aside."""
        return next((item for item in self.items if same_text(item.text, text)), None)

    def add(self, item: MemoryItem) -> None:
        """Add `item`, or put it in the place of a memory that was deleted for the same fact."""
        for place in self._places:
            before = place.before
            if (
                place.now is None
                and before is not None
                and (same_text(item.text, place.deleted_for) or same_text(item.text, before.text))
            ):
                place.now = replace(item, id=before.id)
                return
        self._places.append(_Place(None, item))
        self._order.append(self._places[-1])

    def update(self, old: MemoryItem, new: MemoryItem) -> None:
        """Put `new` in the place of `old`, which is one of `items`."""
        place = self._touch(old)
        place.now = replace(new, id=old.id)

    def delete(self, old: MemoryItem, fact: str) -> None:
        """Remove `old`, which is one of `items`, for what `fact` says."""
        place = self._touch(old)
        place.now, place.deleted_for = None, fact

    def keep(self, item: MemoryItem | None = None) -> None:
        """Note that nothing was to be done, `item` being there."""
        self._order.append(Operation(Action.NOOP, item, item))

    def operations(self) -> list[Operation]:
        """One operation a memory that was touched, and the NOOPs, in the order of first mention."""
        return [one if isinstance(one, Operation) else _net(one) for one in self._order]

    def _touch(self, item: MemoryItem) -> _Place:
        place = next(place for place in self._places if place.now is item)
        if not any(one is place for one in self._order):
            self._order.append(place)
        return place


def _net(place: _Place) -> Operation:
    before, now = place.before, place.now
    if before == now:
        return Operation(Action.NOOP, before, now)
    if before is None:
        return Operation(Action.ADD, after=now)
    return Operation(Action.DELETE if now is None else Action.UPDATE, before, now)
