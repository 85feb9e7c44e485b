"""Words and contractions of a text, cut as NLTK's word tokenizer cuts them.

The rules are those of `nltk.tokenize.NLTKWordTokenizer` (Penn Treebank's, as NLTK improved on
them; Apache License 2.0), whose tokens these are for every text. They are here without nltk, whose
import draws in sklearn, pandas and pyarrow if they are installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

# Applied one after the other; what is padded with spaces becomes a token of its own.
_BEFORE = (
    # Quotes that open.
    ("([«“‘„]|[`]+)", r" \1 "),
    (r"^\"", "``"),
    ("(``)", r" \1 "),
    (r"([ \(\[{<])(\"|\'{2})", r"\1 `` "),
    (r"(?i)(?<!\w)(\')(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", r"\1 "),
    # Punctuation; a full stop only at the end of the text.
    (r"""([^\.])(\.)([\]\)}>"\'»”’ ]*+)\s*$""", r"\1 \2 \3 "),
    (r"([:,])([^\d])", r" \1 \2"),
    ("([:,])$", r" \1 "),
    (r"\.{2,}", r" \g<0> "),
    ("[;@#$%&]", r" \g<0> "),
    ("[\u2012-\u2015]", r" \g<0> "),
    (r"""([^\.])(\.)([\]\)}>"\']*)\s*$""", r"\1 \2\3 "),
    ("[?!]", r" \g<0> "),
    ("([^'])' ", r"\1 ' "),
    ("[*]", r" \g<0> "),
    (r"[\]\[\(\)\{\}\<\>]", r" \g<0> "),
    ("--", " -- "),
)
# Applied to the text between two spaces: quotes that close, and what stands for a word.
_AFTER = (
    ("([»”’])", r" \1 "),
    ("''", " '' "),
    ('"', " '' "),
    (r"\s+", " "),
    ("([^' ])('[sS]|'[mM]|'[dD]|') ", r"\1 \2 "),
    ("([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
)
_CONTRACTIONS = (
    *(r"\b(can)(not)\b", r"\b(d)('ye)\b", r"\b(gim)(me)\b", r"\b(gon)(na)\b", r"\b(got)(ta)\b"),
    *(r"\b(lem)(me)\b", r"\b(more)('n)\b", r"\b(wan)(na)(?=\s)", r" ('t)(is)\b", r" ('t)(was)\b"),
)


def split_words(text: str) -> list[str]:
    """The tokens of a text in order, punctuation included."""
    before, after, contractions = _compiled()
    for substitute, replacement in before:
        text = substitute(replacement, text)
    text = f" {text} "
    for substitute, replacement in after:
        text = substitute(replacement, text)
    for substitute in contractions:
        text = substitute(r" \1 \2 ", text)
    return text.split()


@cache
def _compiled() -> tuple[
    list[tuple[Callable[..., Any], str]],
    list[tuple[Callable[..., Any], str]],
    list[Callable[..., Any]],
]:
    # As NLTK does: `regex` for the rules, `re` for the contractions; their \w and \b differ.
    import regex

    return (
        [(regex.compile(pattern, regex.U).sub, new) for pattern, new in _BEFORE],
        [(regex.compile(pattern, regex.U).sub, new) for pattern, new in _AFTER],
        [re.compile(pattern, re.IGNORECASE).sub for pattern in _CONTRACTIONS],
    )
