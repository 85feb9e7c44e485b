"""Options of commands that run retrievers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from indexes.options import Store
from recallbed.errors import UserError
from recallbed.harness.configurations import Configuration, parse_configurations
from recallbed.harness.options import AllowCode, Parsed, parse_size

if TYPE_CHECKING:
    from recallbed.chat_models import ChatModel
    from recallbed.corpus.records import Memory
    from retrievers.base import RunContext


@dataclass(frozen=True)
class RetrieverOptions:
    """Which retrievers, with which settings, as they were typed.

    `max_memory` bounds the bytes of embeddings held in memory.
    """

    PANEL: ClassVar[str] = "Retrievers"
    retriever: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="[LABEL=]NAME",
            help="{retrievers}, or your own as package.module:Class. May be repeated.",
        ),
    ] = ()
    setting: Annotated[
        tuple[str, ...],
        typer.Option(
            "--set",
            metavar="LABEL.KEY=VALUE",
            help="A retriever's setting, or @FILE for a file of settings. May be repeated.",
        ),
    ] = ()
    allow_code: AllowCode = False
    store: Store = None
    max_memory: Annotated[
        int | None,
        typer.Option(
            metavar="SIZE",
            help="Most embeddings held in memory, such as 512MB; others stay on disk.",
        ),
        Parsed(parse_size),
    ] = None
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen", help="Leave out the rows of sessions that a retriever was trained on."
        ),
    ] = False

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """The retrievers by label; raises UserError for a malformed one, or if there is none."""
        return parse_configurations(self.retriever, self.setting, self.allow_code)

    def context(
        self,
        seed: int,
        bank: Sequence[Memory] = (),
        chats: Callable[[str], ChatModel] | None = None,
    ) -> RunContext:
        """What the run offers its retrievers."""
        from retrievers.base import RunContext

        # Workers get a copy of the context, so it holds no local function.
        return RunContext(seed, bank, partial(_store, self.store), self.max_memory, chats=chats)


@dataclass(frozen=True)
class OneRetrieverOptions(RetrieverOptions):
    """Retrievers of which one is used; the others are its legs."""

    label: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL", help="The retriever to use, if others are named as its legs."
        ),
    ] = None

    @property
    def chosen(self) -> str:
        """The label of the one that is used; raises UserError if that is not clear."""
        labels = [one.label for one in self.configurations]
        if self.label is None and len(labels) > 1:
            raise UserError(
                f"--retriever: this command uses one of {', '.join(labels)}."
                " Pass --label LABEL; the others are its legs"
            )
        if self.label is not None and self.label not in labels:
            raise UserError(
                f"--label {self.label}: no retriever has it (labels: {', '.join(labels)})"
            )
        return self.label or labels[0]


def _store(named: str | None) -> Path | None:
    from indexes.embedding_store import choose_store

    return choose_store(named)
