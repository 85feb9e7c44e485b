"""A chat model by one word: `openai:MODEL`, `local:smollm2`, `local:PATH`."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from recallbed.chat_models.base import ChatModel
from recallbed.errors import UserError


def model_class(name: str) -> Callable[..., ChatModel]:
    """The class behind `name`. Raises UserError for a word that names none."""
    kind, colon, model = name.partition(":")
    if not (colon and model) or kind not in ("openai", "local"):
        raise UserError(
            f"no chat model `{name}`. Write openai:MODEL, local:smollm2, local:FILE.gguf"
            " or local:FOLDER"
        )
    if kind == "openai":
        from recallbed.chat_models.openai_model import OpenAIModel

        return OpenAIModel
    from recallbed.chat_models.local_model import LocalModel

    return LocalModel


def chat_model(name: str, **options: Any) -> ChatModel:
    """The model called `name`, with the options of its class.

    `openai:MODEL` is a model behind an OpenAI-compatible address (see `OpenAIModel`), `local:NAME`
    one on this machine (see `LocalModel`): `smollm2`, a .gguf file, or a transformers folder.
    Raises UserError for another word, and for an option that the model doesn't have.
    """
    built = model_class(name)
    known = list(signature(built).parameters)[1:]
    for option in options:
        if option not in known:
            raise UserError(f"{name} has no option `{option}` (its options: {', '.join(known)})")
    return built(name.partition(":")[2], **options)
