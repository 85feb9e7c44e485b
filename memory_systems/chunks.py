"""A dialogue as numbered lines, cut into chunks that fit a token budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recallbed.chat_models import one_line
from recallbed.corpus.records import Turn


def numbered_chunks(
    dialogue: Sequence[Turn], budget: int, tokens: Callable[[str], int]
) -> list[list[tuple[int, str]]]:
    """Lines `[number] role: text` with their numbers, in chunks of at most `budget` tokens.

    Turns are numbered from 0, blank ones left out. A turn that is longer than a chunk is cut into
    several lines, each with its number. Raises ValueError where not even a few characters fit.
    """
    chunks: list[list[tuple[int, str]]] = []
    left = 0
    for number, turn in enumerate(dialogue):
        text = one_line(turn.text)
        head = f"[{number}] {one_line(turn.role)}: "
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
