"""Experiments over items that are independent of each other: dialogues, questions, answers.

Several items are in progress at once, since most of their time is waiting for a model. Rows are
kept in the order of the items all the same, so an interrupted run can be resumed.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from recallbed.harness.experiment import Experiment, Finished, Row
from recallbed.harness.progress import progress
from recallbed.harness.run_folder import RunFolder, is_count

JSON = Any
ITEM_KEYS = ("item", "result", "calls", "tokens_in", "tokens_out", "error")
USAGE_KEYS = ("calls", "tokens_in", "tokens_out")


@dataclass(frozen=True, slots=True)
class Done:
    """What came of an item: its result or the cause of its failure, and what its replies took."""

    result: JSON = None
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    error: str | None = None


def is_item_row(row: Any) -> bool:
    """Return whether this is a row as an `ItemExperiment` keeps it."""
    return (
        isinstance(row, dict)
        and tuple(row) == ITEM_KEYS
        and isinstance(row["item"], str)
        and all(is_count(row[key]) for key in USAGE_KEYS)
        and (row["error"] is None or isinstance(row["error"], str))
    )


def usage_of(rows: Sequence[Row]) -> dict[str, int]:
    """Return the sums of calls and tokens over rows."""
    return {key: sum(row[key] for row in rows) for key in USAGE_KEYS}


class ItemExperiment(Experiment[str, Mapping[str, JSON]]):
    """An experiment whose keys are the names of its items; at most `in_flight` run at once.

    What the work on an item raises ends the run, with every row before it kept: a work turns a
    failure that belongs to its item into `Done(error=...)`.
    """

    in_flight: int = 8

    @property
    def label(self) -> str:
        """What progress and an early stop call the run."""
        return self.name

    @abstractmethod
    def items(self) -> Mapping[str, Callable[[], Done]]:
        """Return the work on every item by its name, in the order of the rows."""

    @abstractmethod
    def figures(self, folder: RunFolder) -> Mapping[str, JSON]:
        """Return the summary without usage and cost."""

    @abstractmethod
    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        """Return what the tokens of all rows cost; None if that is unknown."""

    @override
    def keys(self) -> Sequence[str]:
        return list(self.items())

    @override
    def is_row(self, row: Any) -> bool:
        return is_item_row(row)

    @override
    def is_row_of(self, row: Row, key: str) -> bool:
        return bool(row["item"] == key)

    @override
    def part(self, key: str) -> str:
        return self.label

    @override
    def summarise(self, folder: RunFolder) -> Mapping[str, JSON]:
        usage = usage_of(folder.rows)
        cost = self.cost(usage["tokens_in"], usage["tokens_out"])
        return {**self.figures(folder), **usage, "cost": cost}

    @override
    def rehearse(self) -> None:
        items = self.items()
        with progress(f"{self.label}, dry run", len(items)) as advance:
            for work in items.values():
                work()
                advance(1)

    @override
    def produce(self, keys: Sequence[str]) -> Iterator[Sequence[Finished]]:
        items, left = self.items(), iter(keys)
        waiting: deque[Future[Finished]] = deque()
        with (
            ThreadPoolExecutor(self.in_flight) as pool,
            progress(self.label, len(keys)) as advance,
        ):
            try:
                while True:
                    while (
                        len(waiting) < 2 * self.in_flight and (name := next(left, None)) is not None
                    ):
                        waiting.append(pool.submit(_finish, name, items[name]))
                    if not waiting:
                        return
                    yield [waiting.popleft().result()]
                    advance(1)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def _finish(name: str, work: Callable[[], Done]) -> Finished:
    started = time.perf_counter()
    done = work()
    row = {
        "item": name,
        "result": done.result,
        "calls": done.calls,
        "tokens_in": done.tokens_in,
        "tokens_out": done.tokens_out,
        "error": done.error,
    }
    return Finished(row, time.perf_counter() - started)
