"""The options that every command with a chat model has, declared once for typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        help="Where models named openai:MODEL are. Default: $RECALLBED_BASE_URL,"
        " else $OPENAI_BASE_URL, else OpenAI.",
    ),
]
Replies = Annotated[
    str | None,
    typer.Option(
        "--replies",
        metavar="FILE|none",
        help="Reply cache. Default: $RECALLBED_REPLIES, else in the user's cache folder.",
    ),
]
MaxTokensTotal = Annotated[
    int | None,
    typer.Option(
        "--max-tokens-total", help="Stop, to be resumed, before more tokens than this are used."
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", help="Stop, to be resumed, before it costs more than this."),
]
PriceTable = Annotated[
    Path | None,
    typer.Option(
        "--prices", metavar="FILE", help="Prices by model, for a million tokens: .toml or .json."
    ),
]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="Send nothing; print calls, tokens and cost.")
]
InFlight = Annotated[
    int, typer.Option("--in-flight", min=1, help="Calls under way at once; changes no result.")
]
