"""What a memory store costs: one user whose memories grow in number, then many users.

    HF_HUB_OFFLINE=1 python benchmarks/memory_store.py [--data DIR] [--sizes 100,1000,10000]
        [--users 1000] [--each 100] [--retrievers bm25,minilm] [--count 200] [--rounds 3]
        [--vectors FILE] [--json FILE] [--plot FILE]

Each store is a file, and each add and update a transaction of its own that is on the disk when it
returns, unless it says otherwise. An update reads the user's memories first, as a memory system
does. A search is `memory_systems.attempt.rank`, k = 10, over the stored memories. "Opened"
is a process's first: the store reads all memories, and the retriever makes the terms of all texts
or reads their vectors from the embedding store. That was filled beforehand (`--vectors` keeps it)
with the texts up to the largest size: new queries and added memories are encoded by the model.

Single operations give the median of --count, and searches p95 as well; what can be done once a
store only gives the median of --rounds stores. Texts are spliced from two halves of bank texts, all
distinct; the many users draw theirs from the first 100 x --each. Queries are the real ones of the
split. All of it is seeded.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from index import texts_of  # the script beside this one

from memory_systems.attempt import rank
from memory_systems.base import Action, Operation
from memory_systems.store import MemoryStore
from recallbed.corpus import sample_root
from recallbed.corpus.dataset import load_dataset
from recallbed.corpus.records import Memory, MemoryItem
from recallbed.harness.configurations import Configuration
from retrievers import build_retriever
from retrievers.base import Retriever, RunContext
from retrievers.dense import Dense

K = 10
Row = dict[str, Any]


def distinct_texts(bank: Sequence[str], count: int) -> list[str]:
    found: dict[str, None] = {}
    seed = 0
    while len(found) < count:
        found |= dict.fromkeys(texts_of(bank, 2 * count, seed))
        seed += 1
    return list(found)[:count]


def adds(texts: Sequence[str]) -> list[Operation]:
    return [Operation(Action.ADD, after=MemoryItem(text, label="Made/Up")) for text in texts]


def milliseconds(work: Callable[..., Any], *given: Any) -> float:
    start = time.perf_counter()
    work(*given)
    return (time.perf_counter() - start) * 1000


def update_one(store: MemoryStore, user: str, rng: random.Random) -> None:
    """Read, decide, write."""
    old = rng.choice(store.memories(user))
    store.apply(user, [Operation(Action.UPDATE, old, replace(old, text=old.text + " too"))])


@contextmanager
def fresh(in_memory: bool = False) -> Iterator[MemoryStore]:
    with tempfile.TemporaryDirectory() as folder:
        store = MemoryStore(None if in_memory else Path(folder) / "memories.sqlite")
        yield store
        store.close()


def on_disk(store: MemoryStore) -> int:
    store.close()  # which brings the journal in
    return store.path.stat().st_size


def one_user(texts: Sequence[str], size: int, count: int, rounds: int) -> Row:
    """The store alone: `size` memories in one batch, then single operations on them."""
    rng, once, single = random.Random(size), [], []
    for _ in range(rounds):
        with fresh() as store, fresh(in_memory=True) as light:
            filled = milliseconds(store.apply, "ana", adds(texts[:size]))
            light.apply("ana", adds(texts[:size]))
            bytes_each = on_disk(store) / size
            reader = MemoryStore(store.path)
            once.append((size / filled * 1000, milliseconds(reader.memories, "ana"), bytes_each))
            for text in texts[size : size + count // rounds]:
                single.append(
                    (
                        milliseconds(store.apply, "ana", adds([text])),
                        milliseconds(light.apply, "ana", adds([text])),
                        milliseconds(update_one, store, "ana", rng),
                        milliseconds(reader.memories, "ana"),
                    )
                )
            reader.close()
    names = (
        *("batch_adds_s", "opened_ms", "bytes_a_memory"),
        *("add_ms", "add_in_memory_ms", "update_ms", "read_ms"),
    )
    figures = [*zip(*once, strict=True), *zip(*single, strict=True)]
    medians = map(statistics.median, figures)
    return {"size": size, **dict(zip(names, medians, strict=True))}


def search_one(
    retriever: Retriever, texts: Sequence[str], more: Sequence[str], queries: Sequence[str]
) -> Row:
    """A retriever over one user's memories, from a process's first search on; `more` come later."""
    with fresh() as filled:
        filled.apply("ana", adds(texts))
        store = MemoryStore(filled.path)

        def search(query: str) -> float:
            return milliseconds(lambda: rank(retriever, query, store.memories("ana"), K))

        opened = search(warm(retriever))
        new = [search(query) for query in queries]
        again = [search(query) for query in queries]
        grown = []
        for text, query in zip(more, itertools.cycle(queries), strict=False):
            store.apply("ana", adds([text]))
            grown.append(search(query))
        store.close()
    found = percentiles(new, again)
    return {"size": len(texts), "opened_ms": opened, **found, "after_add_ms": p50(grown)}


def warm(retriever: Retriever) -> str:
    """A query that is known then: libraries and the model come up before the clock runs."""
    query = "What was there first?"
    retriever.score(query, [Memory("Nothing to do with it")])
    return query


def percentiles(new: Sequence[float], again: Sequence[float]) -> Row:
    low, high = np.percentile(new, (50, 95))
    return {"new_p50_ms": float(low), "new_p95_ms": float(high), "again_p50_ms": p50(again)}


def p50(values: Sequence[float]) -> float:
    return statistics.median(values)


def many_users(texts: Sequence[str], users: int, each: int, count: int) -> Row:
    """`users` with `each` memories; every single operation is on a user drawn by chance."""
    rng = random.Random(users)
    with fresh() as store:
        names, filled = crowd(store, texts, users, each)
        size = on_disk(store)
        single = [
            (
                milliseconds(store.apply, rng.choice(names), adds([rng.choice(texts)])),
                milliseconds(update_one, store, rng.choice(names), rng),
                milliseconds(store.memories, rng.choice(names)),
            )
            for _ in range(count)
        ]
    add, update, read = map(p50, zip(*single, strict=True))
    return {
        "users": users,
        "each": each,
        "batch_adds_s": users * each / filled,
        "bytes_a_memory": size / (users * each),
        "add_ms": add,
        "update_ms": update,
        "read_ms": read,
    }


def search_many(
    retriever: Retriever, texts: Sequence[str], users: int, each: int, queries: Sequence[str]
) -> Row:
    """Each query over another user's memories, whose texts the process has had before."""
    rng = random.Random(users)
    with fresh() as store:
        names, _ = crowd(store, texts, users, each)
        warm(retriever)
        retriever.prepare([], [Memory(text) for text in texts])

        def search(query: str) -> float:
            user = rng.choice(names)
            return milliseconds(lambda: rank(retriever, query, store.memories(user), K))

        new = [search(query) for query in queries]
        return percentiles(new, [search(query) for query in queries])


def crowd(
    store: MemoryStore, texts: Sequence[str], users: int, each: int
) -> tuple[list[str], float]:
    """The names of the users, each filled in a batch, and the seconds that took."""
    rng, names = random.Random(each), [f"user {i}" for i in range(users)]
    drawn = [rng.sample(texts, each) for _ in names]
    start = time.perf_counter()
    for name, mine in zip(names, drawn, strict=True):
        store.apply(name, adds(mine))
    return names, time.perf_counter() - start


def retriever_called(name: str, vectors: Path) -> Retriever:
    return build_retriever(Configuration(name, name, {}), RunContext(store=vectors))


@contextmanager
def filled_once(name: str, vectors: Path) -> Iterator[Retriever]:
    """A retriever with a copy of the embedding store of its own, so that new texts stay new."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "vectors.sqlite"
        if vectors.exists():
            shutil.copy(vectors, copy)
        yield retriever_called(name, copy)


def store_vectors(name: str, vectors: Path, texts: Sequence[str]) -> None:
    """Put the vectors of `texts` into the embedding store, where the retriever makes any."""
    retriever = retriever_called(name, vectors)
    warm(retriever)
    seconds = milliseconds(retriever.prepare, [], [Memory(text) for text in texts]) / 1000
    print(f"{name}: {len(texts)} texts prepared, {len(texts) / seconds:,.0f} a second", flush=True)
    if isinstance(retriever, Dense) and retriever.encoder.store:
        retriever.encoder.store.close()  # which brings the journal in


def exponent(rows: Sequence[Row], figure: str) -> float:
    """The slope of log(figure) against log(memories), by least squares: 1 is linear growth."""
    x, y = (np.log([row[name] for row in rows]) for name in ("size", figure))
    return float(np.polyfit(x, y, 1)[0])


def table(rows: Sequence[Row], columns: dict[str, str]) -> str:
    lines = ["| " + " | ".join(columns.values()) + " |", "|" + " --- |" * len(columns)]
    for row in rows:
        cells = [
            cell if isinstance(cell, str) else f"{cell:,.0f}" if cell >= 100 else f"{cell:.3g}"
            for cell in (row[name] for name in columns)
        ]
        lines.append("| " + " | ".join(cells) + " |")
    sizes = {row["size"] for row in rows if "size" in row}
    by = "retriever" if "retriever" in columns else None
    for kind in dict.fromkeys(row[by] if by else "" for row in rows) if len(sizes) > 1 else ():
        mine = [row for row in rows if not by or row[by] == kind]
        slopes = [
            kind if name == by else "growth" if name == "size" else f"{exponent(mine, name):.2f}"
            for name in columns
        ]
        lines.append("| " + " | ".join(slopes) + " |")
    return "\n".join(lines)


STORE = {
    "size": "memories", "batch_adds_s": "adds/s, one batch", "add_ms": "add, ms",
    "add_in_memory_ms": "add without a file, ms", "update_ms": "read + update, ms",
    "opened_ms": "read, opened, ms", "read_ms": "read after an add and an update, ms",
    "bytes_a_memory": "bytes a memory",
}  # fmt: skip
MANY = {
    "users": "users", "each": "memories each", "batch_adds_s": "adds/s, a batch a user",
    "add_ms": "add, ms", "update_ms": "read + update, ms", "read_ms": "read, ms",
    "bytes_a_memory": "bytes a memory",
}  # fmt: skip
SEARCH = {"new_p50_ms": "new query, p50 ms", "new_p95_ms": "p95", "again_p50_ms": "asked again, ms"}
SEARCH_ONE = {
    "retriever": "retriever", "size": "memories", "opened_ms": "opened, ms", **SEARCH,
    "after_add_ms": "after an add, ms",
}  # fmt: skip
SEARCH_MANY = {"retriever": "retriever", "users": "users", "each": "memories each", **SEARCH}


def draw(store: Sequence[Row], search: Sequence[Row], out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
    parts = [("add", store, "add_ms"), ("read + update", store, "update_ms")]
    parts += [("read, opened", store, "opened_ms")]
    searches = []
    for name in dict.fromkeys(row["retriever"] for row in search):
        mine = [row for row in search if row["retriever"] == name]
        searches += [(f"{name}, new query", mine, "new_p50_ms")]
        searches += [(f"{name}, asked again", mine, "again_p50_ms")]
    for axes, lines, title in ((left, parts, "store"), (right, searches, "search, k = 10")):
        for i, (name, rows, key) in enumerate(lines):
            axes.loglog(
                [row["size"] for row in rows], [row[key] for row in rows],
                marker="osD^v"[i % 5], color=colours[i % 4], label=name, lw=1.6,
            )  # fmt: skip
        axes.set_xlabel("memories of one user")
        axes.set_title(f"{title} (ms, median)", fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(out, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=sample_root())
    parser.add_argument("--sizes", default="100,1000,10000")
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--retrievers", default="bm25,minilm")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    names = asked.retrievers.split(",")
    data = load_dataset(asked.data, "dev")
    queries = list(dict.fromkeys(row.query for row in data.smallest.rows))[: asked.count]
    # Those past the largest size come new to a store that is in use.
    texts = distinct_texts([memory.text for memory in data.bank], max(sizes) + asked.count)
    known = texts[: max(sizes)]
    shared, many = known[: 100 * asked.each], (asked.users, asked.each)
    print(f"{len(queries)} queries, texts of {np.mean([len(t) for t in texts]):.0f} characters")

    store = [one_user(texts, size, asked.count, asked.rounds) for size in sizes]
    print("\none user\n" + table(store, STORE), flush=True)
    all_of_them = many_users(shared, *many, asked.count)
    print("\nmany users\n" + table([all_of_them], MANY) + "\n", flush=True)
    search, search_all = [], []
    with tempfile.TemporaryDirectory() as folder:
        vectors = asked.vectors or Path(folder) / "vectors.sqlite"
        for name in names:
            store_vectors(name, vectors, known)
            for size in sizes:
                with filled_once(name, vectors) as retriever:
                    row = search_one(retriever, known[:size], texts[len(known) :], queries)
                search.append({"retriever": name, **row})
            with filled_once(name, vectors) as retriever:
                row = search_many(retriever, shared, *many, queries)
            search_all.append({"retriever": name, "users": asked.users, "each": asked.each, **row})
    print("\nsearch, one user\n" + table(search, SEARCH_ONE))
    print("\nsearch, many users\n" + table(search_all, SEARCH_MANY))
    last = store[-1]
    print(
        f"\nat {last['size']:,} memories: one batch / single adds ="
        f" {last['batch_adds_s'] * last['add_ms'] / 1000:.0f}, with / without a file ="
        f" {last['add_ms'] / last['add_in_memory_ms']:.0f}, read when opened / later ="
        f" {last['opened_ms'] / last['read_ms']:.0f}"
    )
    if asked.json:
        rows = {
            "one_user": store,
            "search_one_user": search,
            "many_users": all_of_them,
            "search_many": search_all,
        }
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    if asked.plot:
        draw(store, search, asked.plot)


if __name__ == "__main__":
    main()
