"""`python -m indexes.store show` and `prune`: the content of the embedding store."""

from __future__ import annotations

from collections.abc import Sized
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexes.options import Store
from recallbed.harness.app import App
from recallbed.harness.options import AsJson

if TYPE_CHECKING:
    from indexes.embedding_store import EmbeddingStore, Space

app = App(no_args_is_help=True, help="Show or prune the embedding store.")


def _open(named: str | None) -> EmbeddingStore:
    from indexes.embedding_store import EmbeddingStore, store_path
    from recallbed.errors import UserError

    path = store_path(named)
    if path is None:
        raise UserError("no embedding store is in use. Give --store FILE")
    if not path.exists():
        raise UserError(f"{path}: no embedding store exists here yet")
    return EmbeddingStore(path)


def _describe(space: Space, models: dict[str, list[str]]) -> dict[str, Any]:
    import json
    from datetime import UTC, datetime

    name = json.loads(space.name)
    return {
        "models": models.get(name.get("weights"), []),
        "weights": name.get("weights"),
        "max_tokens": name.get("max_tokens"),
        "device": name.get("device"),
        "torch": name.get("libraries", {}).get("torch"),
        "width": space.width,
        "vectors": space.vectors,
        "bytes": space.bytes,
        "last_used": datetime.fromtimestamp(space.used, UTC).isoformat(timespec="seconds"),
    }


def _count(spaces: Sized) -> str:
    return "1 space" if len(spaces) == 1 else f"{len(spaces)} spaces"


@app.command(examples=("recallbed store show", "recallbed store show --store FILE --json"))
def show(store: Store = None, as_json: AsJson = False) -> None:
    """List the spaces of the embedding store.

    A space is a model with all that changes its vectors.
    """
    from recallbed.harness.fingerprint import canonical
    from recallbed.harness.terminal import say, say_json

    opened = _open(store)
    spaces = [_describe(space, opened.models()) for space in opened.spaces()]
    size = opened.path.stat().st_size
    if as_json:
        say_json(canonical({"store": str(opened.path), "file_bytes": size, "spaces": spaces}))
        return
    say(f"{opened.path}: {size / 2**20:.1f} MiB, {_count(spaces)}")
    for space in spaces:
        torch = f", torch {space['torch']}" if space["torch"] else ""
        say(
            f"  {', '.join(space['models'])} ({space['weights']}):"
            f" {space['vectors']} vectors of {space['width']},"
            f" {space['bytes'] / 2**20:.1f} MiB, up to {space['max_tokens']} tokens,"
            f" {space['device']}{torch}, last used {space['last_used']}"
        )


@app.command(
    examples=(
        "recallbed store prune --older-than 30",
        "recallbed store prune --model all-MiniLM-L6-v2",
    )
)
def prune(
    store: Store = None,
    older_than: Annotated[
        int | None, typer.Option(min=0, metavar="DAYS", help="Remove spaces unused for longer.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Embedding model: packaged name, folder or hub name."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Remove all spaces.")] = False,
) -> None:
    """Remove spaces of the embedding store with all their vectors.

    Takes one of three criteria; --model also takes a hash of weights, as `show` prints it.
    """
    import time

    from recallbed.errors import UserError
    from recallbed.harness.terminal import say

    if sum((older_than is not None, model is not None, everything)) != 1:
        raise UserError("give what to remove: --older-than DAYS, --model NAME or --all")
    opened = _open(store)
    models = opened.models()

    def falls(space: Space) -> bool:
        if older_than is not None:
            return space.used < time.time() - older_than * 86400
        about = _describe(space, models)
        return everything or model in (about["weights"], *about["models"])

    chosen = [space for space in opened.spaces() if falls(space)]
    before = opened.path.stat().st_size
    opened.remove([space.id for space in chosen])
    freed = before - Path(opened.path).stat().st_size
    vectors = sum(space.vectors for space in chosen)
    say(f"removed {_count(chosen)}, {vectors} vectors, {freed / 2**20:.1f} MiB")


if __name__ == "__main__":
    app()
