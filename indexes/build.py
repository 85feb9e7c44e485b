"""`python -m indexes.build MEMORIES.jsonl --out STORE`: a store of memories with an index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from indexes.options import Address, EmbeddingModel
from recallbed.harness.app import App
from recallbed.harness.run_options import Overwrite

app = App()


@app.command(
    examples=(
        "recallbed index build memories.jsonl --out store",
        "recallbed index build memories.jsonl --out store --kind hnsw",
    )
)
def build(
    memories: Annotated[
        Path, typer.Argument(help='One memory per line: {"text": ..., "id": ..., "label": ...}.')
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Store to write.")],
    kind: Annotated[
        Literal["auto", "flat", "hnsw", "ivfpq", "bm25s", "milvus"],
        typer.Option(help="Kind of index."),
    ] = "auto",
    model: EmbeddingModel = "all-MiniLM-L6-v2",
    address: Address = None,
    overwrite: Overwrite = False,
) -> None:
    """Build a searchable store of memories.

    An older store stays until the new one is whole. bm25s needs no --model. A milvus store is a
    file in its folder unless --address is given.
    """
    import secrets
    import time

    import numpy as np

    from indexes.base import kind_for, make_index
    from indexes.indexed_store import (
        INDEX,
        MILVUS,
        StoreHeader,
        encode_all,
        encoder_of,
        read_memories,
        replacing,
        write_header,
        write_texts,
    )
    from recallbed.errors import UserError
    from recallbed.harness.progress import progress
    from recallbed.harness.terminal import note, say

    if address and kind != "milvus":
        raise UserError("--address requires --kind milvus")
    if out.exists() and not overwrite:
        raise UserError(f"{out} already exists. Pass --overwrite, or another --out")
    read = read_memories(memories)
    chosen = kind_for(len(read)) if kind == "auto" else kind
    texts = [memory.text for memory in read]
    ids = np.array([memory.id for memory in read], np.int64)
    build_id = secrets.token_hex(8)
    started = time.perf_counter()
    with replacing(out) as draft:
        if chosen == "bm25s":
            index = make_index(chosen)
            index.build(ids, texts)
            header = StoreHeader(chosen, len(ids), build=build_id)
        else:
            with encoder_of(model) as encoder:
                settings: dict[str, Any] = {"width": encoder.width, "model": model}
                if chosen == "milvus":
                    settings["address"] = address or str(draft / MILVUS)
                    settings["collection"] = "memories" if address is None else out.name
                index = make_index(chosen, len(ids), **settings)
                if len(index):
                    raise UserError(
                        f"{settings['address']}: the collection `{settings['collection']}` is not"
                        " empty. Drop it, or build under another name"
                    )
                with progress("encoding", len(texts)) as advance:
                    vectors = encode_all(encoder, texts, draft / "vectors.npy", advance)
                weights, prompt = encoder.weights, encoder.prompts["memory"]
            zero = [i for i, vector in enumerate(vectors) if not vector.any()]
            if zero:
                note(
                    f"{len(zero)} of {len(ids)} memories have a vector of zeros (first: id"
                    f" {ids[zero[0]]}): the model knows no token of their text. They score 0"
                )
            if chosen == "milvus":
                index.add(ids, vectors, texts)  # type: ignore[attr-defined]
            else:
                index.build(ids, vectors)
            header = StoreHeader(
                *(chosen, len(ids), model, weights, vectors.shape[1], build_id),
                memory_prompt=prompt,
            )
            (draft / "vectors.npy").unlink()
        index.save(draft / INDEX)
        if chosen == "milvus":
            index.close()  # type: ignore[attr-defined]
        write_texts(draft, read, build_id)
        write_header(draft, header)
    seconds = time.perf_counter() - started
    say(f"{out}: {len(ids)} memories, index {chosen}, {seconds:.1f} s")


if __name__ == "__main__":
    app()
