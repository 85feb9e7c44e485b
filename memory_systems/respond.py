"""Answers from memories: the prompt and the token budget that all systems share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator

from memory_systems.attempt import Attempt
from memory_systems.base import Hit, Response
from memory_systems.budget import LineTokens, room
from recallbed.chat_models import Message, PromptFile, fence_for, harmless, one_line

RESPOND = "respond.v1"
_NOTHING = "(no notes)"


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it must not be empty")
    return text.strip()


class Answer(BaseModel):
    """The reply to the prompt. A used memory that is null is none."""

    answer: Annotated[str, AfterValidator(_not_blank)]
    used_memory_fact: Annotated[str, BeforeValidator(lambda value: value or "")]


def respond_from(
    attempt: Attempt,
    query: str,
    texts: Sequence[str],
    budget: int,
    fit: Callable[[Sequence[int], int], Iterable[int]],
    hits: tuple[Hit, ...] = (),
) -> Response:
    """Answer from those of `texts` that `fit` chooses within `budget` tokens.

    `fit` maps the tokens of each text and the tokens available to positions.
    """
    lines = [f"- {one_line(text)}" for text in texts]
    shown: list[str] = []
    if lines:
        costs = [*map(LineTokens(attempt.chat), lines)]
        available = room(attempt.chat, _messages(query, []), attempt.reply_tokens, budget)
        shown = [lines[i] for i in fit(costs, available)]
    reply = attempt.ask(_messages(query, shown), Answer)
    # If nothing was shown, nothing can have been used.
    used = " ".join(reply.used_memory_fact.split()) if shown else ""
    return Response(reply.answer, used, hits, attempt.usage, len(lines) - len(shown))


def _messages(query: str, lines: Sequence[str]) -> tuple[Message, ...]:
    fence = fence_for([query, *lines])
    data = fence.put("\n".join(lines) or _NOTHING)
    return PromptFile.load("memory_systems", RESPOND).fill(
        rule=fence.rule, data=data, query=harmless(query)
    )
