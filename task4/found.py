"""Did the search find the gold memory? Asked of the hits that a run kept beside its answers.

A system's memories are its own, so the gold memory has to be recognised among them. Three ways, the
first that recognises any:

- text: it reads the same, but for case and white space (so it is with `gold-memory`);
- evidence: it was read from a turn that the gold memory was read from (`turns`, `mem0`);
- overlap: of all memories it shares the most words with the gold memory, and at least half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory_scoring.similarity import token_overlap
from recallbed.corpus.records import MemoryItem, Turn

WAYS = ("text", "evidence", "overlap")
KS = (1, 5, 10)
ALIKE = 0.5
"""From this likeness on a memory may be the gold memory in other words: see `likeness`."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory as a run kept it: its text, and the turns that it was read from."""

    text: str
    turns: frozenset[int]


@dataclass(frozen=True, slots=True)
class Found:
    """How the gold memory was recognised in the store, None for not at all, and its best rank.

    `rank` counts from 1 among `hits` hits, None for a gold memory that isn't among them. With no
    hits over a store that isn't empty nothing was searched.
    """

    by: str | None
    rank: int | None
    hits: int
    memories: int

    @property
    def searched(self) -> bool:
        """Whether there was a search over memories at all."""
        return self.hits > 0

    def within(self, k: int) -> bool | None:
        """Whether the gold memory is among the best k; None where so many weren't looked for."""
        if self.rank is not None:
            return self.rank <= k
        return False if self.hits >= min(k, self.memories) else None


def stored_memories(result: Mapping[str, Any]) -> list[Stored]:
    """The memories of a row of a run, in the order that hits refer to."""
    return [
        Stored(
            item["value"],
            frozenset((item["evidence"] or {}).get("utterance_index") or ()),
        )
        for item in result["memory_items"]
    ]


def find(
    gold: MemoryItem,
    history: Sequence[Turn],
    memories: Sequence[Stored],
    hits: Sequence[int | None],
) -> Found:
    """Recognise the gold memory, and see where the hits (places in `memories`) have it."""
    by, places = recognise(gold, history, memories)
    ranks = [rank for rank, place in enumerate(hits, 1) if place in places]
    distinct = len({memory.text for memory in memories})
    return Found(by, min(ranks, default=None), len(hits), distinct)


def names_the_memory(used: str, gold: MemoryItem, history: Sequence[Turn]) -> bool:
    """Whether the text `used` is the gold memory: as a run and a file of predictions both have it.

    It holds at least half of the memory's words, or it is word for word a turn that the memory was
    read from.
    """
    if not used.strip():
        return False
    return plain(used) in _said(gold, history) or token_overlap(gold.text, used) >= ALIKE


def _said(gold: MemoryItem, history: Sequence[Turn]) -> set[str]:
    """The turns that the gold memory was read from, as `plain` has them."""
    turns = gold.evidence.utterances if gold.evidence else ()
    return {plain(history[n].text) for n in turns if 0 <= n < len(history)}


def recognise(
    gold: MemoryItem, history: Sequence[Turn], memories: Sequence[Stored]
) -> tuple[str | None, set[int]]:
    """Which of WAYS recognises the gold memory, and the places of all that it may be."""
    kept = [plain(memory.text) for memory in memories]
    same = {i for i, text in enumerate(kept) if text == plain(gold.text)}
    if same:
        return "text", same
    turns = frozenset(gold.evidence.utterances if gold.evidence else ())
    # A turn that was said before is stored under the place where it stood first.
    said = _said(gold, history)
    read = {i for i, memory in enumerate(memories) if turns & memory.turns or kept[i] in said}
    if read:
        return "evidence", read
    alike = [likeness(gold.text, memory.text) for memory in memories]
    best = max(alike, default=0.0)
    if best < ALIKE:
        return None, set()
    return "overlap", {i for i, value in enumerate(alike) if value == best}


def likeness(one: str, other: str) -> float:
    """The lesser of the two shares of one text's words that stand in the other, 0 to 1."""
    return min(token_overlap(one, other), token_overlap(other, one))


def plain(text: str) -> str:
    """`text` without what doesn't matter to its reader: case, and how its words are spaced."""
    return " ".join(text.split()).casefold()
