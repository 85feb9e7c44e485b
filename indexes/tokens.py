"""Tokens of queries and memories for lexical search."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from itertools import pairwise
from types import ModuleType
from typing import Any, Literal, NamedTuple

from indexes.language import (
    BY_SCRIPT,
    CONTRACTIONS,
    ENGLISH_127,
    LATIN,
    latin_language,
    normalise,
    stopwords,
)

# Scripts without spaces, and Hangul, whose particles are attached to the word before them.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_SCRIPTS = {"Cyrl": "Cyrillic", "Arab": "Arabic", "Deva": "Devanagari"}
_STEMMERS = {"Cyrl": "russian", "Arab": "arabic"}

# NLTK splits "can't" and "won't" into these and "n't".
_WHOLE = {"ca": "can", "wo": "will", "sha": "shall"}
# French and Italian articles and pronouns elided before a word: l'eau, qu'il, dell'arte.
_ELIDED = re.compile(r"((?:jus|lors|puis|quoi)?qu|[cdjlmnst]|(?:d|n)?ell|d?all|sull|un)'(?=\w)")
# The list of Arabic stopwords is spelled without hamza on its alefs.
_BARE_ALEF = str.maketrans("أإآ", "ااا")


class TokenizedText(NamedTuple):
    """`content` without stopwords; `every` with them, for queries of stopwords only."""

    content: tuple[str, ...]
    every: tuple[str, ...]


Tokenizer = Callable[[str], TokenizedText]


@dataclass(frozen=True)
class PaperTokens:
    r"""`\w+` lower-cased, the 127 English stopwords removed, Porter stems: the paper's."""

    def __call__(self, text: str) -> TokenizedText:
        """Return the tokens of one text."""
        words = re.findall(r"\w+", text.lower())
        return TokenizedText(
            tuple(_porter(word) for word in words if word not in ENGLISH_127),
            tuple(map(_porter, words)),
        )


@dataclass(frozen=True)
class MultilingualTokens:
    """NLTK's word tokenizer and Snowball stems, extended to scripts other than Latin.

    Unicode is normalised (NFKC, case-folded, invisible characters dropped); marks stay with their
    base; scripts without spaces become pairs of characters (grapheme clusters); tokens without a
    letter or digit are dropped. Stems: `language` for Latin script (Porter for English, Snowball
    for the rest), Russian for Cyrillic, Arabic for Arabic, none elsewhere. Stopwords: by script,
    and for Latin script those of `language` (English if it is none of `indexes.language.LATIN`)
    unless there is enough evidence of another language (`latin_language`).
    """

    language: str = "english"
    stem: bool = True
    stop: bool = True

    def __call__(self, text: str) -> TokenizedText:
        """Return the tokens of one text."""
        words = _words(normalise(text))
        latin = [word for script, word in words if script == "Latn"]
        default = self.language if self.language in LATIN else "english"
        language = latin_language(latin, default) if latin else default
        every, content = [], []
        for script, word in words:
            token = self._stemmed(script, word)
            every.append(token)
            if not (self.stop and _is_stopword(script, word, language)):
                content.append(token)
        return TokenizedText(tuple(content), tuple(every))

    def _stemmed(self, script: str, word: str) -> str:
        if not self.stem:
            return word
        language = self.language if script == "Latn" else _STEMMERS.get(script)
        return _snowball(language, word) if language else word


def _is_stopword(script: str, word: str, latin: str) -> bool:
    """Whether a word is a stopword; `latin` is the language of the words in Latin script."""
    if script == "Cont":
        return True
    if script == "Arab":
        word = word.translate(_BARE_ALEF)
    language = latin if script == "Latn" else BY_SCRIPT.get(script)
    return language is not None and word in stopwords(language)


def _words(text: str) -> list[tuple[str, str]]:
    """(script, word) in order of reading.

    Scripts are named as in ISO 15924, "Zyyy" for digits and the rest; "Cont" marks a part
    of a contraction or an elision.
    """
    tokenize, piece, unspaced, cluster, scripts = _tools()
    found: list[tuple[str, str]] = []
    for chunk in tokenize(text):
        if chunk == "n't" and found and found[-1][1] in _WHOLE:
            found[-1] = ("Latn", _WHOLE[found[-1][1]])
        if chunk in CONTRACTIONS:
            found.append(("Cont", chunk.strip("'")))
            continue
        for word in piece(chunk):
            if unspaced.match(word):
                clusters = cluster(word)
                pairs = pairwise(clusters)
                found += [("Hani", a + b) for a, b in pairs] or [("Hani", word)]
            else:
                elided = _ELIDED.match(word)
                if elided:
                    found.append(("Cont", elided[1]))
                    word = word[elided.end() :]
                script = next((name for name, one in scripts.items() if one.search(word)), "Zyyy")
                found.append((script, word))
    return found


@cache
def _tools() -> tuple[
    Callable[[str], list[str]],
    Callable[[str], list[str]],
    re.Pattern[str],
    Callable[[str], list[str]],
    dict[str, re.Pattern[str]],
]:
    import regex

    # Characters of a script without spaces, or a word: letters, digits, marks, ' inside it.
    inside = rf"(?:(?![{UNSPACED}])[\p{{L}}\p{{N}}\p{{M}}_])"
    word = regex.compile(rf"[{UNSPACED}][{UNSPACED}\p{{M}}ー々]*|{inside}+(?:'{inside}+)*")
    meaning = regex.compile(r"[\p{L}\p{N}]")
    return (
        nltk_functions().split_words,
        lambda chunk: [piece for piece in word.findall(chunk) if meaning.search(piece)],
        regex.compile(rf"[{UNSPACED}]"),
        regex.compile(r"\X").findall,
        {
            "Latn": regex.compile(r"\p{Latin}"),
            **{code: regex.compile(rf"\p{{{name}}}") for code, name in _SCRIPTS.items()},
        },
    )


@cache
def _porter(word: str) -> str:
    return nltk_functions().porter(word)


@cache
def _snowball(language: str, word: str) -> str:
    if language == "english":
        return _porter(word)
    # A new one for each word: NLTK's Arabic stemmer keeps state between words.
    return nltk_functions().snowball(language).stem(word) or word


def stemmer_languages() -> tuple[str, ...]:
    """Return the languages of NLTK's Snowball stemmer."""
    return tuple(name for name in nltk_functions().snowball.languages if name != "porter")


TokenizerName = Literal["multilingual", "paper"]


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
    """Return NLTK's word tokenizer and stemmers, loaded once without what `import nltk` imports.

    That is sklearn, scipy, pandas, pyarrow and matplotlib if they are installed: 1.4 s of CPU,
    against 0.3 s. Neither tokenizer nor stemmers use them. If nltk was not loaded before, it is
    removed from `sys.modules`, so that a later import gets it complete.
    """
    with _loading:  # another thread may import what is removed
        return _nltk_functions()


@cache
def _nltk_functions() -> NltkFunctions:
    hidden = None if "nltk" in sys.modules else _Hidden()
    if hidden:
        sys.meta_path.insert(0, hidden)
    try:
        stem, tokenize = (importlib.import_module(f"nltk.{name}") for name in ("stem", "tokenize"))
        return NltkFunctions(
            tokenize.NLTKWordTokenizer().tokenize, stem.PorterStemmer().stem, stem.SnowballStemmer
        )
    finally:
        if hidden:
            sys.meta_path.remove(hidden)
            for name in [name for name in list(sys.modules) if name.partition(".")[0] == "nltk"]:
                del sys.modules[name]
