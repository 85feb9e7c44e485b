"""Options of the commands on stores."""

from __future__ import annotations

from typing import Annotated

import typer

Address = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Milvus server of the store. $MILVUS_TOKEN is sent to this address alone.",
    ),
]
EmbeddingModel = Annotated[
    str,
    typer.Option(
        "--model", metavar="NAME", help="Embedding model: packaged name, folder or hub name."
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|none",
        help="Embedding store. Default: $RECALLBED_STORE, else in the user's cache folder.",
    ),
]
