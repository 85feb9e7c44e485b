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
    """A memory system, its retriever and chat model, and the rows of the run.

    `retrievers.chosen` is the label of its retriever; the other retrievers are legs.
    """

    PANEL: ClassVar[str] = "Memory system"
    system: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="{memory_systems}; extractive (tasks 1 and 4), copy or replace (task 2); one that"
            " recallbed install-system lists, which can also search itself (--retriever own); or"
            " your own as package.module:Class.",
        ),
    ]
    system_set: Annotated[
        tuple[str, ...],
        typer.Option(metavar="KEY=VALUE", help="Setting of the system. May be repeated."),
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
        """The settings by key. Raises UserError for one that is malformed or set twice."""
        found: dict[str, str] = {}
        for given in self.system_set:
            key, equals, value = given.partition("=")
            if not (equals and key):
                raise UserError(f"--system-set {given}: write it as KEY=VALUE")
            if key in found:
                raise UserError(f"--system-set {given}: `{key}` is set twice")
            found[key] = value
        return found
