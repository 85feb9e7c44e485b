"""The share of a text that a model's vocabulary covers, by which fusion weights a dense leg."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Any

_UNKNOWN = ("[UNK]", "<unk>")


@lru_cache(maxsize=4096)
def legibility(text: str, folder: Path) -> float:
    """Return the share of a text's pieces that are known words or beginnings of words, 0 to 1.

    A model of one language splits the words of another into letters or does not know their
    characters, and its vectors of them are poor. Of the pieces with a letter or digit, those count
    that are known and the first of their word; in scripts without spaces, all known ones. 1 for a
    text without letters, and for a model without tokenizer.json.
    """
    tokenizer, unknown = _tokenizer(folder)
    if tokenizer is None:
        return 1.0
    lettered, unspaced = _patterns()
    encoded = tokenizer.encode(text, add_special_tokens=False)
    pieces = read = 0
    word_before = None
    for number, word, (start, end) in zip(
        encoded.ids, encoded.word_ids, encoded.offsets, strict=True
    ):
        surface = text[start:end]
        if lettered.search(surface):
            pieces += 1
            known = number not in unknown
            read += known and (word != word_before or bool(unspaced.search(surface)))
        word_before = word
    return read / pieces if pieces else 1.0


@cache
def _tokenizer(folder: Path) -> tuple[Any, frozenset[int]]:
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None, frozenset()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    return tokenizer, frozenset(
        number for name in _UNKNOWN if (number := tokenizer.token_to_id(name)) is not None
    )


@cache
def _patterns() -> tuple[Any, Any]:
    import regex

    from indexes.tokens import UNSPACED

    return regex.compile(r"[\p{L}\p{N}]"), regex.compile(f"[{UNSPACED}]")
