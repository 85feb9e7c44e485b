"""What a sweep is asked to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from recallbed.chat_models.session import ChatOptions
from recallbed.corpus.pools import Strategy
from recallbed.harness.configurations import Configuration
from recallbed.harness.run_folder import OnExisting


@dataclass(frozen=True, slots=True)
class SweepConfig:
    """One sweep: labelled retrievers over pools of several sizes.

    `data` None is the embedded sample; `pools` and `distractors` None are what `corpus.material`
    takes for this kind of data; `out` None is a folder in `runs/` named by the fingerprint,
    which is then resumed without asking. `distractors`, `ks` and `pool_seeds` are ascending and
    without repeats. `limit` takes the first queries of the file; the bank is unaffected.
    `keep_going` goes on if the first ten rows of a label fail in the same way. `keep_scores` keeps
    every score of every pool in scores.jsonl. `store` is the file of the
    embedding store, None for none; `max_memory` bounds the bytes of embeddings held in memory.
    `chat` says how the chat models that retrievers name are asked.
    """

    configurations: tuple[Configuration, ...]
    data: Path | None = None
    split: str = "dev"
    pools: Strategy | None = None
    pool_seeds: tuple[int, ...] = (0,)
    distractors: tuple[int, ...] | None = None
    ks: tuple[int, ...] = (1, 5, 10)
    seed: int = 0
    limit: int | None = None
    workers: int = 1
    out: Path | None = None
    on_existing: OnExisting = "refuse"
    retry_failed: bool = False
    keep_going: bool = False
    keep_scores: bool = False
    store: Path | Callable[[], Path | None] | None = None
    max_memory: int | None = None
    chat: ChatOptions = field(default_factory=ChatOptions)
