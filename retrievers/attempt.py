"""Calling a retriever so that a fault fails its own query alone: all callers do it here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.metrics import ranked
from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from recallbed.harness.cause import cause_of
from retrievers.base import Retriever, RetrieverError, Scored, Usage


def attempt(
    retriever: Retriever, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
) -> list[Scored | RetrieverError]:
    """One result per query: scores as float32 of shape (len(pool),), or the cause of its failure.

    What else a retriever reports of a pool is checked too, and a fault in it fails the query.
    Raises as `ask` does.
    """
    results = ask(retriever, queries, pools)
    return [_checked(r, len(pool)) for r, pool in zip(results, pools, strict=True)]


def ask(
    retriever: Retriever, queries: Sequence[str], pools: Sequence[Sequence[Memory]]
) -> list[ArrayLike | Scored | RetrieverError]:
    """One result per query as the retriever gives it, unchecked, or the cause of its failure.

    A batch that crashes is tried again query by query. Raises only MemoryError, and UserError (a
    spent budget, a refused key): what would fail every other query too ends the run.
    """
    try:
        results = list(retriever.score_batch(queries, pools))
        if len(results) != len(queries):
            raise RetrieverError(f"{len(results)} results for a batch of {len(queries)}")
    except (MemoryError, UserError):
        raise
    except Exception as error:
        if len(queries) > 1:
            alone = [ask(retriever, [q], [p]) for q, p in zip(queries, pools, strict=True)]
            return [result for one in alone for result in one]
        return [_failure(error)]
    return results


def prepare(
    label: str, retriever: Retriever, queries: Iterable[str], memories: Iterable[Memory]
) -> None:
    """Announce all that a run will score, in any order and with repeats.

    Raises MemoryError, and UserError if the retriever cannot be prepared.
    """
    try:
        retriever.prepare_once(
            sorted(set(queries)), sorted(set(memories), key=lambda m: (m.text, m.label or ""))
        )
    except (MemoryError, UserError):
        raise
    except Exception as error:
        raise UserError(f"{label}: cannot be prepared ({cause_of(error)})") from error


def _failure(error: Exception) -> RetrieverError:
    return error if isinstance(error, RetrieverError) else RetrieverError(cause_of(error))


def _checked(result: Any, size: int) -> Scored | RetrieverError:
    if isinstance(result, RetrieverError):
        return result
    scored = result if isinstance(result, Scored) else Scored(result)
    try:
        scores = ranked(scored.scores, size)
        first = None if scored.first_stage is None else _first_stage(scored.first_stage, size)
        shown = None if scored.shown is None else _positions(scored.shown, size)
        depth = None if scored.depth is None else _depth(scored.depth)
        used = Usage(*(int(n) for n in astuple(scored.usage)))
        repairs = {str(kind): int(n) for kind, n in scored.repairs.items()}
    except ValueError as error:
        return RetrieverError(str(error))
    except Exception as error:
        return _failure(error)
    return Scored(scores, scored.matched, first, shown, used, repairs, depth)


def _first_stage(scores: Any, size: int) -> NDArray[np.float32]:
    try:
        return ranked(scores, size)
    except ValueError as error:
        raise ValueError(f"first stage: {error}") from None


def _positions(shown: Any, size: int) -> list[int]:
    """The positions shown, each of them once."""
    found = [index(position) for position in shown]
    if not all(0 <= position < size for position in found) or len(set(found)) < len(found):
        raise ValueError(f"shown: not distinct positions in a pool of {size}")
    return found


def _depth(depth: Any) -> int:
    if index(depth) < 1:
        raise ValueError(f"depth {depth}: must be at least 1")
    return index(depth)
