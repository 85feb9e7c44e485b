"""What a sweep and its dry run do alike before they score: data, pools, retrievers, tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recallbed.chat_models.session import Chats
from recallbed.corpus.material import Material, gather
from recallbed.corpus.pools import PoolSet
from recallbed.errors import UserError
from retrievers.base import Retriever, RunContext
from retrievers.registry import build_all
from retrievers.rerank.base import Reranker
from task3.config import SweepConfig
from task3.scoring import Place

QUERIES_A_TASK = 16


def open_sweep(config: SweepConfig, chats: Chats) -> tuple[Material, dict[str, Retriever]]:
    """The data and pools of a sweep, and its retrievers by label.

    Raises UserError where reranking could change no figure of a label.
    """
    material = gather(
        config.data,
        config.split,
        config.pools,
        config.distractors,
        config.pool_seeds,
        config.limit,
    )
    bank = material.data.bank
    run = RunContext(config.seed, bank, config.store, config.max_memory, chats=chats)
    retrievers = build_all(config.configurations, run)
    for label, retriever in retrievers.items():
        depth = retriever.depth if isinstance(retriever, Reranker) else None
        if depth is not None and depth <= min(config.ks):
            raise UserError(
                f"{label}: reranking the first {depth} cannot change R@{min(config.ks)} or beyond."
                f" Set a larger {label}.depth, or a --k below {depth}"
            )
    return material, retrievers


def places_of(pools: PoolSet) -> list[Place]:
    """All pools of a run in the order of its rows."""
    return [Place(*pool, query) for pool in pools.pools for query in range(len(pools.rows))]


def task_size(config: SweepConfig, notes: Mapping[str, Any]) -> int:
    """How many queries are scored, and their rows kept, at once.

    With a chat model enough to keep its calls under way: some queries wait for their next turn.
    """
    return 2 * config.chat.in_flight if chat_models_of(notes) else QUERIES_A_TASK


def chat_models_of(notes: Mapping[str, Any]) -> list[str]:
    """The chat models that a retriever's notes name as `chat_model`, those of legs included."""
    found = {notes["chat_model"]} if isinstance(notes.get("chat_model"), str) else set()
    for value in notes.values():
        if isinstance(value, Mapping):
            found.update(chat_models_of(value))
    return sorted(found)
