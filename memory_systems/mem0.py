"""The algorithm of Mem0 (Chhikara et al., arXiv 2504.19413): extract facts, then decide on each.

Implemented from the paper's description, with this project's store, retrievers, chat models and
prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator
from typing_extensions import override

from memory_systems.attempt import RESPOND, Attempt
from memory_systems.base import Action, Operation, SystemContext
from memory_systems.budget import LineTokens, numbered_chunks, room
from memory_systems.facts import Attitude, Facts, Label, TimeScope, plain, rewritten, same_text
from memory_systems.registry import register_system
from memory_systems.stored import StoredSystem, at_least_one
from recallbed.chat_models import Message, PromptFile, fence_for, harmless_line
from recallbed.corpus.records import MemoryItem, Turn
from recallbed.errors import UserError

EXTRACT, DECIDE = "extract.v1", "decide.v1"


def _upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


class Decision(BaseModel):
    """The reply to the decision prompt. `memory` is a label from 1 as it was shown."""

    action: Annotated[Literal["ADD", "UPDATE", "DELETE", "NOOP"], BeforeValidator(_upper)]
    memory: int | None = None
    text: str | None = None


@register_system("mem0")
class Mem0(StoredSystem):
    """Extracts facts from a dialogue; compares each with the `similar` memories most like it.

    A dialogue longer than `chunk` tokens, or than the model's context allows, is read in parts.
    """

    needs_chat = True
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
            for item in self._extract(attempt, dialogue):
                self._decide(attempt, item, changes)
            return self.apply(changes.operations(), attempt.usage)

    def _extract(self, attempt: Attempt, dialogue: Sequence[Turn]) -> list[MemoryItem]:
        frame = _extraction(["[0] user: "])
        budget = room(attempt.chat, frame, self.reply_tokens, self.chunk)
        try:
            chunks = numbered_chunks(dialogue, budget, LineTokens(attempt.chat))
        except ValueError as error:
            raise UserError(
                f"{error}; the model has a context of {attempt.chat.context}."
                " Set chunk higher or reply_tokens lower"
            ) from error
        prompts = [_extraction([line for _, line in chunk]) for chunk in chunks]
        replies = attempt.ask_all(prompts, Facts) if prompts else []
        items = []
        for chunk, reply in zip(chunks, replies, strict=True):
            shown = {number: dialogue[number] for number, _ in chunk}
            for fact in reply.facts:
                self.unknown_labels += sum(number not in shown for number in fact.evidence)
                items.append(fact.item(shown))
        return items

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


def _extraction(lines: Sequence[str]) -> tuple[Message, ...]:
    fence = fence_for(lines)
    return PromptFile.load("memory_systems", EXTRACT).fill(
        rule=fence.rule,
        data=fence.put("\n".join(lines)),
        labels=", ".join(label for label in get_args(Label) if label != "UNMAPPED"),
        scopes=", ".join(get_args(TimeScope)),
        attitudes=", ".join(get_args(Attitude)),
    )


def _question(item: MemoryItem, found: Sequence[MemoryItem]) -> tuple[Message, ...]:
    lines = [f"New fact: {harmless_line(item.text)}", "", "Memories:"]
    lines += [f"[{label}] {harmless_line(memory.text)}" for label, memory in enumerate(found, 1)]
    fence = fence_for(lines)
    return PromptFile.load("memory_systems", DECIDE).fill(
        rule=fence.rule, data=fence.put("\n".join(lines)), count=len(found)
    )


@dataclass(slots=True, eq=False)
class _Draft:
    """A memory before (None: not stored yet) and now (None: deleted)."""

    before: MemoryItem | None
    now: MemoryItem | None
    deleted_for: str = ""
    """The text of the fact for which it was deleted."""


class Changes:
    """Draft of the changes that a dialogue makes to the `stored` memories, oldest first.

    Each decision sees the effect of those before it. At the end there is one operation per memory:
    an addition that was then reworded is one ADD, and a memory that was deleted and added again is
    an UPDATE that keeps its id.
    """

    def __init__(self, stored: Sequence[MemoryItem]) -> None:
        self._drafts = [_Draft(item, item) for item in stored]
        self._order: list[_Draft | Operation] = []

    @property
    def items(self) -> list[MemoryItem]:
        """The memories now, oldest first; those that are not stored have no id."""
        return [draft.now for draft in self._drafts if draft.now is not None]

    def like(self, text: str) -> MemoryItem | None:
        """Return the oldest memory whose text equals `text` apart from case and white space."""
        return next((item for item in self.items if same_text(item.text, text)), None)

    def add(self, item: MemoryItem) -> None:
        """Add `item`, or restore with it a memory that was deleted for the same fact."""
        for draft in self._drafts:
            before = draft.before
            if (
                draft.now is None
                and before is not None
                and any(same_text(item.text, text) for text in (draft.deleted_for, before.text))
            ):
                draft.now = replace(item, id=before.id)
                return
        self._drafts.append(_Draft(None, item))
        self._order.append(self._drafts[-1])

    def update(self, old: MemoryItem, new: MemoryItem) -> None:
        """Replace `old`, one of `items`, by `new`."""
        self._touch(old).now = replace(new, id=old.id)

    def delete(self, old: MemoryItem, fact: str) -> None:
        """Delete `old`, one of `items`, because of the text `fact`."""
        draft = self._touch(old)
        draft.now, draft.deleted_for = None, fact

    def keep(self, item: MemoryItem | None = None) -> None:
        """Record a NOOP, because of `item` if there is one."""
        self._order.append(Operation(Action.NOOP, item, item))

    def operations(self) -> list[Operation]:
        """Return one operation per changed memory, and the NOOPs, in the order of first mention."""
        return [one if isinstance(one, Operation) else _net(one) for one in self._order]

    def _touch(self, item: MemoryItem) -> _Draft:
        draft = next(draft for draft in self._drafts if draft.now is item)
        if draft not in self._order:
            self._order.append(draft)
        return draft


def _net(draft: _Draft) -> Operation:
    before, now = draft.before, draft.now
    if before == now:
        return Operation(Action.NOOP, before, now)
    if before is None:
        return Operation(Action.ADD, after=now)
    return Operation(Action.DELETE if now is None else Action.UPDATE, before, now)
