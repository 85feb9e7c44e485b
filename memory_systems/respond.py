"""Answers from memories: the prompt and the token budget that all systems share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator

from memory_systems.attempt import Attempt
from memory_systems.base import Hit, Response
from memory_systems.budget import LineTokens, best_within, newest_within, room
from recallbed.chat_models import Message, PromptFile, fence_for, harmless, one_line

RESPOND = "respond.v1"
_NOTHING = "(no notes)"


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    return text.strip()


class Answer(BaseModel):
    """Reply to the prompt. A null `used_memory_fact` is "" (none)."""

    answer: Annotated[str, AfterValidator(_not_blank)]
    used_memory_fact: Annotated[str, BeforeValidator(lambda value: value or "")]


def respond_from_hits(attempt: Attempt, query: str, hits: Sequence[Hit], budget: int) -> Response:
    """Answer from `hits`, best first. Those that do not fit into `budget` are left out whole."""
    lines = [_line(hit.item.text) for hit in hits]
    shown = best_within(*_costs(attempt, query, lines, budget))
    return _respond(attempt, query, [lines[i] for i in shown], tuple(hits), len(lines))


def respond_from_history(
    attempt: Attempt, query: str, texts: Sequence[str], budget: int
) -> Response:
    """Answer from `texts`, oldest first; the oldest are left out if `budget` is exceeded."""
    lines = list(map(_line, texts))
    shown = newest_within(*_costs(attempt, query, lines, budget))
    return _respond(attempt, query, [lines[i] for i in shown], (), len(lines))


def _line(text: str) -> str:
    return f"- {one_line(text)}"


def _costs(
    attempt: Attempt, query: str, lines: Sequence[str], budget: int
) -> tuple[list[int], int]:
    """Return the tokens of each line, and the tokens available for all."""
    if not lines:
        return [], budget
    tokens = LineTokens(attempt.chat)
    frame = _messages(query, [])
    return [*map(tokens, lines)], room(attempt.chat, frame, attempt.reply_tokens, budget)


def _messages(query: str, lines: Sequence[str]) -> tuple[Message, ...]:
    fence = fence_for([query, *lines])
    data = fence.put("\n".join(lines) or _NOTHING)
    return PromptFile.load("memory_systems", RESPOND).fill(
        rule=fence.rule, data=data, query=harmless(query)
    )


def _respond(
    attempt: Attempt, query: str, lines: Sequence[str], hits: tuple[Hit, ...], known: int
) -> Response:
    reply = attempt.ask(_messages(query, lines), Answer)
    # If nothing was shown, nothing can have been used.
    used = " ".join(reply.used_memory_fact.split()) if lines else ""
    return Response(reply.answer, used, hits, attempt.usage, known - len(lines))
