"""What an updated list did to the memories that were given: retention, addition, modification.

A memory of the list stands for a given one or for none. Its id tells, where it follows the
release: a given memory's own id or `<id>_updated` stands for that one, `m_new_<n>` for none. All
others are told by their content: an equal text first, and what is then left on both sides by pair
score, one to one from 0.30, as in the matcher. Each given memory is stood for once, by the first
that claims it.

What stands for a given memory is a retention if the text is the same, but for case and white
space, and a modification if it isn't; what stands for none is an addition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from analysis.statistics import Bootstrap
from memory_scoring import Pair, coverage, similar_pairs, text_similarity
from recallbed.corpus.records import MemoryItem

JSON = Any
_NEW = re.compile(r"m_new_\d+")
_UPDATED = "_updated"
LEAST_SIMILAR = 0.1
"""Texts below this similarity share single letters: "x" has up to 0.08 with a text of dev."""


class Action(StrEnum):
    """What became of a memory."""

    RETENTION = "retention"
    ADDITION = "addition"
    MODIFICATION = "modification"


@dataclass(frozen=True, slots=True)
class Deed:
    """The action behind one memory of a list, and the position of the given one it stands for."""

    action: Action
    target: int | None = None


def deeds(given: Sequence[MemoryItem], items: Sequence[MemoryItem]) -> list[Deed]:
    """The action behind each of `items`, in their order."""
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
    return [_deed(given, item, targets.get(i)) for i, item in enumerate(items)]


def _by_id(given: Sequence[MemoryItem], items: Sequence[MemoryItem]) -> dict[int, int]:
    """Positions of items -> of given memories, as far as ids tell."""
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


def _deed(given: Sequence[MemoryItem], item: MemoryItem, target: int | None) -> Deed:
    if target is None:
        return Deed(Action.ADDITION)
    kept = _same(given[target], item)
    return Deed(Action.RETENTION if kept else Action.MODIFICATION, target)


@dataclass(frozen=True, slots=True)
class Update:
    """One session: what was given, what should have come of it, what did, and the pairs."""

    session: str
    given: tuple[MemoryItem, ...]
    gold: tuple[MemoryItem, ...]
    predicted: tuple[MemoryItem, ...]
    pairs: tuple[Pair, ...]


def action_figures(
    updates: Sequence[Update], seed: int = 0, *, by_text: bool = True
) -> dict[str, JSON]:
    """Precision, recall and F1 of each action over all sessions together, and of all actions.

    A predicted action is right if its memory is paired with a gold one that has the same action on
    the same given memory and, with `by_text`, its text moved towards the gold text (`_moved`): for
    pairs that may rest on labels alone. Precision and recall have 95 % intervals over sessions;
    both are None over no action. `dropped` counts given memories that no predicted one stands for,
    `text_not_closer` the actions that are wrong by their text alone.
    """
    wanted: list[tuple[str, Action, bool]] = []
    done: list[tuple[str, Action, bool]] = []
    dropped = not_closer = 0
    for update in updates:
        should, did = deeds(update.given, update.gold), deeds(update.given, update.predicted)
        same = [pair for pair in update.pairs if should[pair.gold] == did[pair.predicted]]
        right = {
            pair.gold: pair.predicted
            for pair in same
            if not by_text or _moved(update, pair, should[pair.gold])
        }
        not_closer += len(same) - len(right)
        hits = set(right.values())
        wanted += [(update.session, deed.action, i in right) for i, deed in enumerate(should)]
        done += [(update.session, deed.action, i in hits) for i, deed in enumerate(did)]
        dropped += len(update.given) - sum(deed.target is not None for deed in did)
    by_action = {
        action.value: _figures(
            [row for row in wanted if row[1] is action], [row for row in done if row[1] is action],
            seed,
        )
        for action in Action
    }  # fmt: skip
    return {
        **by_action,
        "all": _figures(wanted, done, seed),
        "dropped": dropped,
        "text_not_closer": not_closer,
    }


def _moved(update: Update, pair: Pair, deed: Deed) -> bool:
    """Whether a predicted text is the gold one, or closer to it than what was there before.

    Before stands the given text that is modified, or for an addition any given text. A similarity
    below LEAST_SIMILAR is none.
    """
    gold, predicted = update.gold[pair.gold], update.predicted[pair.predicted]
    if _same(gold, predicted):
        return True
    before = update.given if deed.target is None else update.given[deed.target : deed.target + 1]
    now = text_similarity(gold.text, predicted.text)
    return now >= LEAST_SIMILAR and all(
        now > text_similarity(gold.text, item.text) for item in before
    )


def _figures(
    wanted: Sequence[tuple[str, Action, bool]], done: Sequence[tuple[str, Action, bool]], seed: int
) -> Mapping[str, JSON]:
    correct = sum(hit for _, _, hit in wanted)
    found: dict[str, JSON] = {"gold": len(wanted), "predicted": len(done), "correct": correct}
    for name, rows in (("precision", done), ("recall", wanted)):
        found[name] = None
        if rows:
            interval = Bootstrap([row[0] for row in rows], seed).interval(
                np.array([row[2] for row in rows], float)
            )
            found[name] = round(interval.mean, 6)
            found[f"{name}_interval"] = [round(interval.low, 6), round(interval.high, 6)]
    found["f1"] = round(coverage(correct, len(done), len(wanted))[2], 6)
    return found
