"""What the memory systems of a run have in common, such as processes and a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self, TypeVar

T = TypeVar("T")


class Shared:
    """Parts by key, each opened when it is first asked for and closed with this, last first."""

    def __init__(self) -> None:
        self._parts: dict[Hashable, Any] = {}
        self._stack, self._lock = ExitStack(), threading.Lock()

    def get(self, key: Hashable, make: Callable[[], AbstractContextManager[T]]) -> T:
        """Return the part of `key`, made and entered by the first caller."""
        with self._lock:
            if key not in self._parts:
                self._parts[key] = self._stack.enter_context(make())
            part: T = self._parts[key]
            return part

    def close(self) -> None:
        """Close all parts. What is asked for later is made anew."""
        with self._lock:
            self._parts.clear()
            self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
