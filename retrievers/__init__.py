"""Retrievers: the interface, the registry, and one file per retriever."""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
from recallbed.chat_models.base import Usage
from retrievers.base import NotScored, Retriever, RetrieverError, RunContext, Scored
from retrievers.registry import RETRIEVERS, build_retriever, register

__all__ = [
    "RETRIEVERS",
    "NotScored",
    "Retriever",
    "RetrieverError",
    "RunContext",
    "Scored",
    "Usage",
    "build_retriever",
    "register",
]
