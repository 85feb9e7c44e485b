"""Rerankers: a costly model reorders the best candidates of a cheap first stage."""

from typing import Any

from retrievers.rerank.base import Reranked, Reranker, Shortlist

__all__ = ["Best", "Order", "PromptReranker", "Reranked", "Reranker", "Shortlist"]


def __getattr__(name: str) -> Any:
    """The names of `prompt_reranker`, imported on first use: it needs pydantic and chat_models."""
    if name not in __all__:
        raise AttributeError(f"module 'retrievers.rerank' has no attribute {name!r}")
    from retrievers.rerank import prompt_reranker

    return getattr(prompt_reranker, name)
