"""Progress on stderr: rows done, rate, time left. A bar on a terminal, a line now and then else.

Calls of a chat model are counted too: one row may rest on many, and each may take long.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from recallbed.harness.terminal import note, visible

_listeners: list[Callable[[], None]] = []


def call_made() -> None:
    """Count a call of a chat model in the innermost progress, if any is shown; for any thread."""
    if _listeners:
        _listeners[-1]()


@contextmanager
def _listening(listener: Callable[[], None]) -> Iterator[None]:
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


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
        TextColumn("{task.fields[rate]}{task.fields[calls]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(visible(what), total=total, rate="", calls="")
        started, done, made = time.monotonic(), 0, 0

        def advance(n: int) -> None:
            nonlocal done
            done += n
            rate = done / max(time.monotonic() - started, 1e-9)
            bar.update(task, advance=n, rate=_per_second(rate))

        def count() -> None:
            nonlocal made
            made += 1
            bar.update(task, calls=f", {made} calls")

        with _listening(count):
            yield advance


def _per_second(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def _lines(what: str, total: int, every: float = 5.0) -> Iterator[Callable[[int], None]]:
    started = said = time.monotonic()
    done = made = 0

    def show() -> None:
        nonlocal said
        now = time.monotonic()
        if now - said < every:
            return
        said = now
        line = f"{what}: {done}/{total}"
        if done:
            rate = done / (now - started)
            line += f", {_per_second(rate)}, {(total - done) / rate:.0f} s left"
        note(line + (f", {made} calls in {now - started:.0f} s" if made else ""))

    def advance(n: int) -> None:
        nonlocal done
        done += n
        show()

    def count() -> None:
        nonlocal made
        made += 1
        show()

    with _listening(count):
        yield advance
