"""BM25 over a large store without changes: bm25s, memory-mapped."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from indexes.base import (
    Hits,
    Ids,
    Index,
    IndexingError,
    NotAnIndex,
    as_ids,
    as_k,
    check_texts,
    in_order,
    no_hits,
)
from indexes.files import Section, read_index, write_index
from indexes.tokens import MultilingualTokens

_ARRAYS = {"data": np.float32, "indices": np.int32, "indptr": np.int64}


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError:
        raise IndexingError("this index needs bm25s. Run: pip install 'recallbed[index]'") from None
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s


_TOKENS_SINCE = 2
"""The first index format with the present tokens."""


class Lexical(Index[Sequence[str]]):
    """Texts by BM25 (`lucene`: idf never negative), with tokens and scores of `retrievers.bm25`.

    The weight of every term in every text is computed when the index is built, which cannot be
    changed afterwards. A text that shares no term with a query is no hit. As in the retriever, a
    query of stopwords only is scored with them, in a second table.
    """

    kind = "bm25s"
    exact = True

    def __init__(self, k1: float = 1.5, b: float = 0.75, language: str = "english") -> None:
        if not (0 <= k1 < float("inf") and 0 <= b <= 1):
            raise IndexingError(f"k1 must be at least 0 and b from 0 to 1, not {k1:g} and {b:g}")
        self.k1, self.b, self.language = k1, b, language
        self.tokens = MultilingualTokens(language)
        self._ids: Ids = np.empty(0, np.int64)
        self._content: _Table | None = None
        self._every: _Table | None = None

    def __len__(self) -> int:
        return len(self._ids)

    @override
    def build(self, ids: ArrayLike, items: Sequence[str]) -> None:
        check_texts(items)
        given = as_ids(ids, len(items))
        if len(self):
            raise IndexingError("a bm25s index cannot be changed. Build a new one")
        both = [self.tokens(text) for text in items]
        self._content = _Table.build([tokens.content for tokens in both], self.k1, self.b)
        self._every = _Table.build([tokens.every for tokens in both], self.k1, self.b)
        self._ids = given

    @override
    def search(self, queries: Sequence[str], k: int) -> list[Hits]:
        check_texts(queries)
        wanted, found = as_k(k), []
        for query in queries:
            tokens = self.tokens(query)
            content = bool(tokens.content or not tokens.every)
            table = self._content if content else self._every
            terms = tokens.content if content else tokens.every
            scores = table.scores(terms) if table else None
            if scores is None:
                found.append(no_hits())
                continue
            places = np.flatnonzero(scores > 0)
            if len(places) > wanted:  # all ties at position k, which ids break
                least = np.partition(scores[places], -wanted)[-wanted]
                places = places[scores[places] >= least]
            found.append(in_order(self._ids[places], scores[places], wanted))
        return found

    @override
    def save(self, path: Path) -> None:
        parts: dict[str, Section] = {"ids": self._ids}
        for name, table in (("content", self._content), ("every", self._every)):
            if table is not None:
                for key, dtype in _ARRAYS.items():
                    parts[f"{name}.{key}"] = np.asarray(table.engine.scores[key], dtype)
                parts[f"{name}.vocabulary"] = json.dumps(list(table.engine.vocab_dict)).encode()
        settings = {"k1": self.k1, "b": self.b, "language": self.language}
        header = {"count": len(self), "settings": settings}
        write_index(path, self.kind, header, parts, ("numpy", "bm25s", "nltk"))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Map the index at `path`; only the vocabulary is read into memory.

        Raises NotAnIndex for a damaged file, and for one with the tokens of an earlier version.
        """
        header, sections = read_index(path, cls.kind)
        if header["format"] < _TOKENS_SINCE:
            raise NotAnIndex(
                f"{path}: its tokens are those of an earlier version and do not match queries."
                " Build it again"
            )
        index = cls(**header["settings"])
        index._ids = np.frombuffer(sections["ids"], np.int64)
        tables: dict[str, _Table] = {}
        for name in ("content", "every"):
            if f"{name}.vocabulary" in sections:
                try:
                    words = json.loads(bytes(sections[f"{name}.vocabulary"]))
                except ValueError:
                    raise NotAnIndex(f"{path}: the file is damaged (its vocabulary)") from None
                arrays = {k: np.frombuffer(sections[f"{name}.{k}"], t) for k, t in _ARRAYS.items()}
                tables[name] = _Table.of(words, arrays, len(index), index.k1, index.b)
        index._content, index._every = tables.get("content"), tables.get("every")
        return index


class _Table:
    """bm25s over token lists, with BM25's factor k1 + 1, which its weights lack."""

    def __init__(self, engine: Any, k1: float) -> None:
        self.engine, self._factor = engine, np.float32(k1 + 1)

    @classmethod
    def build(cls, texts: Sequence[Sequence[str]], k1: float, b: float) -> _Table | None:
        if not any(texts):
            return None
        engine = _bm25s().BM25(k1=k1, b=b, method="lucene")
        # Numbered alphabetically, so that sums do not depend on the order of the texts.
        words = sorted({token for text in texts for token in text})
        number = {word: i for i, word in enumerate(words)}
        numbered = [[number[token] for token in text] for text in texts]
        engine.index((numbered, number), create_empty_token=False, show_progress=False)
        return cls(engine, k1)

    @classmethod
    def of(
        cls, words: list[str], arrays: dict[str, NDArray[Any]], count: int, k1: float, b: float
    ) -> _Table:
        engine = _bm25s().BM25(k1=k1, b=b, method="lucene")
        engine.scores = {**arrays, "num_docs": count}
        engine.vocab_dict = {word: i for i, word in enumerate(words)}
        engine.nonoccurrence_array = None
        return cls(engine, k1)

    def scores(self, tokens: Sequence[str]) -> NDArray[np.float32] | None:
        """One score per text; None if no token is known."""
        vocabulary = self.engine.vocab_dict
        numbers = sorted(vocabulary[token] for token in tokens if token in vocabulary)
        if not numbers:
            return None
        scores: NDArray[np.float32] = self.engine.get_scores_from_ids(numbers) * self._factor
        return scores
