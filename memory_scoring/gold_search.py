"""Whether the search found the gold memory, from the hits that a run stores with its answers.

A system words its memories itself, so the gold memory has to be recognised among them. Three ways,
the first that recognises any:

- text: the same text, except for case and white space (as with `gold-memory`);
- evidence: read from a turn that the gold memory was read from (`turns`, `mem0-like`);
- overlap: of all memories it shares the most tokens with the gold memory, and at least half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory_scoring.similarity import token_overlap
from recallbed.corpus.records import MemoryItem, Turn

WAYS = ("text", "evidence", "overlap")
KS = (1, 5, 10)
SAME_FROM = 0.5
"""From this `mutual_overlap` a memory may be a paraphrase of the gold memory."""


@dataclass(frozen=True, slots=True)
class RunMemory:
    """A memory of a run: its text, and the turns that it was read from."""

    text: str
    turns: frozenset[int]


@dataclass(frozen=True, slots=True)
class GoldSearch:
    """How the gold memory was recognised in the store, None for not at all, and its ranks.

    `ranks` are those of the hits that are the gold memory, from 1, of `hits` hits. `depth` is how
    many were asked of a system's own search, which may find fewer; 0 with a retriever, which finds
    as many as it is asked for: then no hits in a store that is not empty mean that nothing was
    searched. `newest` is the last position in the store at which the gold memory was recognised,
    from 0.
    """

    by: str | None
    ranks: tuple[int, ...]
    hits: int
    memories: int
    newest: int | None = None
    depth: int = 0

    @property
    def rank(self) -> int | None:
        """The best rank, None if no hit is the gold memory."""
        return min(self.ranks, default=None)

    @property
    def searched(self) -> bool:
        """Whether memories were searched."""
        return self.hits > 0 or self.depth > 0

    def within(self, k: int) -> bool | None:
        """Return whether the gold memory is among the best k; None if fewer were looked for."""
        if self.rank is not None:
            return self.rank <= k
        return False if max(self.hits, self.depth) >= min(k, self.memories) else None


def stored_memories(result: Mapping[str, Any]) -> list[RunMemory]:
    """Return the memories of a row of a run, in the order that hits refer to."""
    return [
        RunMemory(
            item["value"],
            frozenset((item.get("evidence") or {}).get("utterance_index") or ()),
        )
        for item in result["memory_items"]
    ]


def search_for_gold(
    gold: MemoryItem,
    history: Sequence[Turn],
    memories: Sequence[RunMemory],
    hits: Sequence[int | None],
    depth: int = 0,
) -> GoldSearch:
    """Recognise the gold memory, and rank it among the hits (positions in `memories`).

    `depth` as in GoldSearch.
    """
    by, positions = recognise(gold, history, memories)
    ranks = tuple(rank for rank, hit in enumerate(hits, 1) if hit in positions)
    distinct = len({memory.text for memory in memories})
    return GoldSearch(by, ranks, len(hits), distinct, max(positions, default=None), depth)


def names_the_memory(used: str, gold: MemoryItem, history: Sequence[Turn]) -> bool:
    """Return whether the text `used` is the gold memory; a run and its predictions agree.

    It contains at least half of the memory's tokens, or it equals a turn that the memory was read
    from.
    """
    if not used.strip():
        return False
    return (
        plain_text(used) in _evidence_texts(gold, history)
        or token_overlap(gold.text, used) >= SAME_FROM
    )


def _evidence_texts(gold: MemoryItem, history: Sequence[Turn]) -> set[str]:
    """The `plain_text` texts of the turns that the gold memory was read from, with role and not."""
    numbers = gold.evidence.utterances if gold.evidence else ()
    turns = [history[n] for n in numbers if 0 <= n < len(history)]
    forms = [(turn.text, f"{turn.role}: {turn.text}") for turn in turns]
    return {plain_text(text) for form in forms for text in form}


def recognise(
    gold: MemoryItem, history: Sequence[Turn], memories: Sequence[RunMemory]
) -> tuple[str | None, set[int]]:
    """Return which of WAYS recognises the gold memory, and the positions of all candidates."""
    kept = [plain_text(memory.text) for memory in memories]
    same = {i for i, text in enumerate(kept) if text == plain_text(gold.text)}
    if same:
        return "text", same
    turns = frozenset(gold.evidence.utterances if gold.evidence else ())
    # A repeated turn is stored once, under its first position.
    texts = _evidence_texts(gold, history)
    read = {i for i, memory in enumerate(memories) if turns & memory.turns or kept[i] in texts}
    if read:
        return "evidence", read
    overlaps = [mutual_overlap(gold.text, memory.text) for memory in memories]
    best = max(overlaps, default=0.0)
    if best < SAME_FROM:
        return None, set()
    return "overlap", {i for i, value in enumerate(overlaps) if value == best}


def mutual_overlap(one: str, other: str) -> float:
    """Return the smaller `token_overlap` of the two directions, 0 to 1."""
    return min(token_overlap(one, other), token_overlap(other, one))


def plain_text(text: str) -> str:
    """Return `text` without case and with single spaces."""
    return " ".join(text.split()).casefold()
