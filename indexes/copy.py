"""`python -m indexes.copy STORE --to ADDRESS`: copy a store to Milvus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from indexes.options import EmbeddingModel
from recallbed.harness.app import App

if TYPE_CHECKING:
    from indexes.base import Index, Vectors
    from indexes.encoder import Encoder
    from indexes.indexed_store import IndexedStore, StoredMemory
    from indexes.milvus import Milvus

app = App()
SAMPLED = 50
AGREE = 0.9
_ROUNDING = 1e-4  # a vector made in another batch, or on another machine, differs by less


@app.command(
    on_stop="memories that were sent stay there; run it again",
    examples=(
        "recallbed index copy store --to http://localhost:19530",
        "recallbed index copy store --to copy.db --collection mine",
    ),
)
def copy(
    store: Annotated[Path, typer.Argument(help="Folder of `recallbed index build`.")],
    to: Annotated[
        str, typer.Option(metavar="URL|FILE.db", help="Server, as http://host:port, or a file.")
    ],
    collection: Annotated[
        str, typer.Option(metavar="NAME", help="Collection to copy to.")
    ] = "memories",
    model: EmbeddingModel = "all-MiniLM-L6-v2",
) -> None:
    """Copy a store into a Milvus collection.

    Copies ids, vectors and texts, then checks that searches agree. Ids that are there already are
    skipped, so that an interrupted copy can be continued; a sample of them is compared with the
    source. The token of a server is taken from $MILVUS_TOKEN. --model encodes the texts of a bm25s
    store.
    """
    from indexes.indexed_store import IndexedStore, encoder_of
    from indexes.milvus import Milvus
    from recallbed.harness.terminal import say

    source = IndexedStore(store, to)
    named = source.header.model
    with encoder_of(model) if named is None else source.encoder() as encoder:
        target = Milvus(encoder.width, named or model, to, collection)
        before = len(target)
        sent, sample = _send(source, encoder, target)
        vectors, _ = encoder.encode([memory.text for memory in sample])
    agree = _verify(source, target, sample, vectors)
    say(f"{to}: {collection} holds {len(target)} memories, {sent} new, {before} before")
    if agree is not None:
        say(f"{len(sample)} sampled searches: {agree:.3f} of the ten best hits are equal")
    target.close()


def _send(store: IndexedStore, encoder: Encoder, target: Milvus) -> tuple[int, list[StoredMemory]]:
    """Add the missing memories; return their number and a sample of all."""
    import numpy as np

    from recallbed.harness.progress import progress

    sent, done, sample = 0, 0, []
    step = -(-store.header.count // SAMPLED)
    with progress("copying", store.header.count) as advance:
        for memories in store.all_memories():
            held = target.held([memory.id for memory in memories])
            left = [memory for memory in memories if memory.id not in held]
            if left:
                texts = [memory.text for memory in left]
                vectors, _ = encoder.encode(texts)
                target.add(np.array([memory.id for memory in left], np.int64), vectors, texts)
            sent += len(left)
            sample += memories[-done % step :: step]
            done += len(memories)
            advance(len(memories))
    return sent, sample


def _verify(
    store: IndexedStore, target: Milvus, sample: Sequence[StoredMemory], vectors: Vectors
) -> float | None:
    """The share of equal hits in sampled searches, None for a lexical source.

    Raises UserError if rows are missing or differ, or if the searches of an exact source differ too
    much.
    """
    from recallbed.errors import UserError

    address, count = target.address, len(target)
    if count < store.header.count:
        raise UserError(
            f"{address}: holds {count} memories after the copy, not {store.header.count}."
            " Run it again"
        )
    held = target.rows([memory.id for memory in sample])
    for memory, vector in zip(sample, vectors, strict=True):
        text, kept = held.get(memory.id, (None, vector))
        if text != memory.text or abs(kept - vector).max() > _ROUNDING:
            raise UserError(
                f"{address}: id {memory.id} of the collection `{target.collection}` has another"
                " text or vector than in the store. Give another --collection"
            )
    agree = _agreement(store.index, target, vectors)
    alone = count == store.header.count  # otherwise other memories may rank higher
    if agree is not None and store.index.exact and alone and agree < AGREE:
        raise UserError(
            f"{address}: only {agree:.3f} of the best ten of {len(sample)} searches are those of"
            " the store. Is the index there still being built? Run it again"
        )
    return agree


def _agreement(source: Index[Any], target: Milvus, vectors: Vectors) -> float | None:
    """The share of the source's ten best hits that the target finds; None for a lexical source.

    A hit counts as found if the target's hits score as high, as with many equal texts.
    """
    import numpy as np

    if source.kind == "bm25s":
        return None
    shares = []
    for one, other in zip(source.search(vectors, 10), target.search(vectors, 10), strict=True):
        worst = other.scores[-1] if len(other.scores) == len(one.scores) else -np.inf
        found = np.isin(one.ids, other.ids) | (one.scores <= worst + _ROUNDING)
        shares.append(float(found.mean()))
    return sum(shares) / len(shares)


if __name__ == "__main__":
    app()
