"""The plain chat model that memory systems are compared with: one prompt, no retriever.

Tasks 1 and 2 as in AlpsBench: a dialogue in, memories out; memories and dialogues in, the updated
list out. In task 4 the history is in the prompt of each question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, model_validator
from typing_extensions import override

from memory_systems.attempt import RESPOND, Attempt
from memory_systems.base import Operation, SystemContext, SystemFailure
from memory_systems.budget import LineTokens, newest_within, room
from memory_systems.changes import Changes
from memory_systems.extraction import EXTRACT, extract_facts, parts_of, taxonomy
from memory_systems.facts import Fact, rewritten, same_text
from memory_systems.full_dialogue import FullDialogue
from memory_systems.registry import register_system
from memory_systems.stored import StoredSystem, at_least_one
from recallbed.chat_models import Cause, Message, PromptFile, fence_for, harmless_line
from recallbed.corpus.records import MemoryItem, Turn

UPDATE = "update.v1"


class UpdatedMemory(Fact):
    """One memory of the updated list. `memory` is the label of the one that it was."""

    memory: int | None = None


class UpdatedMemories(BaseModel):
    """The reply to the update prompt: all memories from now on."""

    memories: list[UpdatedMemory]

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, value: Any) -> Any:
        return {"memories": value} if isinstance(value, list) else value


@register_system("llm")
class PlainModel(StoredSystem):
    """A chat model without a memory system: it writes the memories, or the updated list of them.

    A dialogue longer than `chunk` tokens, or than the model's context allows, is read in parts, an
    update from one part to the next; such dialogues are counted. With `old_dialogue` an update also
    sees the dialogue that the given memories came from, of which the oldest lines are left out, and
    counted, if it is too long.
    """

    needs_chat = True
    prompts = (EXTRACT, UPDATE, RESPOND)

    def __init__(
        self,
        context: SystemContext,
        old_dialogue: bool = True,
        k: int = 10,
        budget: int = 2000,
        chunk: int = 16_000,
        reply_tokens: int = 4096,
        temperature: float | None = 0.0,
    ) -> None:
        super().__init__(context, k, budget, reply_tokens, temperature)
        at_least_one(chunk=chunk)
        self.old_dialogue, self.chunk = old_dialogue, chunk
        self._before: tuple[Turn, ...] = ()

    @override
    def open(self, user: str) -> None:
        super().open(user)
        self._before = ()

    @override
    def read_before(self, dialogue: Sequence[Turn]) -> None:
        self._before = tuple(dialogue) if self.old_dialogue else ()

    @override
    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        with self.attempt() as attempt:
            stored = self.memories()
            changes = Changes(stored)
            if stored:
                self._update(attempt, dialogue, changes)
            else:
                found = extract_facts(attempt, dialogue, self.chunk)
                self.unknown_labels += found.unknown_labels
                self.count_cut("dialogues read in parts", found.parts > 1)
                for item in found.items:
                    _add(changes, item)
            return self.apply(changes.operations(), attempt.usage)

    def _update(self, attempt: Attempt, dialogue: Sequence[Turn], changes: Changes) -> None:
        """Have the list rewritten for each part of `dialogue`, each after the one before it."""
        frame = _update_prompt(changes.items, [], ["[0] user: "])
        if attempt.chat.context is not None and not room(
            attempt.chat, frame, self.reply_tokens, self.chunk
        ):
            raise SystemFailure(Cause.CONTEXT.value, attempt.usage)
        parts = parts_of(attempt, dialogue, frame, self.chunk)
        self.count_cut("dialogues read in parts", len(parts) > 1)
        for part in parts:
            lines = [line for _, line in part]
            given = changes.items
            before = self._old_lines(attempt, given, lines)
            reply = attempt.ask(_update_prompt(given, before, lines), UpdatedMemories)
            self._apply_list(
                reply, given, {number: dialogue[number] for number, _ in part}, changes
            )

    def _old_lines(
        self, attempt: Attempt, given: Sequence[MemoryItem], lines: Sequence[str]
    ) -> list[str]:
        """The newest lines of the old dialogue that fit beside the rest of the prompt."""
        old = [
            f"{harmless_line(turn.role)}: {harmless_line(turn.text)}"
            for turn in self._before
            if turn.text.strip()
        ]
        if not old:
            return []
        frame = _update_prompt(given, ["user: "], lines)
        costs = [*map(LineTokens(attempt.chat), old)]
        shown = newest_within(costs, room(attempt.chat, frame, self.reply_tokens, self.chunk))
        self.count_cut("old dialogues cut", len(shown) < len(old))
        return [old[i] for i in shown]

    def _apply_list(
        self,
        reply: UpdatedMemories,
        given: Sequence[MemoryItem],
        shown: dict[int, Turn],
        changes: Changes,
    ) -> None:
        kept: dict[int, UpdatedMemory] = {}
        new = []
        for entry in reply.memories:
            self.unknown_labels += sum(number not in shown for number in entry.evidence)
            label = entry.memory
            if label is not None and 1 <= label <= len(given) and label not in kept:
                kept[label] = entry
            else:
                self.unknown_labels += label is not None
                new.append(entry.item(shown))
        for label, old in enumerate(given, 1):
            if label not in kept:
                changes.delete(old, "")
            elif not same_text(kept[label].text, old.text):
                entry = kept[label]
                changes.update(old, rewritten(old, entry.item(shown), entry.text))
        for item in new:
            _add(changes, item)


class PlainHistory(FullDialogue):
    """A chat model that answers with the history in its prompt."""

    needs_chat = True


def _add(changes: Changes, item: MemoryItem) -> None:
    same = changes.like(item.text)
    if same is None:
        changes.add(item)
    else:
        changes.keep(same)


def _update_prompt(
    items: Sequence[MemoryItem], before: Sequence[str], lines: Sequence[str]
) -> tuple[Message, ...]:
    listed = [f"[{label}] {harmless_line(item.text)}" for label, item in enumerate(items, 1)]
    blocks = [["Memories:", *listed], ["New dialogue:", *lines]]
    if before:
        blocks.insert(1, ["Old dialogue:", *before])
    data = [*blocks[0], *(line for block in blocks[1:] for line in ("", *block))]
    fence = fence_for(data)
    return PromptFile.load("memory_systems", UPDATE).fill(
        rule=fence.rule, data=fence.put("\n".join(data)), **taxonomy()
    )
