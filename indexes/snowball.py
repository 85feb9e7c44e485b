"""NLTK's Snowball stemmers without the rest of nltk.

`import nltk` imports sklearn, scipy, pandas and pyarrow if they are installed, which takes seconds
and serves no stemmer.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

_OPTIONAL = ("matplotlib", "pandas", "pyarrow", "scipy", "sklearn", "twython")

# A test compares them with NLTK's.
LANGUAGES = (
    *("arabic", "danish", "dutch", "english", "finnish", "french", "german", "hungarian"),
    *("italian", "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish"),
)


class _Hidden(MetaPathFinder):
    """Lets packages that nltk can do without look absent to the thread that made it."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """None for any other package."""
        if threading.get_ident() == self.thread and name.partition(".")[0] in _OPTIONAL:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)


@cache
def stemmer_class() -> Any:
    """`nltk.stem.SnowballStemmer`.

    If nltk was not loaded before, it is not left in `sys.modules` either: whoever imports it later
    gets it with all that belongs to it.
    """
    if "nltk" in sys.modules:
        return importlib.import_module("nltk.stem").SnowballStemmer
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        return importlib.import_module("nltk.stem").SnowballStemmer
    finally:
        sys.meta_path.remove(hidden)
        for name in [name for name in sys.modules if name.partition(".")[0] == "nltk"]:
            del sys.modules[name]
