"""NLTK's word tokenizer and stemmers without the optional imports of `import nltk`.

`import nltk` imports sklearn, scipy, pandas, pyarrow and matplotlib if they are installed: 1.4 s of
CPU, against 0.3 s without them. Neither tokenizer nor stemmers use them.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, NamedTuple

_OPTIONAL = ("matplotlib", "pandas", "pyarrow", "scipy", "sklearn", "twython")


class NltkFunctions(NamedTuple):
    """The functions used of NLTK."""

    split_words: Callable[[str], list[str]]
    """`NLTKWordTokenizer().tokenize`: needs no data."""
    porter: Callable[[str], str]
    """`PorterStemmer().stem`, with the extensions that NLTK makes by default."""
    snowball: Any
    """The class `SnowballStemmer`."""


class _Hidden(MetaPathFinder):
    """Hides optional packages of nltk from the thread that created it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """None for any other package."""
        if threading.get_ident() == self.thread and name.partition(".")[0] in _OPTIONAL:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)


_loading = threading.Lock()


def nltk_functions() -> NltkFunctions:
    """Return the functions, loaded once.

    If nltk was not loaded before, it is removed from `sys.modules`, so that a later import gets it
    complete.
    """
    with _loading:  # another thread may import what is removed
        return _parts()


@cache
def _parts() -> NltkFunctions:
    if "nltk" in sys.modules:
        return _load()
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        return _load()
    finally:
        sys.meta_path.remove(hidden)
        for name in [name for name in list(sys.modules) if name.partition(".")[0] == "nltk"]:
            del sys.modules[name]


def _load() -> NltkFunctions:
    stem, tokenize = (importlib.import_module(f"nltk.{name}") for name in ("stem", "tokenize"))
    return NltkFunctions(
        tokenize.NLTKWordTokenizer().tokenize, stem.PorterStemmer().stem, stem.SnowballStemmer
    )
