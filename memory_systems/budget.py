"""Texts within a token budget, counted by the chat model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recallbed.chat_models.base import ChatModel, Message
from recallbed.chat_models.prompts import harmless_line
from recallbed.corpus.records import Turn


class LineTokens:
    """Counts the tokens of a line, without those of the chat template around it."""

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat
        self._frame = chat.count_tokens((Message("user", ""),))

    def __call__(self, line: str) -> int:
        """Return the tokens of `line` and its line break."""
        return max(self._chat.count_tokens((Message("user", f"{line}\n"),)) - self._frame, 0)


def room(chat: ChatModel, frame: Sequence[Message], reply_tokens: int, budget: int) -> int:
    """Return the tokens available for data: `budget`, or what the model's context leaves if less.

    `frame` is the prompt without its data. At least 0.
    """
    if chat.context is None:
        return budget
    return max(min(budget, chat.context - chat.count_tokens(frame) - reply_tokens), 0)


def best_within(costs: Sequence[int], budget: int) -> list[int]:
    """Return the positions that fit, taken in order; one that does not fit is left out whole."""
    taken, spent = [], 0
    for position, cost in enumerate(costs):
        if spent + cost <= budget:
            taken.append(position)
            spent += cost
    return taken


def newest_within(costs: Sequence[int], budget: int) -> range:
    """Return the positions of the longest suffix that fits."""
    start, spent = len(costs), 0
    while start and spent + costs[start - 1] <= budget:
        start -= 1
        spent += costs[start]
    return range(start, len(costs))


def numbered_chunks(
    dialogue: Sequence[Turn], budget: int, tokens: Callable[[str], int]
) -> list[list[tuple[int, str]]]:
    """Return lines `[number] role: text` with their numbers, in chunks of at most `budget` tokens.

    Turns are numbered from 0; blank ones are left out. A turn that is longer than a chunk is split
    into several lines, each with its number. Raise ValueError if not even a few characters fit.
    """
    chunks: list[list[tuple[int, str]]] = []
    left = 0
    for number, turn in enumerate(dialogue):
        text = harmless_line(turn.text)
        head = f"[{number}] {harmless_line(turn.role)}: "
        for line in _pieces(head, text, budget, tokens) if text else ():
            cost = tokens(line)
            if not chunks or cost > left:
                chunks.append([])
                left = budget
            chunks[-1].append((number, line))
            left -= cost
    return chunks


def _pieces(head: str, text: str, budget: int, tokens: Callable[[str], int]) -> list[str]:
    if tokens(head + text) <= budget:
        return [head + text]
    if len(text) < 2:
        raise ValueError(f"no line of a dialogue fits into {budget} tokens")
    middle = len(text) // 2
    space = text.rfind(" ", 1, middle + 1)
    cut = space if space > 0 else middle
    halves = text[:cut], text[cut:].strip()
    return [line for half in halves if half for line in _pieces(head, half, budget, tokens)]
