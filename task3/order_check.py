"""Whether a retriever's scores depend on which queries it was asked before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from recallbed.corpus.records import Memory
from recallbed.errors import UserError
from retrievers.base import NotScored, Retriever, Scored
from retrievers.rerank.base import NO_FIRST_STAGE, Reranker
from task3.pool_scoring import chat_models_of

SAMPLE = 5
"""Queries that are scored again, each against one pool of the smallest size."""
TOLERANCE = 1e-5
"""Largest difference, relative to the pool's largest score, that is rounding: a query scored alone
twice gives equal numbers but for the last bits."""
BATCH_TOLERANCE = 1e-2
"""The same between a batch and a single query: a network of half precision rounds by the batch."""

Asked = tuple[str, Sequence[Memory]]


def check_order(
    label: str,
    retriever: Retriever,
    names: Sequence[str],
    asked: Callable[[int], Asked],
    seed: int,
) -> None:
    """Score a sample of queries in two orders, and compare the scores.

    `names` are the ids of the queries and `asked(i)` gives query and pool of the i-th. The sample
    and its order follow a hash of seed and id. The queries are scored one by one in reverse order,
    then one by one in the first order; these must agree within TOLERANCE. If the class has its own
    `score_batch`, a batch that holds each of them twice comes first, and must agree with the rest
    within BATCH_TOLERANCE: a memory that is in more pools of a batch is not worth more.
    The batch of a `Reranker` is not compared: its scores are ranks, in which rounding shows as a
    whole step. Queries that fail are left to the run.

    A retriever that asks a chat model is not scored, so that no call is paid for twice; its first
    stage is. Raise UserError that names the query.
    """
    while isinstance(retriever, Reranker) and chat_models_of(retriever.notes()):
        if retriever.first_stage_name == NO_FIRST_STAGE:
            return
        retriever = retriever.first_stage
    if chat_models_of(retriever.notes()):
        return
    sample = sorted(range(len(names)), key=lambda i: _key(seed, names[i]))[:SAMPLE]
    pairs = {i: asked(i) for i in sample}

    def alone(i: int) -> Scored | NotScored:
        query, pool = pairs[i]
        return retriever.results([query], [pool])[0]

    batch = None
    if type(retriever).score_batch is not Retriever.score_batch and not isinstance(
        retriever, Reranker
    ):
        queries, pools = zip(*pairs.values(), *pairs.values(), strict=True)
        batch = dict(zip([*sample, *sample], retriever.results(queries, pools), strict=True))
    backward = {i: alone(i) for i in reversed(sample)}
    forward = {i: alone(i) for i in sample}
    for i in sample:
        found = _difference(backward[i], forward[i], TOLERANCE)
        how = "after other queries"
        if found is None and batch is not None:
            found, how = _difference(batch[i], forward[i], BATCH_TOLERANCE), "in a batch and alone"
        if found is not None:
            place, one, other = found
            raise UserError(
                f"{label}: not the same scores for query `{names[i]}` when it is scored again {how}"
                f" (position {place} of its pool: {one:.9g}, then {other:.9g})."
                " A retriever must keep no state between queries and draw no random numbers but"
                " from a seed, the query and the text; retrievers.testing checks it"
            )


def _key(seed: int, name: str) -> bytes:
    return hashlib.blake2b(f"order check\x00{seed}\x00{name}".encode(), digest_size=8).digest()


def _difference(
    one: Scored | NotScored, other: Scored | NotScored, tolerance: float
) -> tuple[int, float, float] | None:
    """Return the position of the largest difference and both scores; None if they agree."""
    if isinstance(one, NotScored) or isinstance(other, NotScored):
        return None
    a, b = (np.asarray(result.scores, np.float64) for result in (one, other))
    if not len(a):
        return None
    place = int(np.argmax(abs(a - b)))
    if abs(a[place] - b[place]) <= tolerance * max(abs(a).max(), abs(b).max()):
        return None
    return place, float(a[place]), float(b[place])
