"""Languages: Unicode normalisation, stopwords without downloads, and the language of a text.

The English stopwords are the former 127-word list of NLTK; the others are in the package
`stop-words` (BSD).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

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

OTHER = "other"
_UNSPACED = {"Hani": "chinese", "Kana": "japanese", "Hang": "korean"}
_SCRIPTS = {
    "Latn": "Latin",
    "Hani": "Han",
    "Kana": "Kana",
    "Hang": "Hangul",
    "Cyrl": "Cyrillic",
    "Arab": "Arabic",
    "Deva": "Devanagari",
}
# Scripts that are "other" above, with the language that each is mostly used for.
_MORE_SCRIPTS = {
    **{name: name.lower() for name in ("Greek", "Hebrew", "Thai", "Bengali", "Tamil", "Telugu")},
    **{name: name.lower() for name in ("Kannada", "Malayalam", "Gujarati", "Sinhala", "Georgian")},
    **{name: name.lower() for name in ("Armenian", "Khmer", "Lao")},
    "Gurmukhi": "punjabi",
    "Ethiopic": "amharic",
    "Myanmar": "burmese",
}
_KANA_SHARE = 0.05  # Japanese texts have many more; a loan word has few


def normalise(text: str) -> str:
    """NFKC and case folding, without characters that have no width.

    The Turkish capital dotted I folds to a plain i, as its small form does.
    """
    if text.isascii() and text.isprintable():
        return text.lower()
    visible = _invisible().sub("", text)
    folded = unicodedata.normalize("NFKC", visible).casefold().replace("i\u0307", "i")
    return unicodedata.normalize("NFKC", folded).replace("\u2019", "'")


@cache
def _invisible() -> Any:
    """Control and format characters, variation selectors; white space is kept."""
    import regex

    return regex.compile(r"(?!\s)[\p{Cc}\p{Cf}\p{Variation_Selector}]")


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


def language_of(text: str) -> str:
    """Return the main language of a text: a name in lower case, or "other".

    Words are counted, and characters of scripts without spaces. Cyrillic counts as Russian and
    Devanagari as Hindi; Latin script is English unless `latin_language` finds enough evidence of
    another language.
    """
    script, latin = _main_script(text)
    if not script:
        return OTHER
    if script == "Latn":
        return latin_language(latin)
    return _UNSPACED.get(script) or BY_SCRIPT.get(script, OTHER)


def evident_language(text: str) -> str | None:
    """Return `language_of` a text; None if it has no letter, or English without evidence of it.

    Of what that calls "other", a script that is mostly used for one language is that language.
    Evidence of English is one distinct stopword more that is English only than stopwords of the
    likeliest other language only: "I love pizza" has one, "pizza Berlin" none.
    """
    script, latin = _main_script(text)
    found = language_of(text)
    if not script:
        return None
    if found == OTHER:
        return _MORE_SCRIPTS.get(script_of(text) or "", OTHER)
    if found != "english":
        return found
    held = set(latin)
    others = (stopwords(language) for language in LATIN if language != "english")
    best = max(others, key=lambda words: len((held & words) - ENGLISH_127))
    evidence = len((held & ENGLISH_127) - best) - len((held & best) - ENGLISH_127)
    return found if evidence > 0 else None


def script_of(text: str) -> str | None:
    """Return the main script of a text by its Unicode name, such as `Han`; None without a letter.

    Counted as in `language_of`; Hiragana and Katakana, with the Han between them, are `Kana`. A
    script that has no name here is "other".
    """
    script, _ = _main_script(text)
    if script != OTHER:
        return _SCRIPTS.get(script)
    import regex

    counts = {name: len(regex.findall(rf"\p{{{name}}}", text)) for name in _MORE_SCRIPTS}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else OTHER


def _main_script(text: str) -> tuple[str, list[str]]:
    """The main script of a text, "" without a letter, and its words in Latin script."""
    counts: Counter[str] = Counter()
    latin: list[str] = []
    text = normalise(text)
    for script, pattern in _patterns().items():
        found = pattern.findall(text)
        counts[script] += len(found)
        if script == "Latn":
            latin = found
    if counts["Kana"] > _KANA_SHARE * (counts["Hani"] + counts["Kana"]):
        counts["Kana"] += counts.pop("Hani", 0)
    script, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    return (script if count else ""), latin


@cache
def _patterns() -> dict[str, Any]:
    """What is counted of each script; the first one wins a tie."""
    import regex

    return {
        "Latn": regex.compile(r"\p{Latin}+"),
        "Hani": regex.compile(r"\p{Han}"),
        "Kana": regex.compile(r"[\p{Hiragana}\p{Katakana}]"),
        "Hang": regex.compile(r"\p{Hangul}"),
        "Cyrl": regex.compile(r"\p{Cyrillic}+"),
        "Arab": regex.compile(r"\p{Arabic}+"),
        "Deva": regex.compile(r"\p{Devanagari}[\p{Devanagari}\p{M}]*"),
        OTHER: regex.compile(
            r"[^\P{L}\p{Latin}\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}"
            r"\p{Cyrillic}\p{Arabic}\p{Devanagari}]+"
        ),
    }
