"""Memories that are equal: the public scorer of the AlpsBench release (src/benchmark/metrics.py).

Two memories are equal if label, value, type, attitude, time scope and emotion are, in lower case
with runs of white space as one space; a missing field equals an empty one. The lists are compared
as multisets: a memory that stands three times on one side and twice on the other makes two pairs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from memory_scoring.pairs import Pair
from recallbed.corpus.records import MemoryItem


def identity(item: MemoryItem) -> tuple[str, ...]:
    """The six fields by which memories are compared."""
    fields = (item.label, item.text, item.type, item.attitude, item.time_scope, item.emotion)
    return tuple(" ".join((field or "").lower().split()) for field in fields)


def exact_pairs(gold: Sequence[MemoryItem], predicted: Sequence[MemoryItem]) -> tuple[Pair, ...]:
    """The multiset intersection: equal memories paired up in the order in which they stand."""
    free: defaultdict[tuple[str, ...], deque[int]] = defaultdict(deque)
    for position, item in enumerate(predicted):
        free[identity(item)].append(position)
    found = []
    for position, item in enumerate(gold):
        if equals := free.get(identity(item)):
            found.append(Pair(position, equals.popleft(), 1.0))
    return tuple(found)
