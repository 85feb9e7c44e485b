"""`python -m indexes.search STORE "query"`: the best memories of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from indexes.options import Address
from recallbed.harness.app import App
from recallbed.harness.options import AsJson

app = App()


@app.command(
    examples=(
        'recallbed index search store "Which tea do I like?"',
        "recallbed index search store --queries queries.jsonl --top 10 --json",
    )
)
def search(
    store: Annotated[Path, typer.Argument(help="Folder of `recallbed index build`.")],
    query: Annotated[str | None, typer.Argument(help="Text to search for.")] = None,
    queries: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='Many queries: a .jsonl of {"query": ...} lines.'),
    ] = None,
    k: Annotated[
        int, typer.Option("--top", "-k", "--k", metavar="N", help="Memories per query.")
    ] = 5,
    by: Annotated[
        Literal["vectors", "text", "both"], typer.Option(help="What a milvus store is searched by.")
    ] = "vectors",
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Search a store of memories.

    Prints rank, score, id and text of the best memories, best first; with --json one object per
    query.
    """
    import json
    from collections import Counter

    from indexes.indexed_store import IndexedStore
    from recallbed.corpus.jsonl import Fields, Repairs, read_jsonl
    from recallbed.errors import UserError
    from recallbed.harness.input_text import clean_text
    from recallbed.harness.terminal import one_line, say, say_json

    if (query is None) == (queries is None):
        raise UserError("give either a query or --queries FILE")
    if query is not None:
        asked = [clean_text(query, Counter())]
    elif queries is not None:
        repairs = Repairs()
        lines = read_jsonl(queries, repairs)
        asked = [Fields(queries, line, repairs).text(value, "query") for line, value in lines]
    opened = IndexedStore(store, address)
    if address is not None and getattr(opened.index, "address", None) != address:
        raise UserError(f"{store}: not at {address}. Give the address it was built with")
    for text, hits in zip(asked, _search(opened, asked, k, by), strict=True):
        memories = opened.texts([int(i) for i in hits.ids])
        rows = [
            {"id": int(i), "score": round(float(score), 6), "text": memories[int(i)].text}
            for i, score in zip(hits.ids, hits.scores, strict=True)
        ]
        if as_json:
            found = {"query": text, "hits": rows}
            say_json(json.dumps(found, ensure_ascii=False))
            continue
        if len(asked) > 1:
            say(f"# {one_line(text)}")
        for rank, row in enumerate(rows, 1):
            say(f"{rank:>3}  {row['score']:.4f}  {row['id']}  {one_line(row['text'])}")
        if not rows:
            say("  nothing matches")


def _search(store: Any, asked: Sequence[str], k: int, by: str) -> Any:
    from indexes.base import no_hits
    from recallbed.errors import UserError
    from recallbed.harness.progress import progress

    index = store.index
    if index.kind == "bm25s":
        return index.search(asked, k)
    if by != "vectors" and index.kind != "milvus":
        raise UserError(f"--by {by}: needs a store of kind milvus, not {index.kind}")
    if by == "text":
        return index.search_text(asked, k)
    many = len(asked) if len(asked) > 1 else 0
    with store.encoder() as encoder, progress("encoding", many) as advance:
        vectors, _ = encoder.encode(asked, advance, role="query")
    if by == "both":
        return index.search_hybrid(vectors, asked, k)
    # A vector of zeros scores 0 with every memory, which is no hit.
    pairs = zip(index.search(vectors, k), vectors, strict=True)
    return [hits if vector.any() else no_hits() for hits, vector in pairs]


if __name__ == "__main__":
    app()
