"""Memory system that puts the whole history into the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from memory_systems.base import Action, Operation, Response, SystemContext
from memory_systems.budget import newest_within
from memory_systems.registry import register_system
from memory_systems.stored import StoredSystem
from recallbed.corpus.records import Evidence, MemoryItem, Turn


@register_system("full-dialogue")
class FullDialogue(StoredSystem):
    """Stores every turn of all dialogues as `role: text`; an answer sees all of them.

    Beyond `budget` tokens, or the model's context if that is less, the oldest are left out.
    """

    def __init__(
        self,
        context: SystemContext,
        budget: int = 100_000,
        reply_tokens: int = 2048,
        temperature: float | None = 0.0,
    ) -> None:
        super().__init__(context, budget=budget, reply_tokens=reply_tokens, temperature=temperature)

    @override
    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        items = [
            MemoryItem(f"{turn.role}: {turn.text}", evidence=Evidence("", (n,), turn.text))
            for n, turn in enumerate(dialogue)
            if turn.text.strip()
        ]
        return self.apply([Operation(Action.ADD, after=item) for item in items])

    @override
    def respond(self, query: str) -> Response:
        with self.attempt() as attempt:
            texts = [item.text for item in self.memories()]
            return attempt.respond(query, texts, self.budget, newest_within)
