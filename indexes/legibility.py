"""How well a model reads a text: the share of its pieces that are words of its vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from indexes.tokens import UNSPACED

_UNKNOWN = ("[UNK]", "<unk>")


class Piece(NamedTuple):
    """A piece of a text: whether the vocabulary has it, and whether a word begins with it."""

    surface: str
    known: bool
    first: bool


def share_read(pieces: Iterable[Piece]) -> float:
    """Return the share of pieces that are known words or beginnings of words, 0 to 1.

    A model of one language splits the words of another into letters or does not know their
    characters, and its vectors of them are poor. Of the pieces with a letter or digit, those count
    that are known and the first of their word; in scripts without spaces, all known ones. 1 if no
    piece has a letter.
    """
    lettered, unspaced = _patterns()
    asked = [one for one in pieces if lettered.search(one.surface)]
    read = sum(one.known and (one.first or bool(unspaced.search(one.surface))) for one in asked)
    return read / len(asked) if asked else 1.0


@lru_cache(maxsize=4096)
def legibility(text: str, folder: Path) -> float:
    """Return `share_read` of a text by the tokenizer of the model in `folder`.

    1 for a model without tokenizer.json.
    """
    tokenizer, unknown = _tokenizer(folder)
    if tokenizer is None:
        return 1.0
    encoded = tokenizer.encode(text, add_special_tokens=False)
    words = [None, *encoded.word_ids]
    return share_read(
        Piece(text[start:end], number not in unknown, word != before)
        for number, before, word, (start, end) in zip(
            encoded.ids, words[:-1], words[1:], encoded.offsets, strict=True
        )
    )


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

    return regex.compile(r"[\p{L}\p{N}]"), regex.compile(f"[{UNSPACED}]")
