"""TREC runs and qrels: six and four columns, one file a pool size.

A document is a position in a pool: `17-3fa9c1d2` is position 17 and eight hex digits of a hash of
its text, so that a run on other pools is refused instead of misread. Query ids are percent-encoded,
since a column may contain no blank.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from analysis.metrics import display_order
from recallbed.corpus.records import Memory
from recallbed.corpus.user_file import empty, read_lines
from recallbed.errors import DataError


def document(position: int, text: str) -> str:
    """Return the document number of a position in a pool."""
    return f"{position}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def documents(memories: Sequence[Memory]) -> list[str]:
    """Return the document numbers of a pool, in its order."""
    return [document(i, memory.text) for i, memory in enumerate(memories)]


def run_lines(
    query: str, names: Sequence[str], scores: NDArray[np.float32], tag: str
) -> Iterator[str]:
    """Yield `qid Q0 docno rank score tag`, best first, ties by position; no line for -inf."""
    asked = quote(query, safe="")
    for rank, i in enumerate(display_order(scores, int(np.isfinite(scores).sum())), 1):
        yield f"{asked} Q0 {names[i]} {rank} {scores[i]:.9g} {tag}"


def qrel_lines(query: str, names: Sequence[str], golds: Sequence[int]) -> Iterator[str]:
    """Yield `qid 0 docno 1`, the golds alone."""
    yield from (f"{quote(query, safe='')} 0 {names[gold]} 1" for gold in golds)


def read_run_file(path: Path, digest: Any | None = None) -> dict[str, dict[str, tuple[float, int]]]:
    """Return by query its documents, each with its score and line number.

    `digest`, a hashlib object, is fed the bytes read. The score orders a run, as in trec_eval; the
    rank column is not read. Raise DataError with the line if there are not six columns, a score is
    not finite, or a document is repeated.
    """
    found: dict[str, dict[str, tuple[float, int]]] = {}
    for number, line in _lines(path, digest):
        columns = line.split()
        if len(columns) != 6:
            raise DataError(
                f"{len(columns)} columns",
                path,
                number,
                todo="A TREC run has six: qid Q0 docno rank score tag",
            )
        query, name = unquote(columns[0]), columns[2]
        try:
            score = float(columns[4])
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise DataError(f"score `{columns[4]}` is not a finite number", path, number)
        mine = found.setdefault(query, {})
        if name in mine:
            raise DataError(
                f"`{name}` is already on line {mine[name][1]} for `{query}`", path, number
            )
        mine[name] = (score, number)
    if not found:
        raise empty(path)
    return found


def _lines(path: Path, digest: Any) -> Iterator[tuple[int, str]]:
    for number, raw in read_lines(path, digest):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"cannot be read (not UTF-8 at byte {error.start})",
                path,
                number,
                todo="Save it as UTF-8",
            ) from None
        if line.strip():
            yield number, line


def scores_of(
    path: Path,
    query: str,
    ranking: Mapping[str, tuple[float, int]],
    memories: Sequence[Memory],
) -> tuple[NDArray[np.float32], int]:
    """Return one score per memory, shape (len(memories),), and how many are not in the ranking.

    Those share one value below the lowest score. Raise DataError for a document that is not in
    the pool.
    """
    names = {name: i for i, name in enumerate(documents(memories))}
    scores = np.full(len(memories), np.nan, np.float64)
    for name, (score, line) in ranking.items():
        if name not in names:
            raise DataError(
                f"`{name}` is not a document of the pool of `{query}`",
                path,
                line,
                todo="Was it made on these pools? analysis.export --what pools writes them",
            )
        scores[names[name]] = score
    with np.errstate(over="ignore"):
        single = scores.astype(np.float32)
    missing = np.isnan(single)
    if np.isinf(single).any():
        raise DataError(f"a score of `{query}` is too large for float32", path)
    if missing.any():
        lowest = np.nanmin(single)
        # Clearly below, or the next float32 if that overflows.
        far = float(lowest) - max(1.0, abs(float(lowest)))
        least = float(np.finfo(np.float32).min)
        single[missing] = far if far >= least else np.nextafter(lowest, np.float32(-np.inf))
    return single, int(missing.sum())
