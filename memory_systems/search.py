"""Ranking a user's memories for a query by any retriever, one thread at a time."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.metrics import display_order
from memory_systems.base import Hit, SystemFailure, visible
from recallbed.chat_models.base import NOTHING_USED, Usage
from recallbed.corpus.records import MemoryItem
from retrievers.base import NotScored, Retriever

_LOCKS: dict[int, threading.Lock] = {}
_FINDING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Found:
    """The best memories, and what the retriever's own model calls took."""

    hits: tuple[Hit, ...] = ()
    usage: Usage = NOTHING_USED


def rank(retriever: Retriever, query: str, items: Sequence[MemoryItem], k: int) -> Found:
    """The best `k` of `items` (oldest first) by (-score, age).

    Texts in the result are distinct: the oldest memory stands for all that read alike. Raises
    SystemFailure where the query can't be scored; UserError and MemoryError pass through.
    """
    oldest: dict[str, MemoryItem] = {}
    for item in items:
        oldest.setdefault(item.text, item)
    distinct = list(oldest.values())
    if not distinct:
        return Found()
    pool = [visible(item) for item in distinct]
    with _lock_of(retriever):
        [scored] = retriever.results([query], [pool])
    if isinstance(scored, NotScored):
        raise SystemFailure(scored.cause, scored.usage)
    scores = np.asarray(scored.scores, np.float32)
    hits = tuple(Hit(distinct[i], float(scores[i])) for i in display_order(scores, max(k, 0)))
    return Found(hits, scored.usage)


def _lock_of(retriever: Retriever) -> threading.Lock:
    """The lock of this very instance: systems in several threads share one retriever."""
    with _FINDING:
        key = id(retriever)
        if key not in _LOCKS:
            _LOCKS[key] = threading.Lock()
            weakref.finalize(retriever, _LOCKS.pop, key, None)
        return _LOCKS[key]
