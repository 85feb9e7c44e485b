"""Extraction of facts from a dialogue by a chat model, in parts if it is long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from memory_systems.attempt import Attempt
from memory_systems.budget import LineTokens, numbered_chunks, room
from memory_systems.facts import Attitude, Facts, Label, TimeScope
from recallbed.chat_models import Message, PromptFile, fence_for
from recallbed.corpus.records import MemoryItem, Turn
from recallbed.errors import UserError

EXTRACT = "extract.v1"


@dataclass(frozen=True, slots=True)
class Extracted:
    """The memories of a dialogue, not stored yet; its parts, one per request.

    `unknown_labels` counts numbers of utterances that were not shown.
    """

    items: tuple[MemoryItem, ...]
    parts: int
    unknown_labels: int


def extract_facts(attempt: Attempt, dialogue: Sequence[Turn], chunk: int) -> Extracted:
    """Ask for the facts of `dialogue`, in parts of at most `chunk` tokens that are sent together.

    Raise UserError if the model's context holds no line, and SystemFailure.
    """
    chunks = parts_of(attempt, dialogue, _extraction(["[0] user: "]), chunk)
    prompts = [_extraction([line for _, line in lines]) for lines in chunks]
    replies = attempt.ask_all(prompts, Facts) if prompts else []
    items, unknown = [], 0
    for lines, reply in zip(chunks, replies, strict=True):
        shown = {number: dialogue[number] for number, _ in lines}
        for fact in reply.facts:
            unknown += sum(number not in shown for number in fact.evidence)
            items.append(fact.item(shown))
    return Extracted(tuple(items), len(chunks), unknown)


def parts_of(
    attempt: Attempt, dialogue: Sequence[Turn], frame: Sequence[Message], chunk: int
) -> list[list[tuple[int, str]]]:
    """Return the numbered lines of `dialogue` in parts that fit into `chunk` and the context.

    `frame` is the prompt without the dialogue. Raise UserError if no line fits.
    """
    budget = room(attempt.chat, frame, attempt.reply_tokens, chunk)
    try:
        return numbered_chunks(dialogue, budget, LineTokens(attempt.chat))
    except ValueError as error:
        raise UserError(
            f"{error}; the model has a context of {attempt.chat.context}."
            " Set chunk higher or reply_tokens lower"
        ) from error


def taxonomy() -> dict[str, str]:
    """Return the values of labels, time scopes and attitudes for a prompt."""
    return {
        "labels": ", ".join(label for label in get_args(Label) if label != "UNMAPPED"),
        "scopes": ", ".join(get_args(TimeScope)),
        "attitudes": ", ".join(get_args(Attitude)),
    }


def _extraction(lines: Sequence[str]) -> tuple[Message, ...]:
    fence = fence_for(lines)
    return PromptFile.load("memory_systems", EXTRACT).fill(
        rule=fence.rule, data=fence.put("\n".join(lines)), **taxonomy()
    )
