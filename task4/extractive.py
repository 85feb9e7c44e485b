"""Answers without a model: the memory that the retriever ranks first is quoted.

A baseline for the judges, and a measure of what a retriever finds in a history.
"""

from __future__ import annotations

from memory_systems.base import Response
from memory_systems.turns import Turns


class Extractive(Turns):
    """Stores every user turn, and answers with the one that the retriever puts first."""

    def respond(self, query: str) -> Response:
        """Return the best hit verbatim; an empty answer if nothing is stored."""
        hits = tuple(self.search(query, self.k))
        best = hits[0].item.text if hits else ""
        return Response(best, best, hits)
