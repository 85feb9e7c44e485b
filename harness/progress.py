"""Progress on stderr: rows done, rate, time left. A bar on a terminal, a line now and then else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.terminal import note, visible


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield `advance(n)`; nothing is shown for an empty task."""
    if total <= 0:
        yield lambda n: None
    elif sys.stderr.isatty():
        yield from _bar(what, total)
    else:
        yield from _lines(what, total)


def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(visible(what), total=total, rate="")
        started, done = time.monotonic(), 0

        def advance(n: int) -> None:
            nonlocal done
            done += n
            rate = done / max(time.monotonic() - started, 1e-9)
            bar.update(task, advance=n, rate=f"{rate:.0f}/s")

        yield advance


def _lines(what: str, total: int, every: float = 5.0) -> Iterator[Callable[[int], None]]:
    started = said = time.monotonic()
    done = 0

    def advance(n: int) -> None:
        nonlocal done, said
        done += n
        now = time.monotonic()
        if now - said >= every:
            said = now
            rate = done / (now - started)
            left = (total - done) / rate
            note(f"{what}: {done}/{total}, {rate:.0f}/s, {left:.0f} s left")

    yield advance
