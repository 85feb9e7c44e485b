"""`python -m indexes.copy STORE --to ADDRESS`: a store into Milvus, past one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False)
SAMPLED = 50


@app.command()
def copy(
    store: Annotated[Path, typer.Argument(help="Folder made by indexes.build.")],
    to: Annotated[str, typer.Option("--to", help="http://host:port of a server, or FILE.db.")],
    collection: Annotated[str, typer.Option(help="Name of the collection there.")] = "memories",
    model: Annotated[
        str, typer.Option(help="What encodes the texts of a bm25s store.")
    ] = "all-MiniLM-L6-v2",
) -> None:
    """Copy ids, vectors and texts into a collection, and check that searches there agree.

    What is there already is skipped, so a copy that was stopped goes on. The token of a server is
    taken from $MILVUS_TOKEN.
    """
    from corpus.errors import DataError
    from harness.cli import one_line_errors

    with one_line_errors(DataError, OSError, on_stop="what was sent is there; run it again"):
        _copy(store, to, collection, model)


def _copy(path: Path, address: str, collection: str, model: str) -> None:
    import numpy as np

    from harness.errors import UserError
    from harness.progress import progress
    from indexes.embedding_store import EmbeddingStore, choose_store
    from indexes.encoder import Encoder
    from indexes.memory_store import MemoryStore
    from indexes.milvus import Milvus

    store = MemoryStore(path)
    if store.header.model is None:
        place = choose_store(None)
        encoder = Encoder(model, store=EmbeddingStore(place) if place else None)
    else:
        encoder, model = store.encoder(), store.header.model
    target = Milvus(encoder.width, model, address, collection)
    before = len(target)
    sent = 0
    sample: list[Any] = []
    with progress("copying", store.header.count) as advance:
        for memories in store.all_memories():
            held = target.held([memory.id for memory in memories])
            left = [memory for memory in memories if memory.id not in held]
            if left:
                vectors, _ = encoder.encode([memory.text for memory in left])
                texts = [memory.text for memory in left]
                target.add(np.array([memory.id for memory in left], np.int64), vectors, texts)
            sent += len(left)
            sample += memories[:: max(1, store.header.count // SAMPLED)]
            advance(len(memories))
    if len(target) < store.header.count:
        raise UserError(
            f"{address}: holds {len(target)} memories after the copy, not {store.header.count}."
            " Run it again"
        )
    vectors, _ = encoder.encode([memory.text for memory in sample[:SAMPLED]])
    agree = _agreement(store.index, target, vectors)
    print(f"{address}: {collection} holds {len(target)} memories, {sent} new, {before} before")
    if agree is not None:
        print(f"{len(vectors)} sampled searches: {agree:.3f} of the ten best are the same on both")
    target.close()


def _agreement(source: Any, target: Any, vectors: Any) -> float | None:
    """The share of the source's ten best that the target finds too; None for another kind."""
    if source.kind == "bm25s":
        return None
    shares = [
        len(set(one.ids.tolist()) & set(other.ids.tolist())) / max(len(one.ids), 1)
        for one, other in zip(source.search(vectors, 10), target.search(vectors, 10), strict=True)
    ]
    return sum(shares) / len(shares)


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
