"""Options of every run of a memory system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from recallbed.chat_models.session import ChatModelName, ChatOptions
from recallbed.corpus.options import DataOptions
from recallbed.errors import UserError
from recallbed.harness.options import AsJson, Seed
from recallbed.harness.run_options import RunOptions
from retrievers.options import OneRetrieverOptions


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """A memory system, what it stands on, and the rows it works on.

    `retrievers.chosen` is the label of its retriever; the other retrievers are legs.
    """

    PANEL: ClassVar[str] = "Memory system"
    system: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="{memory_systems}; extractive (tasks 1 and 4), copy or replace (task 2); or your"
            " own as package.module:Class.",
        ),
    ]
    system_set: Annotated[
        tuple[str, ...],
        typer.Option(metavar="KEY=VALUE", help="A setting of the system. May be repeated."),
    ] = ()
    chat_model: ChatModelName = None
    retrievers: OneRetrieverOptions = OneRetrieverOptions(("bm25",))
    data: DataOptions = DataOptions()
    seed: Seed = 0
    run: RunOptions = RunOptions()
    chat: ChatOptions = ChatOptions()
    as_json: AsJson = False

    @property
    def system_settings(self) -> Mapping[str, str]:
        """By key; raises UserError for a malformed setting or one that is set twice."""
        found: dict[str, str] = {}
        for word in self.system_set:
            key, equals, value = word.partition("=")
            if not (equals and key):
                raise UserError(f"--system-set {word}: write it as KEY=VALUE")
            if key in found:
                raise UserError(f"--system-set {word}: `{key}` is set twice")
            found[key] = value
        return found
