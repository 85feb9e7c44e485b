"""What each index costs as a store grows, beside exact search over the same vectors.

    HF_HUB_OFFLINE=1 python benchmarks/index.py --data DIR [--sizes 10000,100000,1000000]
        [--kinds flat,hnsw,ivfpq,bm25s,milvus] [--repeats 0.0044] [--out FILE.json]

The vectors are the real MiniLM embeddings of the bank of a split, drawn with replacement, each
perturbed by Gaussian noise of length NOISE and scaled back to length 1: two draws of one memory are
then about as far apart as two memories on one topic. A share of the memories (`--repeats`) are
copies of others; which ones are copied follows the counts of the split's candidate texts. The
default is the share among the task 1 gold memories of dev; 0.877 is that among its task 3
candidates. The texts for bm25s are spliced from two halves of bank texts. The queries are the real
queries of the split. All of it is seeded.

Build and search run in processes of their own, so memory is the index's: resident size after
loading a saved index and searching it, less the size before. Single queries give p50 and p95;
throughput is one call with all queries. Recall@10 is against flat (bm25s has no such peer); a copy
of a memory counts as found if another copy of it is, since which copies are given is a tie.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from indexes.base import make_index, open_index
from recallbed.corpus import sample_root
from recallbed.corpus.dataset import load_dataset

NOISE = 0.75
K = 10
QUERIES = 400
REPEATS = 0.0044
BLOCK = 50_000
WARM = 9_984  # 39 vectors for each of 256 codewords


def vectors_of(base: np.ndarray[Any, Any], count: int, seed: int) -> np.ndarray[Any, Any]:
    """`count` perturbed rows of `base`, in blocks so that nothing is held twice."""
    rng = np.random.default_rng(seed)
    found = np.empty((count, base.shape[1]), np.float32)
    for start in range(0, count, BLOCK):
        block = found[start : start + BLOCK]
        noise = rng.standard_normal(block.shape, np.float32)
        noise *= NOISE / np.linalg.norm(noise, axis=1, keepdims=True)
        block[:] = base[rng.integers(0, len(base), len(block))] + noise
        block /= np.linalg.norm(block, axis=1, keepdims=True)
    return found


def origins(count: int, share: float, counts: Sequence[int]) -> np.ndarray[Any, Any]:
    """The number of the distinct memory that each of `count` memories is, (count,), shuffled.

    `share` of them are copies, of memory i in proportion to the i-th of `counts`, repeated.
    """
    rng = np.random.default_rng(count)
    distinct = count - int(share * count)
    weights = np.resize(np.asarray(counts, np.float64), distinct)
    copies = rng.choice(distinct, count - distinct, p=weights / weights.sum())
    return np.asarray(rng.permutation(np.concatenate([np.arange(distinct), copies])))


def texts_of(bank: Sequence[str], count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    halves = [text.split() for text in bank]
    found = []
    for _ in range(count):
        one, other = rng.choice(halves), rng.choice(halves)
        found.append(" ".join(one[: len(one) // 2 + 1] + other[len(other) // 2 :]))
    return found


def resident() -> float:
    """MiB in memory that belong to this process alone or are mapped and touched."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return math.nan


def material(place: Path, kind: str, size: int, repeats: float) -> Any:
    copies = 0.0 if size == WARM else repeats
    of = origins(size, copies, json.loads((place / "counts.json").read_text()))
    np.save(place / f"origins-{size}.npy", of)
    if kind == "bm25s":
        texts = texts_of(json.loads((place / "bank.json").read_text()), of.max() + 1, size)
        return [texts[i] for i in of]
    return vectors_of(np.load(place / "bank.npy"), of.max() + 1, size)[of]


def empty(place: Path, kind: str, size: int, items: Any) -> Any:
    settings: dict[str, Any] = {} if kind == "bm25s" else {"width": items.shape[1]}
    if kind in ("hnsw", "ivfpq"):
        settings["threads"] = 0  # all cores: the graph then depends on timing
    if kind == "milvus":
        settings["address"] = str(place / f"milvus-{size}.db")
    return make_index(kind, size, **settings)


def on_disk(path: Path) -> int:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(p.stat().st_size for p in files)


def build(place: Path, kind: str, size: int, repeats: float) -> dict[str, Any]:
    items = material(place, kind, size, repeats)
    index = empty(place, kind, size, items)
    start = time.perf_counter()
    index.build(np.arange(size), items)
    built = time.perf_counter() - start
    path = place / f"{kind}-{size}"
    start = time.perf_counter()
    index.save(path)
    found = {"build_s": built, "save_s": time.perf_counter() - start, "file_bytes": on_disk(path)}
    database = place / f"milvus-{size}.db"
    if kind == "milvus":
        found["file_bytes"] += on_disk(database)
    path.with_suffix(".build.json").write_text(json.dumps(found))
    return found


def search(place: Path, kind: str, size: int) -> dict[str, Any]:
    queries: Any = (
        json.loads((place / "queries.json").read_text())
        if kind == "bm25s"
        else np.load(place / "queries.npy")
    )
    # Libraries and threads come up on a tiny index first: they are no part of a store's size.
    open_index(place / f"{kind}-{WARM}").search(queries[:20], K)
    gc.collect()
    before = resident()
    start = time.perf_counter()
    index = open_index(place / f"{kind}-{size}")
    loaded = time.perf_counter() - start
    index.search(queries[:20], K)
    seconds, hits = [], []
    for i in range(len(queries)):
        start = time.perf_counter()
        hits += index.search(queries[i : i + 1], K)
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    index.search(queries, K)
    batch = time.perf_counter() - start
    memory = resident() - before
    found = np.full((len(queries), K), -1, np.int64)
    for row, hit in zip(found, hits, strict=True):
        row[: len(hit.ids)] = hit.ids
    np.save(place / f"{kind}-{size}.hits.npy", found)
    low, high = np.percentile(seconds, (50, 95)) * 1000
    return {
        "load_s": loaded,
        "memory_mib": memory,
        "bytes_a_memory": memory * 2**20 / size,
        "p50_ms": low,
        "p95_ms": high,
        "batch_qps": len(queries) / batch,
    }


def recall(place: Path, kind: str, size: int) -> float | None:
    truth = place / f"flat-{size}.hits.npy"
    if kind == "bm25s" or not truth.exists():
        return None
    of = np.append(np.load(place / f"origins-{size}.npy"), -1)  # the last for a hit that is missing
    exact, found = of[np.load(truth)], of[np.load(place / f"{kind}-{size}.hits.npy")]
    shared = [(Counter(a) & Counter(b)).total() for a, b in zip(exact, found, strict=True)]
    return float(np.mean(shared)) / K


def prepare(place: Path, data: Path) -> None:
    from indexes.encoder import make_encoder

    split = load_dataset(data, "dev")
    queries = [row.query for row in split.smallest.rows][:QUERIES]
    encoder = make_encoder("all-MiniLM-L6-v2")
    np.save(place / "bank.npy", encoder.encode([m.text for m in split.bank])[0])
    np.save(place / "queries.npy", encoder.encode(queries)[0])
    counts = Counter(memory.text for row in split.smallest.rows for memory in row.candidates)
    (place / "counts.json").write_text(json.dumps([count for _, count in counts.most_common()]))
    (place / "bank.json").write_text(json.dumps([m.text for m in split.bank]))
    (place / "queries.json").write_text(json.dumps(queries))
    print(f"bank of {len(split.bank)} memories, {len(queries)} queries", file=sys.stderr)


def step(
    verb: str, place: Path, kind: str, size: int, limit: float, repeats: float
) -> dict[str, Any] | None:
    """One measurement in a process of its own; None, with its last words, where it fails."""
    words = [sys.executable, __file__, "--step", verb, "--place", str(place), "--kinds", kind]
    words += ["--repeats", str(repeats)]
    try:
        done = subprocess.run(
            [*words, "--sizes", str(size)], capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        print(f"{kind} at {size}: {verb} took longer than {limit:.0f} s", file=sys.stderr)
        return None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        print(f"{kind} at {size}: {verb} failed: {last[0]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    head = ("index", "memories", "build s", "file MiB", "memory MiB", "bytes a memory")
    head += ("p50 ms", "p95 ms", "queries/s", "recall@10")
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for r in rows:
        cells = [
            r["kind"], f"{r['size']:,}", f"{r['build_s']:.1f}", f"{r['file_bytes'] / 2**20:,.0f}",
            f"{r['memory_mib']:,.0f}", f"{r['bytes_a_memory']:,.0f}", f"{r['p50_ms']:.2f}",
            f"{r['p95_ms']:.2f}", f"{r['batch_qps']:,.0f}",
            "" if r["recall_at_10"] is None else f"{r['recall_at_10']:.3f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def exponents(rows: Sequence[dict[str, Any]]) -> str:
    """The slope of log(figure) against log(memories), by least squares: 1 is linear growth."""
    figures = ("build_s", "file_bytes", "memory_mib", "p50_ms", "batch_qps")
    lines = ["| index | " + " | ".join(figures) + " |", "|" + " --- |" * (len(figures) + 1)]
    for kind in dict.fromkeys(r["kind"] for r in rows):
        mine = [r for r in rows if r["kind"] == kind]
        if len(mine) < 2:
            continue
        x = np.log([r["size"] for r in mine])
        slopes = [np.polyfit(x, np.log([max(r[f], 1e-9) for r in mine]), 1)[0] for f in figures]
        lines.append(f"| {kind} | " + " | ".join(f"{slope:.2f}" for slope in slopes) + " |")
    return "\n".join(lines)


def draw(rows: Sequence[dict[str, Any]], out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 3)
    wanted = (("p50_ms", "one query, p50 (ms)"), ("memory_mib", "memory (MiB)"))
    colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")
    for axes, (key, name) in zip(panels, (*wanted, ("build_s", "build (s)")), strict=True):
        for i, kind in enumerate(dict.fromkeys(r["kind"] for r in rows)):
            mine = [r for r in rows if r["kind"] == kind]
            axes.loglog(
                [r["size"] for r in mine], [max(r[key], 1e-3) for r in mine],
                marker="osD^v"[i % 5], color=colours[i % 5], label=kind, lw=1.6,
            )  # fmt: skip
        axes.set_xlabel("memories")
        axes.set_title(name, fontsize=10, loc="left")
        axes.grid(True, which="major", color="#dddddd", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    figure.savefig(out, dpi=150, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=sample_root())
    parser.add_argument("--sizes", default="10000,100000,1000000")
    parser.add_argument("--kinds", default="flat,hnsw,ivfpq,bm25s,milvus")
    parser.add_argument("--out", type=Path, help="JSON of all figures; with .png beside it")
    parser.add_argument("--repeats", type=float, default=REPEATS, help="share that are copies")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for one build")
    parser.add_argument("--step", choices=("build", "search"), help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help="folder for the indexes; default: a new one")
    parser.add_argument("--reuse", action="store_true", help="search what lies in --place")
    asked = parser.parse_args()
    sizes = [int(word) for word in asked.sizes.split(",")]
    kinds = asked.kinds.split(",")
    if asked.step:
        where = (asked.place, kinds[0], sizes[0])
        print(json.dumps(build(*where, asked.repeats) if asked.step == "build" else search(*where)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        place = asked.place or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        prepare(place, asked.data)
        for kind in kinds:
            if not (asked.reuse and (place / f"{kind}-{WARM}.build.json").exists()):
                step("build", place, kind, WARM, asked.limit, asked.repeats)
        for size in sizes:
            for kind in kinds:
                kept = place / f"{kind}-{size}.build.json"
                if asked.reuse and kept.exists():
                    built = json.loads(kept.read_text())
                else:
                    built = step("build", place, kind, size, asked.limit, asked.repeats)
                found = built and step("search", place, kind, size, asked.limit, 0.0)
                if built and found:
                    row = {"kind": kind, "size": size, **built, **found}
                    rows.append({**row, "recall_at_10": recall(place, kind, size)})
                    print(json.dumps(rows[-1]), file=sys.stderr)
                    if asked.out:
                        asked.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    print()
    print(exponents(rows))
    if asked.out:
        draw(rows, asked.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
