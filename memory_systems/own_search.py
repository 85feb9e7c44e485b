"""The search of an external system in place of a retriever: `--retriever own`."""

from __future__ import annotations

from collections.abc import Sequence

from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration
from retrievers.base import Retriever, RetrieverError
from retrievers.registry import GivenInstance

OWN = "own"


class OwnSearch(Retriever):
    """Placeholder for the search of a memory system. It cannot score anything."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        """Raise RetrieverError."""
        raise RetrieverError("this memory system has no search of its own")


def own_search(configuration: Configuration) -> Configuration | None:
    """Return the configuration that `--retriever own` means; None for any other retriever.

    Raises UserError for a setting.
    """
    if configuration.name != OWN:
        return None
    if configuration.settings:
        label, [key, *_] = configuration.label, configuration.settings
        raise UserError(f"--set {label}.{key}: the search of a memory system has no settings here")
    return GivenInstance(configuration.label, OWN, {}, instance=OwnSearch())
