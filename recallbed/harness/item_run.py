"""A run over items that are each done by themselves: dialogues, questions, answers to be judged.

Several items are under way at once, since most of their time is waiting for a model. Rows are kept
in the order of the items all the same, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from recallbed.errors import UserError
from recallbed.harness.first_failures import FirstFailures
from recallbed.harness.progress import progress
from recallbed.harness.run_folder import ROWS, RunFolder, is_count, say_reused

JSON = Any
ITEM_KEYS = ("item", "result", "calls", "tokens_in", "tokens_out", "error")


@dataclass(frozen=True, slots=True)
class Done:
    """What an item came to: a result, or the cause of its failure, and what its replies took."""

    result: JSON = None
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    error: str | None = None


def is_item_row(row: Any) -> bool:
    """Whether this is a row as item runs keep it: pass it to `open_run` as `sound`."""
    return (
        isinstance(row, dict)
        and tuple(row) == ITEM_KEYS
        and isinstance(row["item"], str)
        and all(map(is_count, (row["calls"], row["tokens_in"], row["tokens_out"])))
        and (row["error"] is None or isinstance(row["error"], str))
    )


def run_items(
    folder: RunFolder,
    items: Mapping[str, Callable[[], Done]],
    *,
    label: str,
    in_flight: int = 8,
    retry_failed: bool = False,
    keep_going: bool = True,
) -> None:
    """Do what is left of `items` (id -> its work), at most `in_flight` at once, and keep the rows.

    A row stands in rows.jsonl once all before it do. Raises UserError where the rows already there
    are not the first ones of these items. What a work raises ends the run, with every
    row before it kept: a work turns a failure that belongs to its item into `Done(error=...)`.
    Without `keep_going` UserError is raised too if the first ten items fail in the same way; none
    is kept.
    """
    names = list(items)
    _check_kept_rows(folder, names)
    kept = len(folder.rows)
    if retry_failed:
        failed = [i for i, row in enumerate(folder.rows) if row["error"] is not None]
        rows = list(folder.rows)
        kept -= len(failed)
        for i, (row, _) in zip(
            failed, _work(items, [names[i] for i in failed], label, in_flight), strict=True
        ):
            rows[i] = row
        folder.rewrite(rows)
    first = FirstFailures(label, keep_going=keep_going or bool(folder.rows))
    held: list[tuple[dict[str, Any], float]] = []
    for row, seconds in _work(items, names[len(folder.rows) :], label, in_flight):
        held.append((row, seconds))
        first.see([row["error"]])
        if first.decided:
            folder.append([one for one, _ in held], [taken for _, taken in held])
            held = []
    folder.append([one for one, _ in held], [taken for _, taken in held])
    say_reused(kept, len(folder.rows) - kept)


def _check_kept_rows(folder: RunFolder, names: Sequence[str]) -> None:
    for number, row in enumerate(folder.rows, 1):
        if number > len(names) or row["item"] != names[number - 1]:
            raise UserError(
                f"{folder.path / ROWS}:{number}: not the row that belongs here."
                " Start again with --overwrite"
            )


def _work(
    items: Mapping[str, Callable[[], Done]], names: Sequence[str], label: str, in_flight: int
) -> Iterator[tuple[dict[str, Any], float]]:
    if not names:
        return
    waiting: deque[Future[tuple[dict[str, Any], float]]] = deque()
    left = iter(names)
    with ThreadPoolExecutor(in_flight) as pool, progress(label, len(names)) as advance:
        try:
            while True:
                while len(waiting) < 2 * in_flight and (name := next(left, None)) is not None:
                    waiting.append(pool.submit(_row, name, items[name]))
                if not waiting:
                    return
                yield waiting.popleft().result()
                advance(1)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _row(name: str, work: Callable[[], Done]) -> tuple[dict[str, Any], float]:
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
    return row, time.perf_counter() - started
