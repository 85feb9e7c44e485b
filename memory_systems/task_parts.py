"""What the rows of a run share: a retriever, a chat model, a store, and how to make a system."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexes.embedding_store import choose_store
from memory_systems.base import MemorySystem, SystemContext
from memory_systems.options import TaskOptions
from memory_systems.registry import build_system, describe, find, names
from memory_systems.store import MemoryStore
from recallbed.chat_models.base import ChatModel
from recallbed.chat_models.session import Chats
from recallbed.errors import UserError
from recallbed.harness.fingerprint import code_hash, own_version, versions
from retrievers.base import RunContext
from retrievers.registry import build_all
from retrievers.registry import describe as describe_retriever

JSON = Any


class Parts:
    """Use `open_parts`. `models` holds the chat models that anyone here asked for, by name."""

    def __init__(self, options: TaskOptions, class_name: str, chats: Chats) -> None:
        self._options, self._class_name, self._chats = options, class_name, chats
        self.models: dict[str, ChatModel] = {}
        self.chat = self._named(options.chat_model) if options.chat_model else None
        run = RunContext(options.seed, store=lambda: choose_store(None), chats=self._named)
        self._configuration = next(c for c in options.configurations if c.label == options.label)
        self.retriever = build_all(options.configurations, run)[options.label]
        self._context = SystemContext(self.retriever, self.chat, None, options.seed)

    def _named(self, name: str) -> ChatModel:
        self.models[name] = self._chats(name)
        return self.models[name]

    @contextmanager
    def stored_in(self, path: Path) -> Iterator[None]:
        """Meanwhile systems keep their memories in the file `path`, and not in themselves.

        It is made here, and held open: SQLite tidies up whenever a file is left by its last user.
        """
        store, outside = MemoryStore(path), self._context
        try:
            store.users()
            self._context = replace(outside, store=path)
            yield
        finally:
            self._context = outside
            store.close()

    def system(self) -> MemorySystem:
        """A new instance."""
        return build_system(self._class_name, self._options.system_settings, self._context)

    def fingerprint(self) -> dict[str, JSON]:
        """All of the parts that can change a result."""
        chat, system = self.chat, self.system()
        libraries = {"numpy", *self.retriever.libraries, *(chat.libraries if chat else ())}
        return {
            "system": dict(describe(self._class_name, system)),
            "retriever": {
                "label": self._options.label,
                **describe_retriever(self._configuration, self.retriever),
            },
            "chat_model": chat and {"name": chat.name, **chat.settings()},
            "code": {"version": own_version(), "sha256": code_hash()},
            "libraries": versions(sorted(libraries)),
            "seed": self._options.seed,
        }

    def described(self) -> dict[str, JSON]:
        """For a summary: who did it, and with what."""
        about = (inspect.getdoc(find(self._class_name)) or "").partition("\n")[0]
        return {
            "system": self._options.system,
            "about": about if self.models else f"no model: {about}",
            "retriever": f"{self._options.label} ({self._configuration.name})",
            "chat_models": sorted(self.models),
        }

    def cost(self, tokens_in: int, tokens_out: int) -> float | None:
        """What the tokens of all rows cost: 0 without a model, None where that isn't known.

        Rows don't say which model their tokens went to, so a price is needed and one model alone.
        """
        if not self.models:
            return 0.0
        [first, *others] = self.models.values()
        price = None if others else self._chats.prices.by_model.get(first.name)
        return None if price is None else price.of(tokens_in, tokens_out)


def open_parts(options: TaskOptions, systems: Mapping[str, str], chats: Chats) -> Parts:
    """The parts of a run; raises UserError for what can't be built.

    `systems` are classes of the task's own by the names that they have in its options.
    """
    name = options.system
    if ":" not in name and name not in (*systems, *names()):
        raise UserError(
            f"--system {name}: no memory system is called that here (there are:"
            f" {', '.join(sorted((*systems, *names())))}); your own is named package.module:Class"
        )
    parts = Parts(options, systems.get(name, name), chats)
    parts.system().close()  # so that a faulty setting is told before anything else is done
    return parts
