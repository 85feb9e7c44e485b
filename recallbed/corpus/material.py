"""What a run is made over: a dataset, its pools, and what the run's manifest says of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recallbed.corpus.custom import is_custom
from recallbed.corpus.dataset import Dataset, load_dataset
from recallbed.corpus.layout import sample_root
from recallbed.corpus.options import Strategy
from recallbed.corpus.pools import PoolSet, build_pools, pool_hash
from recallbed.errors import DataError

SIZES = (100, 300, 500, 700, 1000)


@dataclass(frozen=True, slots=True)
class Material:
    """Pools of known origin. `sizes` and `seeds` are those that the pools were built for.

    `left_out` are the ids of the rows that no pool was built for, as a retriever was trained on
    their sessions. Their memories are still distractors of the others.
    """

    data: Dataset
    strategy: Strategy
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    pools: PoolSet
    left_out: tuple[str, ...] = ()

    def only(self, kept: Sequence[int]) -> Material:
        """Return the same for the rows of these numbers, in ascending order; itself for all."""
        rows = self.pools.rows
        if len(kept) == len(rows):
            return self
        left_out = {row.benchmark_id for row in rows} - {rows[i].benchmark_id for i in kept}
        out = tuple(sorted({*self.left_out, *left_out}))
        return replace(self, pools=self.pools.only(kept), left_out=out)

    def fingerprint(self) -> dict[str, Any]:
        """The fields `data` and `pools` of a run's fingerprint; `unseen` if rows are left out."""
        data = self.data
        return {
            "data": {
                "sample": data.root.resolve() == sample_root().resolve(),
                "split": data.split,
                "sha256": data.sha256,
                "queries": len(self.pools.rows),
                **({"own": True} if is_custom(data.root) else {}),
            },
            "pools": {
                "strategy": self.strategy,
                "seeds": list(self.seeds),
                "distractors": list(self.sizes),
                "bank": pool_hash(data.bank),
                "bank_size": len(data.bank),
                "own_memories_known": data.own_known,
            },
            **({"unseen": self._unseen()} if self.left_out else {}),
        }

    def _unseen(self) -> dict[str, Any]:
        ids = json.dumps(self.left_out, ensure_ascii=False).encode()
        return {
            "left_out": len(self.left_out),
            "sha256": hashlib.sha256(ids).hexdigest(),
        }

    def facts(self) -> dict[str, Any]:
        """Return what a summary needs besides the rows; part of the manifest."""
        return {
            "sessions": {
                row.benchmark_id: row.session_id
                for row in self.pools.rows
                if row.session_id != row.benchmark_id
            },
            "repaired": dict(sorted(self.data.repairs.items())),
            "pools_with_repeated_ids": self.data.smallest.repeated_ids,
            "duplicate_queries": _duplicate_queries(self.pools),
            "pool_sizes": _pool_sizes(self.pools),
            "abstentions": len(self.data.abstentions),
            **({"left_out": list(self.left_out)} if self.left_out else {}),
        }


def gather(
    data: Path | None = None,
    split: str = "dev",
    strategy: Strategy | None = None,
    sizes: Sequence[int] | None = None,
    seeds: Sequence[int] = (0,),
    limit: int | None = None,
) -> Material:
    """Load `data` (the embedded sample if it is None) and build its pools.

    A release gives `nested` pools of `SIZES` by default; a user's own file gives its
    pools as they are (`released`), whose only size is that of the largest.

    Raises DataError for faulty data, unavailable sizes, and pools that cannot be built.
    """
    root = data or sample_root()
    own = is_custom(root)
    strategy = strategy or ("released" if own else "nested")
    if strategy == "released":
        if own and sizes:
            raise DataError(
                "the pools of this file come in the sizes that it gives them",
                root,
                todo="Leave --distractors out, or draw pools of these sizes with --pools nested",
            )
        seeds = (0,)
    if own and strategy != "released" and not sizes:
        raise DataError(
            f"{strategy} pools of this file need sizes",
            root,
            todo="Give --distractors, such as 10,50",
        )
    asked = tuple(sizes or SIZES) if not own or sizes else ()
    loaded = load_dataset(root, split, asked if strategy == "released" else ())
    asked = asked or (loaded.smallest.size,)
    pools = build_pools(loaded, strategy, asked, seeds, limit)
    return Material(loaded, strategy, asked, tuple(seeds), pools)


def _pool_sizes(pools: PoolSet) -> dict[str, dict[str, int]]:
    """By "distractors/seed", the size of each pool that isn't its distractors and one gold."""
    found: dict[str, dict[str, int]] = {}
    for (size, seed), members in pools.pools.items():
        for row, pool in zip(pools.rows, members, strict=True):
            if len(pool) != size + 1:
                found.setdefault(f"{size}/{seed}", {})[row.benchmark_id] = len(pool)
    return found


def _duplicate_queries(pools: PoolSet) -> dict[str, dict[str, int]]:
    """Queries with the text of others whose golds are in the same pool.

    No scorer can tell such golds apart, so recall has a ceiling. By pool, "distractors/seed", the
    number of such golds, its own included, for each query that has more than one.
    """
    golds: dict[str, set[str]] = {}
    single = {i: row for i, row in enumerate(pools.rows) if len(row.golds) == 1}
    for row in single.values():
        golds.setdefault(row.query, set()).add(row.gold_memory.text)
    shared = {i: golds[row.query] for i, row in single.items() if len(golds[row.query]) > 1}
    found: dict[str, dict[str, int]] = {}
    for (size, seed), members in pools.pools.items():
        for i, texts in shared.items():
            count = len(texts & {memory.text for memory in pools.texts(members[i])})
            if count > 1:
                found.setdefault(f"{size}/{seed}", {})[pools.rows[i].benchmark_id] = count
    return found
