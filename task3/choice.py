"""What a model is asked where it is to choose a memory of a pool and answer with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pydantic import BaseModel

from recallbed.chat_models.base import Request
from retrievers.rerank.prompt import Prompt

PROMPT = "answer.v1"


class Choice(BaseModel):
    """A model's reply; `selected_memory` is a label of the prompt, 0 or null for none."""

    answer: str
    reason: str
    selected_memory: int | None = None


def load_prompt() -> Prompt:
    """The prompt in `prompts/`, a system part and a user part."""
    return Prompt.load("task3", PROMPT)


def shuffled(query: str, texts: Sequence[str], seed: int) -> list[str]:
    """The distinct texts in an order that tells nothing: by a hash of seed, query and text."""
    start = hashlib.blake2b(f"{seed}\x00{query}\x00".encode(), digest_size=16, person=b"prompt")

    def key(text: str) -> tuple[bytes, str]:
        digest = start.copy()
        digest.update(text.encode())
        return digest.digest(), text

    return sorted(set(texts), key=key)


def ask(query: str, shown: Sequence[str], max_tokens: int) -> Request:
    """The request that shows `shown` under the labels 1, 2, … and asks for a `Choice`."""
    return Request(load_prompt().build(query, shown), Choice, max_tokens)
