"""The algorithm of Mem0 (Chhikara et al., arXiv 2504.19413): extract facts, then decide on each.

Implemented from the paper's description, with this project's store, retrievers, chat models and
prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator
from typing_extensions import override

from memory_systems.attempt import RESPOND, Attempt
from memory_systems.base import Operation, SystemContext
from memory_systems.changes import Changes
from memory_systems.extraction import EXTRACT, extract_facts
from memory_systems.facts import plain, rewritten, same_text
from memory_systems.registry import register_system
from memory_systems.stored import StoredSystem, at_least_one
from recallbed.chat_models import Message, PromptFile, fence_for, harmless_line
from recallbed.corpus.records import MemoryItem, Turn

DECIDE = "decide.v1"


def _upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


class Decision(BaseModel):
    """The reply to the decision prompt. `memory` is a label from 1 as it was shown."""

    action: Annotated[Literal["ADD", "UPDATE", "DELETE", "NOOP"], BeforeValidator(_upper)]
    memory: int | None = None
    text: str | None = None


@register_system("mem0-like")
class Mem0Like(StoredSystem):
    """Extracts facts from a dialogue; compares each with the `similar` memories most like it.

    A dialogue longer than `chunk` tokens, or than the model's context allows, is read in parts.
    """

    needs_chat = True
    replies_lead_to_calls = True
    prompts = (EXTRACT, DECIDE, RESPOND)

    def __init__(
        self,
        context: SystemContext,
        k: int = 10,
        budget: int = 2000,
        similar: int = 5,
        chunk: int = 16_000,
        reply_tokens: int = 4096,
        temperature: float | None = 0.0,
    ) -> None:
        super().__init__(context, k, budget, reply_tokens, temperature)
        at_least_one(similar=similar, chunk=chunk)
        self.similar, self.chunk = similar, chunk

    @override
    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        with self.attempt() as attempt:
            changes = Changes(self.memories())
            found = extract_facts(attempt, dialogue, self.chunk)
            self.unknown_labels += found.unknown_labels
            for item in found.items:
                self._decide(attempt, item, changes)
            return self.apply(changes.operations(), attempt.usage)

    def _decide(self, attempt: Attempt, item: MemoryItem, changes: Changes) -> None:
        """Draft the change for `item`. The model is not asked if it is known or the first."""
        same = changes.like(item.text)
        if same is not None or not item.text:
            return changes.keep(same)
        hits = attempt.search(item.text, changes.items, self.similar)
        if not hits:
            return changes.add(item)
        found = [hit.item for hit in hits]
        decision = attempt.ask(_question(item, found), Decision)
        if decision.action == "ADD":
            return changes.add(item)
        chosen = self._labelled(decision, found)
        if chosen is None or decision.action == "NOOP":
            return changes.keep(chosen)
        if decision.action == "DELETE":
            return changes.delete(chosen, item.text)
        text = plain(decision.text or "") or item.text
        if same_text(text, chosen.text):
            return changes.keep(chosen)
        return changes.update(chosen, rewritten(chosen, item, text))

    def _labelled(self, decision: Decision, found: Sequence[MemoryItem]) -> MemoryItem | None:
        """Return the memory that a decision names; None, and counted, if its label names none."""
        label = decision.memory
        if label is not None and 1 <= label <= len(found):
            return found[label - 1]
        if label is not None or decision.action != "NOOP":
            self.unknown_labels += 1
        return None


def _question(item: MemoryItem, found: Sequence[MemoryItem]) -> tuple[Message, ...]:
    lines = [f"New fact: {harmless_line(item.text)}", "", "Memories:"]
    lines += [f"[{label}] {harmless_line(memory.text)}" for label, memory in enumerate(found, 1)]
    fence = fence_for(lines)
    return PromptFile.load("memory_systems", DECIDE).fill(
        rule=fence.rule, data=fence.put("\n".join(lines)), count=len(found)
    )
