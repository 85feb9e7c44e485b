"""Chat models of one command, by name: they share a reply cache, a budget and prices."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from recallbed.chat_models.base import ChatModel
from recallbed.chat_models.budget import Budget, Prices, read_prices
from recallbed.chat_models.cache import ReplyCache, Stored, choose_cache
from recallbed.chat_models.dry_run import DryRun
from recallbed.chat_models.sent_options import read_extra_body, read_temperature
from recallbed.errors import UserError
from recallbed.harness.plan import Plan
from recallbed.harness.terminal import note

ChatModelName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Chat model: openai:MODEL, local:smollm2 or local:FILE.gguf.",
        rich_help_panel="Chat model",
    ),
]


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Options of chat models, as they were typed."""

    PANEL: ClassVar[str] = "Chat model"
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Server of models named openai:MODEL. Default: $RECALLBED_BASE_URL, else"
            " $OPENAI_BASE_URL, else OpenAI.",
        ),
    ] = None
    replies: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|none",
            help="Reply cache. Default: $RECALLBED_REPLIES, else in the user's cache folder.",
        ),
    ] = None
    temperature: Annotated[
        str | None,
        typer.Option(
            metavar="none|NUMBER",
            help="Temperature of every request; none leaves it out, for models that refuse it."
            " Default: 0, and 0.7 for several votes.",
        ),
    ] = None
    extra_body: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE",
            help="Fields added to every request to a server, such as"
            """ '{"chat_template_kwargs": {"enable_thinking": false}}'.""",
        ),
    ] = None
    max_tokens_total: Annotated[
        int | None, typer.Option(help="Token budget; the run stops before it and can be resumed.")
    ] = None
    max_cost: Annotated[
        float | None, typer.Option(help="Cost budget; the run stops before it and can be resumed.")
    ] = None
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prices by model per million tokens: .toml or .json."),
    ] = None
    dry_run: Annotated[bool, typer.Option(help="Send nothing; print calls, tokens and cost.")] = (
        False
    )
    in_flight: Annotated[int, typer.Option(min=1, help="Concurrent calls; changes no result.")] = 8
    requests_per_minute: Annotated[
        float | None, typer.Option(help="Most calls started per minute.")
    ] = None
    timeout: Annotated[float, typer.Option(help="Seconds allowed for a whole call.")] = 120.0
    context: Annotated[
        int | None,
        typer.Option(min=1, help="Context window in tokens, if the server does not report one."),
    ] = None
    retries: Annotated[
        int,
        typer.Option(
            min=0,
            help="Retries per failed call. A run stops, and can be resumed, if its first 20"
            " requests fail in spite of them.",
        ),
    ] = 5
    first_wait: float = 1.0


class _CountingCache(ReplyCache):
    """Records the keys of replies from the cache and of requested ones."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.cached: set[bytes] = set()
        self.asked: set[bytes] = set()

    def get(self, key: bytes) -> Stored | None:
        """Return the reply under `key`, counted unless this command requested it."""
        found = super().get(key)
        if found is not None and key not in self.asked:
            self.cached.add(key)
        return found

    def put(self, key: bytes, reply: Stored) -> Stored:
        """Store a reply that was requested."""
        self.asked.add(key)
        return super().put(key, reply)


class Chats:
    """Creates one instance of each model that a command names, when it is first named.

    Raise UserError for invalid options.
    """

    def __init__(self, options: ChatOptions = ChatOptions()) -> None:
        self.options = options
        self.budget = Budget(options.max_tokens_total, options.max_cost)
        self.prices = read_prices(options.prices) if options.prices else Prices()
        file = choose_cache(options.replies)
        self.cache = _CountingCache(file) if file else None
        self._sent: dict[str, Any] = {}
        """Options that change every request, if given."""
        if options.temperature is not None:
            self._sent["temperature"] = read_temperature(options.temperature)
        if options.extra_body is not None:
            self._sent["extra_body"] = read_extra_body(options.extra_body)
        self._models: dict[str, ChatModel] = {}

    def __call__(self, name: str) -> ChatModel:
        """Return the model `name` (see `chat_model`); in a dry run one that sends nothing."""
        if name not in self._models:
            given: dict[str, Any] = {
                "base_url": self.options.base_url,
                "cache": self.cache,
                "budget": self.budget,
                "prices": self.prices,
                "max_in_flight": self.options.in_flight,
                "requests_per_minute": self.options.requests_per_minute,
                "timeout": self.options.timeout,
                "context": self.options.context,
                "retries": self.options.retries,
                "first_wait": self.options.first_wait,
                **self._sent,
            }
            known = inspect.signature(model_class(name)).parameters
            model = chat_model(name, **{k: v for k, v in given.items() if k in known})
            if self.options.dry_run:
                model = DryRun(model, self.prices)
            else:
                model.open()
            self._models[name] = model
        return self._models[name]

    def reuse(self) -> str | None:
        """Return a line on cached and requested replies; None if none was cached."""
        cached = len(self.cache.cached) if self.cache else 0
        asked = max(self.budget.spent.calls, len(self.cache.asked) if self.cache else 0)
        return f"replies: {cached} cached, {asked} requested" if cached else None

    def plans(self) -> dict[str, Plan]:
        """Return the plans of a dry run by model."""
        return {n: model.plan() for n, model in self._models.items() if isinstance(model, DryRun)}

    def close(self) -> None:
        """Close all models."""
        for model in self._models.values():
            model.close()


@contextmanager
def open_chats(options: ChatOptions) -> Iterator[Chats]:
    """Open the chat models of a command, and close them at its end."""
    chats = Chats(options)
    try:
        yield chats
    finally:
        chats.close()
    if not options.dry_run and (reuse := chats.reuse()):
        note(reuse)


def model_class(name: str) -> Callable[..., ChatModel]:
    """Return the class of the model `name`. Raise UserError for an unknown name."""
    kind, colon, model = name.partition(":")
    if not (colon and model) or kind not in ("openai", "local"):
        raise UserError(
            f"no chat model `{name}`. Write openai:MODEL, local:smollm2, local:FILE.gguf"
            " or local:FOLDER"
        )
    if kind == "openai":
        from recallbed.chat_models.openai_model import OpenAIModel

        return OpenAIModel
    from recallbed.chat_models.local_model import LocalModel

    return LocalModel


def chat_model(name: str, **options: Any) -> ChatModel:
    """Return the model called `name`, with the options of its class.

    `openai:MODEL` is a model behind an OpenAI-compatible address (see `OpenAIModel`), `local:NAME`
    one on this machine (see `LocalModel`): `smollm2`, a .gguf file, or a transformers folder.
    Raise UserError for another name, and for an unknown option.
    """
    built = model_class(name)
    known = list(signature(built).parameters)[1:]
    for option in options:
        if option not in known:
            raise UserError(f"{name} has no option `{option}` (its options: {', '.join(known)})")
    return built(name.partition(":")[2], **options)
