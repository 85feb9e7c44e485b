"""The actions behind an updated list of memories: retention, addition, modification.

A memory of the list continues a given one or none. Its id decides if it follows the release: a
given memory's own id or `<id>_updated` continues that one, `m_new_<n>` continues none. All others
are decided by content: an equal text first, then what is left on both sides by pair score, one to
one from 0.30, as in the matcher. Each given memory is continued once, by the first that claims it.

What continues a given memory is a retention if the text is the same, except for case and white
space, and a modification if not; what continues none is an addition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from analysis.statistics import Interval, mean_interval
from memory_scoring import Pair, coverage, similar_pairs, text_similarity
from recallbed.corpus.records import MemoryItem

JSON = Any
_NEW = re.compile(r"m_new_\d+")
_UPDATED = "_updated"
LEAST_SIMILAR = 0.1
"""Texts below this similarity share single letters: "x" has up to 0.08 with a text of dev."""


class UpdateAction(StrEnum):
    """What became of a memory."""

    RETENTION = "retention"
    ADDITION = "addition"
    MODIFICATION = "modification"


@dataclass(frozen=True, slots=True)
class ItemAction:
    """The action behind one memory of a list, and the position of the given one it continues."""

    action: UpdateAction
    target: int | None = None


def item_actions(given: Sequence[MemoryItem], items: Sequence[MemoryItem]) -> list[ItemAction]:
    """Return the action behind each of `items`, in their order."""
    targets = _by_id(given, items)
    open_items = [i for i, item in enumerate(items) if i not in targets and not _is_new(item)]
    for i in list(open_items):
        free = (t for t in range(len(given)) if t not in targets.values())
        equal = next((t for t in free if _same(given[t], items[i])), None)
        if equal is not None:
            targets[i] = equal
            open_items.remove(i)
    left = [t for t in range(len(given)) if t not in targets.values()]
    for pair in similar_pairs([given[t] for t in left], [items[i] for i in open_items]):
        targets[open_items[pair.predicted]] = left[pair.gold]
    return [_action(given, item, targets.get(i)) for i, item in enumerate(items)]


def changed_positions(given: Sequence[MemoryItem], gold: Sequence[MemoryItem]) -> list[int]:
    """Return the positions of the given memories that the references modify."""
    return [
        found.target
        for found in item_actions(given, gold)
        if found.action is UpdateAction.MODIFICATION and found.target is not None
    ]


def _by_id(given: Sequence[MemoryItem], items: Sequence[MemoryItem]) -> dict[int, int]:
    """Positions of items -> of given memories, as far as ids decide."""
    known = {item.id: t for t, item in reversed(list(enumerate(given))) if item.id}
    targets: dict[int, int] = {}
    for i, item in enumerate(items):
        name = item.id or ""
        target = known.get(name, known.get(name.removesuffix(_UPDATED)))
        if target is not None and target not in targets.values():
            targets[i] = target
    return targets


def _is_new(item: MemoryItem) -> bool:
    return item.id is not None and _NEW.fullmatch(item.id) is not None


def _same(one: MemoryItem, other: MemoryItem) -> bool:
    return one.text.lower().split() == other.text.lower().split()


def _action(given: Sequence[MemoryItem], item: MemoryItem, target: int | None) -> ItemAction:
    if target is None:
        return ItemAction(UpdateAction.ADDITION)
    kept = _same(given[target], item)
    return ItemAction(UpdateAction.RETENTION if kept else UpdateAction.MODIFICATION, target)


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """One session: the given memories, the gold and the predicted ones, and the pairs of these."""

    session: str
    given: tuple[MemoryItem, ...]
    gold: tuple[MemoryItem, ...]
    predicted: tuple[MemoryItem, ...]
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class ActionFigures:
    """One action over all sessions together, with 95 % intervals over sessions.

    Precision is None over no predicted action, recall over no gold one.
    """

    gold: int
    predicted: int
    correct: int
    precision: Interval | None
    recall: Interval | None

    @property
    def f1(self) -> float:
        """F1 of the counts."""
        return coverage(self.correct, self.predicted, self.gold)[2]

    def to_json(self) -> dict[str, JSON]:
        """Return the counts and figures."""
        found: dict[str, JSON] = {
            "gold": self.gold,
            "predicted": self.predicted,
            "correct": self.correct,
        }
        for name, interval in (("precision", self.precision), ("recall", self.recall)):
            found[name] = None if interval is None else round(interval.mean, 6)
            if interval is not None:
                found[f"{name}_interval"] = [round(interval.low, 6), round(interval.high, 6)]
        return {**found, "f1": round(self.f1, 6)}


@dataclass(frozen=True, slots=True)
class UpdateFigures:
    """The figures of each action and of `all` of them, by name.

    `dropped` counts given memories that no predicted one continues, `text_not_closer` the actions
    that are wrong because of their text only.
    """

    by_action: Mapping[str, ActionFigures]
    dropped: int
    text_not_closer: int

    def to_json(self) -> dict[str, JSON]:
        """Return the figures by action, and both counts."""
        return {
            **{name: found.to_json() for name, found in self.by_action.items()},
            "dropped": self.dropped,
            "text_not_closer": self.text_not_closer,
        }


Hit = tuple[str, UpdateAction, bool]
"""Session, action, and whether it is correct."""


def action_figures(
    updates: Sequence[SessionUpdate], seed: int = 0, *, by_text: bool = True
) -> UpdateFigures:
    """Return precision, recall and F1 of each action over all sessions together.

    A predicted action is correct if its memory is paired with a gold one that has the same action
    on the same given memory and, with `by_text`, its text moved towards the gold text (`_moved`):
    for pairs that may rest on labels alone.
    """
    wanted: list[Hit] = []
    done: list[Hit] = []
    dropped = not_closer = 0
    for update in updates:
        expected = item_actions(update.given, update.gold)
        found = item_actions(update.given, update.predicted)
        same = [pair for pair in update.pairs if expected[pair.gold] == found[pair.predicted]]
        right = {
            pair.gold: pair.predicted
            for pair in same
            if not by_text or _moved(update, pair, expected[pair.gold])
        }
        not_closer += len(same) - len(right)
        hits = set(right.values())
        wanted += [(update.session, one.action, i in right) for i, one in enumerate(expected)]
        done += [(update.session, one.action, i in hits) for i, one in enumerate(found)]
        dropped += len(update.given) - sum(one.target is not None for one in found)
    by_action = {
        action.value: _figures(
            [row for row in wanted if row[1] is action],
            [row for row in done if row[1] is action],
            seed,
        )
        for action in UpdateAction
    }
    return UpdateFigures({**by_action, "all": _figures(wanted, done, seed)}, dropped, not_closer)


def _moved(update: SessionUpdate, pair: Pair, action: ItemAction) -> bool:
    """Whether a predicted text is the gold one, or closer to it than the text before.

    The text before is the given one that is modified; for an addition, any given text. A
    similarity below LEAST_SIMILAR is none.
    """
    gold, predicted = update.gold[pair.gold], update.predicted[pair.predicted]
    if _same(gold, predicted):
        return True
    target = action.target
    before = update.given if target is None else update.given[target : target + 1]
    now = text_similarity(gold.text, predicted.text)
    return now >= LEAST_SIMILAR and all(
        now > text_similarity(gold.text, item.text) for item in before
    )


def _figures(wanted: Sequence[Hit], done: Sequence[Hit], seed: int) -> ActionFigures:
    def rate(rows: Sequence[Hit]) -> Interval | None:
        return mean_interval([row[2] for row in rows], [row[0] for row in rows], seed)

    correct = sum(hit for _, _, hit in wanted)
    return ActionFigures(len(wanted), len(done), correct, rate(done), rate(wanted))
