"""Rerankers: a costly model reads the few candidates that a cheap first stage puts first."""

from retrievers.rerank.base import Cut, Reranked, Reranker
from retrievers.rerank.prompting import PromptReranker

__all__ = ["Cut", "PromptReranker", "Reranked", "Reranker"]
