"""Rerankers: a costly model reads the few candidates that a cheap first stage puts first."""

from typing import Any

from retrievers.rerank.base import Reranked, Reranker, Shortlist

__all__ = ["PromptReranker", "Reranked", "Reranker", "Shortlist"]


def __getattr__(name: str) -> Any:
    """PromptReranker, imported when it is asked for: it needs pydantic and all of chat_models."""
    if name == "PromptReranker":
        from retrievers.rerank.prompt_reranker import PromptReranker

        return PromptReranker
    raise AttributeError(name)
