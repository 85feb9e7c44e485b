"""Porter's stemmer for English with the extensions that NLTK makes by default.

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980. Equal to
`nltk.stem.PorterStemmer().stem` for every string, without the import of nltk, which draws in
sklearn, pandas and pyarrow if they are installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

_IRREGULAR = {
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "innings": "inning",
    "outings": "outing",
    "cannings": "canning",
    **{word: word for word in ("sky", "news", "inning", "outing", "canning", "howe")},
    **{word: word for word in ("proceed", "exceed", "succeed")},
}

Rule = tuple[str, str, Callable[[str], bool]]


def stem(word: str) -> str:
    """The stem of a word, in lower case; words of one or two letters are their own."""
    short = len(word) <= 2
    word = word.lower()
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if short:
        return word
    for step in (_plurals, _past, _final_y, _step2, _step3, _step4, _final_e, _final_l):
        word = step(word)
    return word


def _consonants(word: str) -> list[bool]:
    """Which letters are consonants: a y is one unless it follows one."""
    flags: list[bool] = []
    for letter in word:
        flags.append(letter not in "aeiou" if letter != "y" else not flags or not flags[-1])
    return flags


def _measure(word: str) -> int:
    """How often a vowel is followed by a consonant."""
    flags = _consonants(word)
    return sum(not one and other for one, other in pairwise(flags))


def _more_than(least: int, word: str) -> bool:
    return _measure(word) > least


_some = partial(_more_than, 0)
_several = partial(_more_than, 1)


def _ends_cvc(word: str) -> bool:
    """Consonant, vowel, consonant other than w, x and y; or a word of vowel and consonant."""
    flags = _consonants(word)
    if len(word) == 2:
        return flags == [False, True]
    return flags[-3:] == [True, False, True] and word[-1] not in "wxy"


def _apply(word: str, rules: tuple[Rule, ...]) -> str:
    """The first rule whose ending the word has decides, whether its condition holds or not."""
    for ending, replacement, condition in rules:
        if word.endswith(ending):
            rest = word[: len(word) - len(ending)]
            return rest + replacement if condition(rest) else word
    return word


def _plurals(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    for ending, replacement in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(ending):
            return word[: -len(ending)] + replacement
    return word


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        rest = word[: -len(ending)]
        if word.endswith(ending) and not all(_consonants(rest)):
            break
    else:
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if len(rest) >= 2 and rest[-1] == rest[-2] and _consonants(rest)[-1]:
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _ends_cvc(rest) else rest


def _final_y(word: str) -> str:
    rest = word[:-1]
    changes = word.endswith("y") and len(rest) > 1 and _consonants(rest)[-1]
    return rest + "i" if changes else word


def _step2(word: str) -> str:
    if word.endswith("alli") and _some(word[:-4]):
        return _step2(word[:-2])
    if word.endswith("logi"):  # the l counts with what is before it, as in geo-logi
        return word[:-1] if _some(word[:-3]) else word
    return _apply(word, _STEP2)


def _rules(condition: Callable[[str], bool], *pairs: str) -> tuple[Rule, ...]:
    """Rules "ENDING REPLACEMENT", or "ENDING" for one that is cut off."""
    split = (pair.partition(" ") for pair in pairs)
    return tuple((ending, replacement, condition) for ending, _, replacement in split)


_STEP2 = _rules(
    _some,
    *("ational ate", "tional tion", "enci ence", "anci ance", "izer ize", "bli ble", "alli al"),
    *("entli ent", "eli e", "ousli ous", "ization ize", "ation ate", "ator ate", "alism al"),
    *("iveness ive", "fulness ful", "ousness ous", "aliti al", "iviti ive", "biliti ble"),
    "fulli ful",
)
_STEP3 = _rules(_some, *("icate ic", "ative", "alize al", "iciti ic", "ical ic", "ful", "ness"))
_STEP4 = (
    *_rules(_several, "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment"),
    *_rules(_several, "ent"),
    *_rules(lambda rest: _several(rest) and rest[-1] in "st", "ion"),
    *_rules(_several, "ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


def _step3(word: str) -> str:
    return _apply(word, _STEP3)


def _step4(word: str) -> str:
    return _apply(word, _STEP4)


def _final_e(word: str) -> str:
    rest = word[:-1]
    if word.endswith("e") and (_several(rest) or (_some(rest) and not _ends_cvc(rest))):
        return rest
    return word


def _final_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _several(word[:-1]) else word
