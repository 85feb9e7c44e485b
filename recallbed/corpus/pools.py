"""Pools: the distractors of a gold memory, for every size and seed.

`nested` grows one pool: 100 distractors lie in 300 lie in 1,000, all texts distinct.
`released` takes the candidates as the file gives them.
`as-released` draws with replacement, in proportion to how often a text occurs in the released
pools, as the published larger pools appear to have been made.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from recallbed.corpus.dataset import Dataset
from recallbed.corpus.options import Strategy
from recallbed.corpus.records import Memory, Task3Row
from recallbed.errors import DataError


@dataclass(frozen=True, slots=True)
class Pool:
    """Positions into `PoolSet.memories`, in the order a retriever sees, and the golds' places."""

    members: NDArray[np.int32]
    golds: tuple[int, ...]

    @property
    def gold(self) -> int:
        """The place of the only gold, or of the first."""
        return self.golds[0]

    def __len__(self) -> int:
        return len(self.members)


@dataclass(frozen=True, slots=True)
class PoolSet:
    """The pools of a run: `pools[size, seed][i]` belongs to `rows[i]`."""

    rows: tuple[Task3Row, ...]
    memories: tuple[Memory, ...]
    pools: dict[tuple[int, int], list[Pool]]

    def texts(self, pool: Pool) -> list[Memory]:
        """The memories of a pool, in its order."""
        memories = self.memories
        return [memories[i] for i in pool.members]

    def only(self, kept: Sequence[int]) -> PoolSet:
        """The pools of the rows of these numbers, as if the others had never been built."""
        pools = {at: [members[i] for i in kept] for at, members in self.pools.items()}
        return _shuffled(PoolSet(tuple(self.rows[i] for i in kept), self.memories, pools))


def build_pools(
    data: Dataset,
    strategy: Strategy,
    sizes: Sequence[int],
    seeds: Sequence[int],
    limit: int | None = None,
) -> PoolSet:
    """Build every pool of a run, for the first `limit` rows (all by default).

    A pool depends on the strategy, the seed, the split's data and its own query: never on the
    other sizes asked for, on `limit`, or on the order of the bank. The order inside a built pool
    follows a hash of seed, query and text, so the gold may be anywhere in it.

    Raises DataError if the bank is too small for a size.
    """
    rows = data.smallest.rows[:limit]
    numbers = _Numbers(data.bank)
    pools: dict[tuple[int, int], list[Pool]] = {}
    for seed in seeds:
        drawn = _Draw(data, strategy, seed, max(sizes), numbers)
        for size in sizes:
            pools[size, seed] = []
        released = {s: {r.benchmark_id: r for r in f.rows} for s, f in data.released.items()}
        for row in rows:
            if strategy == "released":
                for size in sizes:
                    given = released[size][row.benchmark_id]
                    members = np.array(numbers.of(given.candidates), np.int32)
                    pools[size, seed].append(Pool(members, given.golds))
            else:
                members = np.array(
                    [*numbers.of(row.gold_memories), *drawn.distractors(row)], np.int32
                )
                order = _hashed_order([numbers.raw[i] for i in members], seed, row.benchmark_id)
                golds = len(row.golds)
                for size in sizes:
                    kept = order[order < golds + size]
                    places = np.flatnonzero(kept < golds).tolist()
                    pools[size, seed].append(Pool(members[kept], tuple(places)))
    return _shuffled(PoolSet(rows, tuple(numbers.memories), pools))


class _Numbers:
    """Memories by number: the bank's first, in its order, then others as they are met."""

    def __init__(self, bank: Sequence[Memory]) -> None:
        self.memories = list(bank)
        self.raw = [memory.text.encode() for memory in bank]
        self._known = {memory: i for i, memory in enumerate(bank)}
        self.bank = {memory.text: i for i, memory in enumerate(bank)}

    def of(self, memories: Sequence[Memory]) -> list[int]:
        """The numbers of `memories`, new ones for those not met before."""
        for memory in memories:
            if memory not in self._known:
                self._known[memory] = len(self.memories)
                self.memories.append(memory)
                self.raw.append(memory.text.encode())
        return [self._known[memory] for memory in memories]


def _shuffled(found: PoolSet) -> PoolSet:
    """Only memories that stand in a pool, numbered by a hash: no number tells which were golds."""
    in_use = np.zeros(len(found.memories), bool)
    for members in found.pools.values():
        for pool in members:
            in_use[pool.members] = True
    used = np.flatnonzero(in_use)
    memories = [found.memories[i] for i in used]
    keys = [
        hashlib.blake2b(f"{m.label}\x00{m.text}".encode(), digest_size=8).digest() for m in memories
    ]
    order = sorted(range(len(keys)), key=lambda i: keys[i])
    number = np.empty(len(found.memories), np.int32)
    number[used[order]] = np.arange(len(order), dtype=np.int32)
    for members in found.pools.values():
        for i, pool in enumerate(members):  # in its place, so that no two sets are held at once
            members[i] = Pool(number[pool.members], pool.golds)
    return PoolSet(found.rows, tuple(memories[i] for i in order), found.pools)


def _hashed_order(texts: Sequence[bytes], seed: int, query: str) -> NDArray[np.int64]:
    """The order of a hash of seed, query and text; equal texts by their place."""
    prefix = f"{seed}\x00{query}\x00".encode()
    blake2b = hashlib.blake2b
    keys = b"".join([blake2b(prefix + text, digest_size=8).digest() for text in texts])
    return np.argsort(np.frombuffer(keys, ">u8"), kind="stable")


class _Draw:
    """The distractors of a row, in the order in which growing pools take them up."""

    def __init__(
        self, data: Dataset, strategy: Strategy, seed: int, largest: int, numbers: _Numbers
    ) -> None:
        self.data, self.strategy, self.seed, self.largest = data, strategy, seed, largest
        self.numbers = numbers
        counts: Counter[str] = Counter()
        if strategy == "as-released":
            for row in data.smallest.rows:
                counts.update(m.text for i, m in enumerate(row.candidates) if i not in row.golds)
        self.cumulative = list(accumulate(counts[memory.text] for memory in data.bank))

    def distractors(self, row: Task3Row) -> list[int]:
        """Their numbers."""
        # Only Random.random() is promised to repeat across Python versions, so no shuffle().
        rng = random.Random(f"{self.strategy}:{self.seed}:{row.benchmark_id}")
        golds = {memory.text for memory in row.gold_memories}
        barred = self.data.own.get(row.session_id, frozenset()) | golds
        if self.strategy == "as-released":
            return self._with_replacement(row, rng, barred)
        base: dict[str, Memory] = {}
        for memory in row.candidates:
            if memory.text not in golds:
                base.setdefault(memory.text, memory)
        members = self.numbers.of([base[text] for text in sorted(base)])
        members = [members[i] for i in _drawn(len(members), rng, len(members))]
        short = self.largest - len(members)
        if short > 0:
            place = self.numbers.bank
            taken = sorted(place[text] for text in barred | base.keys() if text in place)
            free = len(self.data.bank) - len(taken)
            if free < short:
                raise DataError(
                    f"the bank has {free + len(members)} distinct distractors for"
                    f" `{row.benchmark_id}`, fewer than the {self.largest} asked for",
                    self.data.smallest.path,
                    row.line,
                    todo="Ask for fewer --distractors",
                )
            # The i-th free place of the bank lies behind as many taken ones as are not above it.
            shifted = [number - i for i, number in enumerate(taken)]
            members += [i + bisect_right(shifted, i) for i in _drawn(free, rng, short)]
        return members[: self.largest]

    def _with_replacement(
        self, row: Task3Row, rng: random.Random, barred: frozenset[str]
    ) -> list[int]:
        bank, cumulative = self.data.bank, self.cumulative
        starts = [0, *cumulative]
        if all(m.text in barred or starts[i] == starts[i + 1] for i, m in enumerate(bank)):
            raise DataError(
                f"the bank holds no distractor for `{row.benchmark_id}`",
                self.data.smallest.path,
                row.line,
            )
        members: list[int] = []
        while len(members) < self.largest:
            number = bisect_right(cumulative, rng.random() * cumulative[-1])
            if bank[number].text not in barred:
                members.append(number)
        return members


def _drawn(total: int, rng: random.Random, count: int) -> list[int]:
    """`count` of the numbers below `total`, drawn without replacement.

    They are the first `count` places of a Fisher-Yates shuffle of all the numbers. Of many numbers
    only those that left their place are kept: time and memory follow `count`, not `total`.
    """
    draw = rng.random
    steps = min(count, total - 1)
    if total <= 4 * count:  # then a list is quicker
        items = list(range(total))
        for i in range(steps):
            j = i + int(draw() * (total - i))
            items[i], items[j] = items[j], items[i]
        return items[:count]
    moved: dict[int, int] = {}
    found = []
    for i in range(steps):
        j = i + int(draw() * (total - i))
        found.append(moved.get(j, j))
        if j != i:
            moved[j] = moved.pop(i, i)
    return found


def pool_hash(memories: Sequence[Memory]) -> str:
    """16 hex digits over the sorted texts of a pool: equal pools in any order hash equal."""
    texts = sorted([memory.text for memory in memories])
    return hashlib.sha256(b"".join(map(_framed, texts))).hexdigest()[:16]


@lru_cache(1 << 14)  # one text is in many pools
def _framed(text: str) -> bytes:
    raw = text.encode()
    return len(raw).to_bytes(4, "big") + raw
