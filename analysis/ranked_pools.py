"""The rows of a run with their queries and pools, which are built again from the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.rows import SweepRow
from analysis.runs import Run
from recallbed.corpus.custom import is_custom
from recallbed.corpus.material import Material, gather
from recallbed.corpus.options import STRATEGIES
from recallbed.corpus.pools import Pool, PoolSet
from recallbed.corpus.records import Memory, Task3Row
from recallbed.errors import UserError
from recallbed.harness.fingerprint import difference
from recallbed.harness.run_folder import MANIFEST, ROWS, is_count


@dataclass(frozen=True, slots=True)
class RankedPool:
    """A row with its query and its pool; positions are those of the row."""

    row: SweepRow
    query: Task3Row
    pool: Pool
    seed: int
    pools: PoolSet

    @property
    def memories(self) -> list[Memory]:
        """The memories of the pool by position."""
        return self.pools.texts(self.pool)

    def memory(self, position: int) -> Memory:
        """Return the memory at a position."""
        return self.pools.memories[int(self.pool.members[position])]

    @property
    def golds(self) -> list[Memory]:
        """The gold memories."""
        return [self.memory(position) for position in self.pool.golds]


def ranked_pools(
    run: Run,
    material: Material,
    labels: Collection[str] | None = None,
    sizes: Collection[int] | None = None,
) -> Iterator[RankedPool]:
    """Yield the rows of a run, finished or not, in their order, of some labels and sizes or of all.

    Raise UserError for a row that is not of these pools.
    """
    number = {row.benchmark_id: i for i, row in enumerate(material.pools.rows)}
    seen: Counter[tuple[str, int, str]] = Counter()
    for line, row in enumerate(run.rows, 1):
        key = row.retriever, row.distractors, row.query
        seed = material.seeds[seen[key]]  # rows of a query are in the order of the seeds
        seen[key] += 1
        if (labels is not None and row.retriever not in labels) or (
            sizes is not None and row.distractors not in sizes
        ):
            continue
        pools = material.pools.pools.get((row.distractors, seed), [])
        place = number.get(row.query, len(pools))
        if place >= len(pools) or not _is_of(row, pools[place]):
            raise UserError(
                f"{run.path / ROWS}:{line}: not the row of its pool."
                " Start the sweep again with --overwrite"
            )
        yield RankedPool(row, material.pools.rows[place], pools[place], seed, material.pools)


def _is_of(row: SweepRow, pool: Pool) -> bool:
    """Whether golds and first positions of a row are those of a pool."""
    return pool.golds == row.golds and all(position < len(pool) for position, _ in row.top)


def material_of(run: Run, data: Path | None) -> Material:
    """Return the pools of a run, built again from `data` (None: the embedded sample).

    Raise UserError if the run was made on other data.
    """
    made_on, pools = _origin(run)
    if data is None and not made_on["sample"]:
        raise UserError(
            f"{run.path}: was made on other data than the sample. Pass the --data of the sweep"
        )
    own = data is not None and is_custom(data)
    left_out = frozenset(run.manifest.get("left_out", ()))
    material = gather(
        data,
        made_on["split"],
        pools["strategy"],
        None if own and pools["strategy"] == "released" else pools["distractors"],
        pools["seeds"],
        made_on["queries"] + len(left_out),
    )
    rows = material.pools.rows
    kept = [i for i, row in enumerate(rows) if row.benchmark_id not in left_out]
    if len(kept) + len(left_out) == len(rows):
        material = material.only(kept)
    prints = run.manifest["fingerprint"]
    unseen = {"unseen": prints["unseen"]} if "unseen" in prints else {}
    found = difference({"data": made_on, "pools": pools, **unseen}, material.fingerprint())
    if found:
        raise UserError(
            f"{run.path}: was made on other data ({found}). Pass the --data of the sweep"
        )
    return material


def _origin(run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """The data and pools of a run's manifest."""
    data, pools = run.manifest["fingerprint"]["data"], run.manifest["fingerprint"]["pools"]
    sound = (
        isinstance(data, dict)
        and isinstance(data.get("sample"), bool)
        and isinstance(data.get("split"), str)
        and is_count(data.get("queries"))
        and pools.get("strategy") in STRATEGIES
        and isinstance(pools.get("distractors"), list)
        and bool(pools["distractors"])
        and all(map(is_count, [*pools["distractors"], *pools["seeds"]]))
    )
    if not sound:
        raise UserError(f"{run.path / MANIFEST}: does not describe the data of the run")
    return data, pools
