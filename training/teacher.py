"""A recorded order as a teacher: the first places of a finished run's rows as soft targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recallbed.corpus.material import Material
from recallbed.corpus.pools import pool_hash
from recallbed.errors import UserError
from recallbed.harness.configurations import is_label
from recallbed.harness.run_folder import ROWS, read_manifest, read_rows
from recallbed.harness.terminal import note
from training.pool_results import PoolAt

DECAY = 0.5
"""Share of a place in that of the place before it."""

TaughtShares = Mapping[PoolAt, Mapping[str, float]]
"""By pool, the share of each text in what the teacher ranks first; they add up to 1."""


def read_teacher(word: str, material: Material) -> TaughtShares:
    """Return what a run of `recallbed sweep`, FOLDER:LABEL, says of the pools of `material`.

    Only the order of a row's first places counts, since scores of rerankers are ranks: each place
    has half the share of the one before, and equal scores share theirs. Raise UserError if the
    folder cannot be read, or if none of its rows is of these pools.
    """
    folder, colon, label = word.rpartition(":")
    if not colon or not is_label(label):
        raise UserError(f"--teacher {word}: write it as FOLDER:LABEL")
    place = {row.benchmark_id: number for number, row in enumerate(material.pools.rows)}
    same: dict[tuple[int, str], list[PoolAt]] = {}
    hashes: dict[PoolAt, str] = {}
    for (size, seed), pools in material.pools.pools.items():
        for number, pool in enumerate(pools):
            at = size, seed, number
            hashes[at] = pool_hash(material.pools.texts(pool))
            same.setdefault((number, hashes[at]), []).append(at)
    found: dict[PoolAt, Mapping[str, float]] = {}
    for row, seed in _rows(Path(folder), label):
        at = row["distractors"], seed, place.get(row["query"], -1)
        if hashes.get(at) != row["pool"]:
            continue
        texts = material.pools.texts(material.pools.pools[at[:2]][at[2]])
        shares = _shares(row["top"], [memory.text for memory in texts])
        # Pools of the same texts differ in order alone, which no retriever may depend on.
        found.update(dict.fromkeys(same[at[2], hashes[at]], shares))
    if not found:
        raise UserError(
            f"--teacher {word}: none of its rows is of these pools. Give the --data, --distractors"
            " and --pool-seeds of that run, and one of its labels"
        )
    note(f"--teacher {word}: {len(found)} of {len(hashes)} pools")
    return found


def _rows(folder: Path, label: str) -> Iterator[tuple[dict[str, Any], int]]:
    """The scored rows of a label, each with the seed of its pool."""
    try:
        seeds = list(read_manifest(folder)["fingerprint"]["pools"]["seeds"])
    except (KeyError, TypeError):
        raise UserError(f"{folder}: not a run of `recallbed sweep`") from None
    rows, _ = read_rows(folder / ROWS, _is_ranking, "a row of a sweep")
    seen: Counter[tuple[int, str]] = Counter()
    for row in rows:
        if row["retriever"] == label:
            key = row["distractors"], row["query"]
            seed = seeds[seen[key] % len(seeds)]  # rows of a query are in the order of the seeds
            seen[key] += 1
            if row["top"]:
                yield row, seed


def _is_ranking(row: Any) -> bool:
    """Whether a row has what a teacher is made from."""
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(key), str) for key in ("query", "retriever", "pool"))
        and isinstance(row.get("distractors"), int)
        and isinstance(row.get("top"), list)
        and all(isinstance(pair, list) and len(pair) == 2 for pair in row["top"])
    )


def _shares(top: Sequence[Any], texts: Sequence[str]) -> dict[str, float]:
    places = [(texts[position], score) for position, score in top if position < len(texts)]
    values = [DECAY**i for i in range(len(places))]
    shares: dict[str, float] = {}
    for text, score in places:
        tied = [v for (_, other), v in zip(places, values, strict=True) if other == score]
        shares[text] = shares.get(text, 0.0) + sum(tied) / len(tied)
    total = sum(shares.values())
    return {text: share / total for text, share in shares.items()}
