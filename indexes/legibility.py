"""How much of a text a model's vocabulary can spell: what fusion trusts a dense leg by."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Any

_UNKNOWN = ("[UNK]", "<unk>")


@lru_cache(maxsize=4096)
def legibility(text: str, folder: Path) -> float:
    """The share of a text's pieces that a model has learned as a word or the start of one, 0 to 1.

    A model trained on one language cuts the words of another into letters, or finds none of their
    characters in its vocabulary; its vectors are then worth little. Of the pieces with a letter or
    digit, those count as read that are known and are the first of their word; in scripts without
    spaces every known piece does. 1 for a text without letters, and for a model whose folder holds
    no tokenizer.json, of which nothing is known.
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
