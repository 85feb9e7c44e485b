"""Means with their intervals. Pure functions; every draw comes from a given seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Z95 = 1.959963984540054
RESAMPLES = 10_000
BLOCK = 1 << 23
"""Counts held at once: 64 MiB. It changes no draw."""
KEPT = 1 << 26
"""Bytes of draws that are kept for the next bootstrap over as many clusters."""
_MULTINOMIAL = 1000


@final
@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval, and how the interval was made."""

    mean: float
    low: float
    high: float
    method: str

    def to_json(self) -> dict[str, float | str]:
        """Return the fields, numbers with six decimals."""
        found: dict[str, float | str] = rounded(asdict(self))
        return found

    def __str__(self) -> str:
        return f"95 % [{self.low:.4f}, {self.high:.4f}] {self.method}"


def rounded(value: Any) -> Any:
    """Return JSON with its floats rounded to six decimals."""
    if isinstance(value, Mapping):
        return {key: rounded(member) for key, member in value.items()}
    return round(value, 6) if isinstance(value, float) else value


def wilson(mean: float, n: int) -> Interval:
    """Wilson's score interval for a proportion `mean` over `n` trials (Wilson 1927)."""
    z2 = Z95 * Z95
    middle = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(max(mean * (1 - mean), 0) / n + z2 / (4 * n * n))
    return Interval(mean, max(middle - half, 0.0), min(middle + half, 1.0), "wilson")


def _block(n: int, rng: np.random.Generator, count: int) -> Floats:
    if n <= _MULTINOMIAL:
        return rng.multinomial(n, np.full(n, 1 / n), count).astype(float)
    # The same law from the numbers of the clusters drawn, ten times faster for many clusters.
    drawn = np.empty((count, n))
    for row in drawn:
        row[:] = np.bincount(rng.integers(0, n, n), minlength=n)
    return drawn


@lru_cache(maxsize=8)  # the next bootstrap is mostly over as many clusters as one before
def _only_block(n: int, seed: int, count: int) -> NDArray[np.unsignedinteger[Any]]:
    drawn = _block(n, np.random.default_rng(seed), count).astype(np.min_scalar_type(n))
    drawn.flags.writeable = False
    return drawn


@lru_cache(maxsize=1)  # a report asks for many figures of the same queries
def _kept_blocks(n: int, seed: int, resamples: int) -> tuple[NDArray[np.unsignedinteger[Any]], ...]:
    return tuple(b.astype(np.min_scalar_type(n)) for b in _blocks(n, seed, resamples))


def _blocks(n: int, seed: int, resamples: int) -> Iterator[Floats]:
    height, rng = max(1, BLOCK // n), np.random.default_rng(seed)
    for start in range(0, resamples, height):
        yield _block(n, rng, min(height, resamples - start))


class Bootstrap:
    """Percentile bootstrap over clusters (sessions): whole clusters are drawn, with replacement.

    Made once for a list of cluster names and used for many metrics over the same rows, so that
    differences between them are paired. Memory does not grow with the number of clusters: draws
    are made in blocks, and again for each call if they take more than `KEPT` bytes.
    """

    def __init__(self, clusters: Sequence[str], seed: int = 0, resamples: int = RESAMPLES) -> None:
        names = {name: i for i, name in enumerate(sorted(set(clusters)))}
        self.of_row = np.array([names[name] for name in clusters], np.int64)
        self.n = len(names)
        self.sizes = np.bincount(self.of_row, minlength=self.n).astype(float)
        self._seed, self._resamples = seed, resamples
        self._kept: Floats | None = None

    def draws(self) -> Iterator[Floats]:
        """Yield how often each cluster is drawn, in blocks of (resamples in the block, clusters).

        The same counts at each call, whatever the size of a block.
        """
        if self._kept is not None:
            yield self._kept
            return
        height = max(1, BLOCK // self.n)
        if height >= self._resamples:
            self._kept = _only_block(self.n, self._seed, self._resamples).astype(float)
            yield self._kept
            return
        if self.n * self._resamples * np.min_scalar_type(self.n).itemsize <= KEPT:
            for block in _kept_blocks(self.n, self._seed, self._resamples):
                yield block.astype(float)
            return
        yield from _blocks(self.n, self._seed, self._resamples)

    def sums(self, by_cluster: Floats) -> Floats:
        """Return sums over drawn clusters, (resamples, m), of `by_cluster`, (clusters, m)."""
        return np.concatenate([block @ by_cluster for block in self.draws()])

    def means(self, values: Floats) -> Floats:
        """Return means over rows: (resamples,) of (rows,), or (m, resamples) of (m, rows)."""
        columns = [np.bincount(self.of_row, row, self.n) for row in np.atleast_2d(values)]
        sums = self.sums(np.column_stack([*columns, self.sizes]))
        found: Floats = (sums[:, :-1] / sums[:, -1:]).T
        return found if values.ndim == 2 else found[0]

    def interval(self, values: Floats, bounds: tuple[float, float] = (0.0, 1.0)) -> Interval:
        """Return the 95 % interval of the mean of `values`, (rows,), which lie within `bounds`.

        Wilson's over clusters, on the scale of `bounds`, if the means of all clusters are equal.
        """
        return self.intervals(values[np.newaxis], bounds)[0]

    def intervals(self, values: Floats, bounds: tuple[float, float] = (0.0, 1.0)) -> list[Interval]:
        """Return the interval of each row of `values`, (m, rows), in one pass over the draws."""
        low, high = bounds
        if values.size and not low - 1e-9 <= values.min() <= values.max() <= high + 1e-9:
            raise ValueError(f"values from {values.min()} to {values.max()} are not in {bounds}")
        spread = [
            np.ptp(np.bincount(self.of_row, row, self.n) / self.sizes) / (high - low) >= 1e-12
            for row in values
        ]
        ends: Iterator[Floats] = iter(())
        if any(spread):
            means = self.means(values[np.array(spread)])
            ends = iter(np.percentile(means, [2.5, 97.5], axis=1).T)
        found = []
        for row, varies in zip(values, spread, strict=True):
            mean = float(row.mean())
            if varies:
                one, other = map(float, next(ends))
                found.append(Interval(mean, one, other, "bootstrap"))
            else:
                unit = wilson(min(max((mean - low) / (high - low), 0.0), 1.0), self.n)
                scaled = [low + end * (high - low) for end in (unit.low, unit.high)]
                found.append(Interval(mean, scaled[0], scaled[1], unit.method))
        return found


def mean_interval(
    values: Sequence[float],
    clusters: Sequence[str],
    seed: int = 0,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Interval | None:
    """Return the mean with its 95 % interval over clusters, one name per value; None for none."""
    if not values:
        return None
    return Bootstrap(clusters, seed).interval(np.array(values, float), bounds)
