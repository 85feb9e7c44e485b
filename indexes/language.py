"""The language of a text, by its script and, for Latin script, by its stopwords."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

from indexes.stopwords import BY_SCRIPT, latin_language
from indexes.tokens import normalise

OTHER = "other"
_UNSPACED = {"Hani": "chinese", "Kana": "japanese", "Hang": "korean"}
_KANA_SHARE = 0.05  # Japanese texts have many more; a loan word has few


def language_of(text: str) -> str:
    """Return the main language of a text: a name in lower case, or "other".

    Words are counted, and characters of scripts without spaces. Cyrillic counts as
    Russian and Devanagari as Hindi; Latin script is English unless
    `indexes.stopwords.latin_language` finds enough evidence of another language.
    """
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
    if not count:
        return OTHER
    if script == "Latn":
        return latin_language(latin)
    return _UNSPACED.get(script) or BY_SCRIPT.get(script, OTHER)


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
        "Deva": regex.compile(r"[\p{Devanagari}\p{M}]+"),
        OTHER: regex.compile(
            r"[^\P{L}\p{Latin}\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}"
            r"\p{Cyrillic}\p{Arabic}\p{Devanagari}]+"
        ),
    }
