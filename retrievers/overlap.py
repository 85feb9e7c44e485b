"""The smallest useful retriever, the worked example of docs/adding_a_retriever.md."""

from collections.abc import Sequence

from recallbed.corpus import Memory
from retrievers import Retriever, register


@register("overlap")
class Overlap(Retriever):
    """The number of words of the query that are in the memory."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[int]:
        """Return counts of shared lower-case words, (len(pool),)."""
        words = set(query.lower().split())
        return [len(words & set(memory.text.lower().split())) for memory in pool]
