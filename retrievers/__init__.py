"""Who scores a pool: the interface, the registry, one file a retriever."""

from retrievers.base import Retriever, RetrieverError, RunContext, Scored, Usage
from retrievers.registry import build, find, names, register

__all__ = [
    "Retriever",
    "RetrieverError",
    "RunContext",
    "Scored",
    "Usage",
    "build",
    "find",
    "names",
    "register",
]
