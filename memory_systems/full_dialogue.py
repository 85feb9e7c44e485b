"""The whole history in the prompt: no extraction, no retrieval, as long as it fits."""

from __future__ import annotations

from collections.abc import Sequence

from memory_systems.base import Action, Operation, Response, SystemContext
from memory_systems.registry import register_system
from memory_systems.respond import respond_from_history
from memory_systems.stored import StoredSystem
from recallbed.corpus.records import Evidence, MemoryItem, Turn


@register_system("full-dialogue")
class FullDialogue(StoredSystem):
    """Its memories are the turns of all dialogues, as `role: text`; an answer sees all of them.

    Beyond `budget` tokens, or the model's context if that is less, the oldest are cut.
    """

    def __init__(
        self,
        context: SystemContext,
        budget: int = 100_000,
        reply_tokens: int = 2048,
        temperature: float | None = 0.0,
    ) -> None:
        super().__init__(context, budget=budget, reply_tokens=reply_tokens, temperature=temperature)

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        """An ADD for each turn that isn't blank, those of the assistant included."""
        return self.apply(
            [
                Operation(
                    Action.ADD,
                    after=MemoryItem(
                        f"{turn.role}: {turn.text}", evidence=Evidence("", (number,), turn.text)
                    ),
                )
                for number, turn in enumerate(dialogue)
                if turn.text.strip()
            ]
        )

    def respond(self, query: str) -> Response:
        """Answer from the whole history. `hits` is empty: nothing was searched."""
        with self.attempt() as attempt:
            texts = [item.text for item in self.memories()]
            return respond_from_history(attempt, query, texts, self.budget)
