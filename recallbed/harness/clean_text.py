"""Text that every part can take: without NUL and halves of surrogate pairs."""

from __future__ import annotations

import re
from collections import Counter

# U+0000 breaks C tokenizers, a lone surrogate cannot be encoded at all.
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str, repairs: Counter[str]) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD, each counted in `repairs`."""
    if not _UNUSABLE.search(text):
        return text

    def repair(match: re.Match[str]) -> str:
        repairs["NUL" if match[0] == "\x00" else "lone surrogate"] += 1
        return "\ufffd"

    return _UNUSABLE.sub(repair, text)
