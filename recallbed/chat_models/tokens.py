"""How many tokens a prompt has, guessed without the model's tokenizer."""

from __future__ import annotations

from collections.abc import Iterable

from recallbed.chat_models.base import Message

BYTES_PER_TOKEN = 3
"""Of UTF-8. Low on purpose: English has four to five bytes a token, so it is overestimated by a
third; Chinese has one token a character (three bytes) or less in the vocabularies of today's
multilingual models. Four *characters* a token would take Chinese for a quarter of what it is."""
_PER_MESSAGE = 6
"""The role, and the marks around a message."""


def estimate_text(text: str) -> int:
    """A guess at the tokens of `text`, more likely too many than too few."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def estimate_messages(messages: Iterable[Message]) -> int:
    """A guess at the tokens of a prompt, marks of the turns included."""
    return sum(estimate_text(m.content) + _PER_MESSAGE for m in messages) + _PER_MESSAGE
