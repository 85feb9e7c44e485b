"""The choice of a system's own search instead of a retriever: `--retriever own`."""

from __future__ import annotations

from collections.abc import Sequence

from recallbed.corpus.records import Memory
from retrievers.base import Retriever, RetrieverError


class OwnSearch(Retriever):
    """Stands for the search of an external system. It cannot score anything itself."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        """Raise RetrieverError."""
        raise RetrieverError("this memory system has no search of its own")
