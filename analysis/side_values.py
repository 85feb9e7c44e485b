"""The values of sides by size and query, which comparisons and areas are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.metrics import Metric
from analysis.sides import QueryRows, Side, query_value, scored_in_both, side_names
from analysis.statistics import Floats
from recallbed.errors import UserError


@dataclass(frozen=True, slots=True)
class SizedMetric:
    """A metric at one size, or a weighted sum of it over several."""

    metric: Metric
    sizes: tuple[int, ...]
    weights: tuple[float, ...] = (1.0,)


class SideValues:
    """The values of sides by size and query, read once."""

    def __init__(self, sides: Sequence[Side], keep: Callable[[str], bool] | None) -> None:
        self.sides, self.keep = sides, keep
        self.names = side_names(sides)
        self.sizes = [side.sizes for side in sides]
        self._rows: dict[tuple[int, int], QueryRows] = {}
        self._values: dict[tuple[int, int, Metric], dict[str, float]] = {}
        self._scored: dict[tuple[int, int, tuple[int, ...]], list[str]] = {}

    def seed(self, side: int) -> int:
        """The seed of a side's run."""
        return int(self.sides[side].run.manifest["fingerprint"]["seed"])

    def common_sizes(self, a: int, b: int) -> list[int]:
        """The sizes of two sides; raise UserError if they share none."""
        found = sorted(set(self.sizes[a]) & set(self.sizes[b]))
        if not found:
            raise UserError(
                f"{self.names[a]} and {self.names[b]} have no pool size in common, or one of them"
                " is not finished"
            )
        return found

    def check_size(self, size: int) -> None:
        """Raise UserError if a side has no rows at a size."""
        for known, name in zip(self.sizes, self.names, strict=True):
            if size not in known:
                has = ", ".join(map(str, known))
                raise UserError(f"{name}: no rows at {size} distractors (it has {has})")

    def sessions(self, side: int, queries: Sequence[str]) -> list[str]:
        """The session of each query in a side's run."""
        known = self.sides[side].run.manifest["sessions"]
        return [known.get(query, query) for query in queries]

    def rows(self, side: int, size: int) -> QueryRows:
        """The rows of a side by query."""
        if (side, size) not in self._rows:
            self._rows[side, size] = self.sides[side].rows(size)
        return self._rows[side, size]

    def asked(self, side: int, sizes: Sequence[int]) -> list[str]:
        """The queries that are to be compared."""
        queries = {query for size in sizes for query in self.rows(side, size)}
        return sorted(q for q in queries if self.keep is None or self.keep(q))

    def scored(self, a: int, b: int, sizes: Sequence[int]) -> list[str]:
        """Those that did not fail on either side at any of `sizes`."""
        key = a, b, tuple(sizes)
        if key not in self._scored:
            found = set(self.asked(a, sizes))
            for size in sizes:
                found &= set(scored_in_both(self.rows(a, size), self.rows(b, size), size))
            self._scored[key] = sorted(found)
        return self._scored[key]

    def values(self, side: int, queries: Sequence[str], of: SizedMetric) -> Floats:
        """The values of a side in the order of `queries`."""
        found = np.zeros(len(queries))
        for size, weight in zip(of.sizes, of.weights, strict=True):
            key = side, size, of.metric
            if key not in self._values:
                rows = self.rows(side, size).items()
                scored = {q: mine for q, mine in rows if all(r.error is None for r in mine)}
                self._values[key] = {q: query_value(of.metric, r) for q, r in scored.items()}
            by_query = self._values[key]
            found += weight * np.array([by_query[query] for query in queries])
        return found
