"""What fits into a token budget, counted by the chat model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recallbed.chat_models.base import ChatModel, Message


class Tokens:
    """Counts the tokens of a line, without those of the frame that a chat puts around it."""

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat
        self._frame = chat.count_tokens((Message("user", ""),))

    def __call__(self, line: str) -> int:
        """The tokens of `line` and its line break."""
        return max(self._chat.count_tokens((Message("user", f"{line}\n"),)) - self._frame, 0)


def room(chat: ChatModel, frame: Sequence[Message], reply_tokens: int, budget: int) -> int:
    """The tokens that data may take: `budget`, or what the model's context leaves if that is less.

    `frame` is the prompt without its data. At least 0.
    """
    if chat.context is None:
        return budget
    return max(min(budget, chat.context - chat.count_tokens(frame) - reply_tokens), 0)


def best_within(costs: Iterable[int], budget: int) -> list[int]:
    """The positions that fit, taken in their order; one that doesn't is left out whole."""
    taken, spent = [], 0
    for place, cost in enumerate(costs):
        if spent + cost <= budget:
            taken.append(place)
            spent += cost
    return taken


def newest_within(costs: Sequence[int], budget: int) -> range:
    """The positions of the longest run up to the end that fits: what came before is cut."""
    start, spent = len(costs), 0
    while start and spent + costs[start - 1] <= budget:
        start -= 1
        spent += costs[start]
    return range(start, len(costs))
