"""The options that every command with a chat model has, declared once for typer.

`@chat_options` gives them to a command in place of its parameter `chat`:

    @app.command()
    @chat_options
    def run(chat: ChatOptions = DEFAULT_CHAT, out: Annotated[Path, typer.Option()] = ...) -> None:
        ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from recallbed.chat_models.session import ChatOptions

__all__ = ["DEFAULT_CHAT", "ChatOptions", "chat_options"]

DEFAULT_CHAT = ChatOptions()
Result = TypeVar("Result")


def _read(
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where models named openai:MODEL are. Default: $RECALLBED_BASE_URL,"
            " else $OPENAI_BASE_URL, else OpenAI.",
        ),
    ] = None,
    replies: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|none",
            help="Reply cache. Default: $RECALLBED_REPLIES, else in the user's cache folder.",
        ),
    ] = None,
    temperature: Annotated[
        str | None,
        typer.Option(
            metavar="none|NUMBER",
            help="Temperature of every request; none leaves it out, for models that refuse it."
            " Default: 0, and 0.7 for several votes.",
        ),
    ] = None,
    extra_body: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|@FILE",
            help="Fields added to every request to a server, such as"
            """ '{"chat_template_kwargs": {"enable_thinking": false}}'.""",
        ),
    ] = None,
    max_tokens_total: Annotated[
        int | None,
        typer.Option(help="Stop, to be resumed, before more tokens than this are used."),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(help="Stop, to be resumed, before it costs more than this."),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prices by model, for a million tokens: .toml or .json."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Send nothing; print calls, tokens and cost.")
    ] = False,
    in_flight: Annotated[
        int, typer.Option(min=1, help="Calls under way at once; changes no result.")
    ] = 8,
    requests_per_minute: Annotated[
        float | None, typer.Option(help="Most calls started in a minute.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for the whole of a call.")] = 120.0,
    retries: Annotated[
        int,
        typer.Option(
            min=0,
            help="Retries per failed call. A run ends, to be resumed, if its first 20 requests"
            " fail in spite of them.",
        ),
    ] = 5,
    context: Annotated[
        int | None,
        typer.Option(min=1, help="Context window in tokens, if the server does not report one."),
    ] = None,
) -> ChatOptions:
    return ChatOptions(
        base_url=base_url,
        replies=replies,
        temperature=temperature,
        extra_body=extra_body,
        max_tokens_total=max_tokens_total,
        max_cost=max_cost,
        prices=prices,
        dry_run=dry_run,
        in_flight=in_flight,
        requests_per_minute=requests_per_minute,
        timeout=timeout,
        retries=retries,
        context=context,
    )


def chat_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """`command(chat, **its own)` as typer should see it, with all options above for `chat`."""
    own = inspect.signature(command, eval_str=True).parameters
    shared = inspect.signature(_read, eval_str=True).parameters
    shown: list[inspect.Parameter] = []
    for name, parameter in own.items():
        shown += shared.values() if name == "chat" else [parameter]

    def outer(**given: Any) -> Result:
        chat = _read(**{name: given.pop(name) for name in shared if name in given})
        return command(chat=chat, **given)

    outer.__doc__, outer.__name__ = command.__doc__, command.__name__
    outer.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return outer
