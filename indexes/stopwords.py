"""Stopword lists that need no download.

English is the former 127-word list of NLTK; the others are in the package `stop-words` (BSD).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache

_ENGLISH_127 = """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself
    she her hers herself it its itself they them their theirs themselves what which who whom
    this that these those am is are was were be been being have has had having do does did doing
    a an the and but if or because as until while of at by for with about against between into
    through during before after above below to from up down in out on off over under again
    further then once here there when where why how all any both each few more most other some
    such no nor not only own same so than too very s t can will just don should now
"""
ENGLISH_127 = frozenset(_ENGLISH_127.split())

# What NLTK's word tokenizer splits from "don't", "I'm", "we've", ...
CONTRACTIONS = frozenset(("n't", "'m", "'re", "'ve", "'ll", "'d", "'s"))

# The languages of Latin script that are distinguished by their stopwords.
LATIN = ("english", "spanish", "french", "german", "italian", "portuguese", "dutch", "turkish")
# The package's Greek and Hebrew lists are not usable: ancient words, and words within quotes.
BY_SCRIPT = {"Cyrl": "russian", "Arab": "arabic", "Deva": "hindi"}

# A short English text has one or two stopwords of another language.
EVIDENCE = 3


@cache
def stopwords(language: str) -> frozenset[str]:
    """Return the stopwords of a language by its English name; empty if there is no list."""
    if language == "english":
        return ENGLISH_127
    from stop_words import StopWordError, get_stop_words

    try:
        words = (word.strip("\"', ") for word in get_stop_words(language))
        return frozenset(unicodedata.normalize("NFKC", word.casefold()) for word in words)
    except StopWordError:
        return frozenset()


def latin_language(words: Iterable[str], default: str = "english") -> str:
    """Return the language of words in Latin script: `default`, or one of `LATIN` by evidence.

    Evidence of a language is a distinct word of two letters or more that is a stopword of it and
    not of `default`; there must be `EVIDENCE` more of them than words that are stopwords of
    `default` only. "Owns a red car" is no evidence, although `car` is a stopword of French.
    """
    held = {word for word in words if len(word) > 1}
    usual = stopwords(default)
    others = [language for language in LATIN if language != default]
    best = max(others, key=lambda language: len((held & stopwords(language)) - usual))
    found = len((held & stopwords(best)) - usual)
    against = len((held & usual) - stopwords(best))
    return best if found - against >= EVIDENCE else default
