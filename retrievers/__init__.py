"""Retrievers: the interface, the registry, and one file per retriever."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
from recallbed.chat_models.base import Usage
from retrievers.base import NotScored, Retriever, RetrieverError, RunContext, Scored
from retrievers.explanation import (
    Cosine,
    Explanation,
    FusedShares,
    RerankedPlace,
    TermWeights,
    TextExplanation,
)
from retrievers.registry import RETRIEVERS, build_retriever, register

if TYPE_CHECKING:
    from retrievers.bm25 import BM25
    from retrievers.chance import Constant, Random
    from retrievers.dense import Dense, MiniLM
    from retrievers.faiss import Faiss
    from retrievers.hybrid import Hybrid
    from retrievers.overlap import Overlap
    from retrievers.rank_bm25 import RankBM25

__all__ = [
    "BM25",
    "RETRIEVERS",
    "Constant",
    "Cosine",
    "Dense",
    "Explanation",
    "Faiss",
    "FusedShares",
    "Hybrid",
    "MiniLM",
    "NotScored",
    "Overlap",
    "Random",
    "RankBM25",
    "RerankedPlace",
    "Retriever",
    "RetrieverError",
    "RunContext",
    "Scored",
    "TermWeights",
    "TextExplanation",
    "Usage",
    "build_retriever",
    "register",
]

_MODULES = {"Constant": "chance", "MiniLM": "dense", "Random": "chance", "RankBM25": "rank_bm25"}


def __getattr__(name: str) -> Any:
    """Return a retriever class, imported on first use: a command loads only those that it runs."""
    if name not in __all__:
        raise AttributeError(f"module 'retrievers' has no attribute {name!r}")
    return getattr(import_module(f"retrievers.{_MODULES.get(name, name.lower())}"), name)
