"""What query likelihood over MiniLM's best ten gains on the released pools, and what it costs.

    HF_HUB_OFFLINE=1 python benchmarks/query_likelihood.py --data DIR [--sample 200] [--out FILE]

Rows whose query and gold hold no letter but of the Latin script are taken as English. Sessions in
the order of a seeded hash give the sample first; the rows after it are the ones that the weight is
fitted on, so no session is in both. The prompt was chosen on 20 of these, which stand last and are
in no figure but the fit's.

Every likelihood is kept in a file as soon as it is known: started again, the benchmark goes on
where it was, and fitting needs no second pass.

Seconds a query are for ten candidates of one query, after the model is loaded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import regex

from analysis.metrics import above_tied, ranked, recall_at
from analysis.p_values import p_text
from analysis.paired import paired
from indexes.embedding_store import choose_store
from recallbed.chat_models import ChatOptions, Chats
from recallbed.corpus.dataset import load_dataset
from recallbed.corpus.pools import build_pools
from recallbed.corpus.records import Memory
from recallbed.harness.progress import progress
from retrievers.base import RunContext, Scored
from retrievers.dense import MiniLM
from retrievers.rerank.base import Reranked, Shortlist
from retrievers.rerank.query_likelihood import MODEL, QueryLikelihood
from task3.tuning import folds_of

OTHER_LETTER = regex.compile(r"(?!\p{Script=Latin})\p{L}")
WEIGHTS = [round(0.05 * i, 2) for i in range(21)]
FOLDS = 5
FIRST_TRIED, TRIED = 200, 20
"""Of the rows in the order of another hash, those on which the prompt was chosen."""


class Item(NamedTuple):
    """One row of the release: what MiniLM says of its pool, and what is reread."""

    name: str
    pool: Sequence[Memory]
    gold: int
    first: np.ndarray[Any, Any]
    shortlist: Shortlist


class Read(NamedTuple):
    """Likelihoods of the candidates, in the cut's order, and what they took."""

    values: list[float]
    seconds: float
    processor: float


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def english(data: Path, reranker: QueryLikelihood, seed: int) -> tuple[list[Item], dict[str, str]]:
    """The rows in Latin script, by a hash of their session, and the session of each."""
    pools = build_pools(load_dataset(data, "dev", (100,)), "released", (100,), (0,))
    rows = [
        (row, pools.texts(pool), pool.gold)
        for row, pool in zip(pools.rows, pools.pools[100, 0], strict=True)
        if not any(map(OTHER_LETTER.search, [row.query, *(m.text for m in row.gold_memories)]))
    ]
    rows.sort(key=lambda r: digest(f"0\0{r[0].session_id}"))
    tried = {row.session_id for row, _, _ in rows[FIRST_TRIED:][:TRIED]}
    rows.sort(key=lambda r: (r[0].session_id in tried, digest(f"{seed} {r[0].session_id}")))
    first = reranker.first_stage
    first.prepare(sorted({row.query for row, _, _ in rows}), pools.memories)
    items = []
    for row, pool, gold in rows:
        scores = np.asarray(first.score(row.query, pool), np.float32)
        shortlist = reranker._cut(row.query, pool, scores)
        items.append(Item(row.benchmark_id, pool, gold, scores, shortlist))
    return items, {row.benchmark_id: row.session_id for row, _, _ in rows}


def read_all(items: Sequence[Item], reranker: QueryLikelihood, file: Path) -> dict[str, Read]:
    """The likelihoods of each item, those in `file` as they are, the others added to it."""
    settings = {k: v for k, v in reranker.own_settings().items() if k != "weight"}
    head = json.dumps({**settings, "depth": reranker.depth}, sort_keys=True)
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    if lines and lines[0] != head:
        raise SystemExit(f"{file}: of another model, prompt or depth. Name another file")
    if not lines:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(head + "\n", encoding="utf-8")
    known = {row["query"]: Read(*row["read"]) for row in map(json.loads, lines[1:])}
    missing = [item for item in items if item.name not in known]
    if missing:
        reranker.likelihoods(items[0].shortlist)  # loads the model
    with progress("likelihoods", len(missing)) as advance, file.open("a", encoding="utf-8") as out:
        for item in missing:
            start, processor = time.perf_counter(), time.process_time()
            values = reranker.likelihoods(item.shortlist)
            seconds, processor = time.perf_counter() - start, time.process_time() - processor
            known[item.name] = Read(values, round(seconds, 4), round(processor, 4))  # type: ignore[arg-type]
            out.write(json.dumps({"query": item.name, "read": known[item.name]}) + "\n")
            out.flush()
            advance(1)
    return known


def recalls(
    items: Sequence[Item], reads: Mapping[str, Read], reranker: QueryLikelihood, weight: float
) -> dict[str, float]:
    """Recall@1 of each item at a weight, by the reranker's own code."""
    reranker.weight = weight
    found = {}
    for item in items:
        result = reranker.mixed(item.shortlist, reads[item.name].values)
        assert isinstance(result, Reranked), f"{item.name}: {result}"
        merged = reranker._merge(item.pool, Scored(item.first), item.shortlist, result)
        assert isinstance(merged, Scored), f"{item.name}: {merged}"
        scores = ranked(merged.scores, len(item.pool))
        found[item.name] = recall_at(1, *above_tied(scores, item.gold))
    return found


def mean(values: Mapping[str, float], among: Sequence[str]) -> float:
    return statistics.fmean(values[name] for name in among)


def best(by_weight: Mapping[float, Mapping[str, float]], among: Sequence[str]) -> float:
    """The weight around which recall@1 is highest: on average from 0.1 below it to 0.1 above."""
    curve = [mean(by_weight[weight], among) for weight in WEIGHTS]
    return WEIGHTS[2 + int(np.argmax(np.convolve(curve, np.full(5, 0.2), "valid").round(9)))]


def line(what: str, a: Mapping[str, float], b: Mapping[str, float], among: Sequence[str]) -> str:
    gap = paired({n: a[n] for n in among}, {n: b[n] for n in among})
    return (
        f"| {what} | {gap.n} | {gap.b:.4f} | {gap.a:.4f} | {gap.difference:+.4f}"
        f" [{gap.low:+.4f}, {gap.high:+.4f}] | {gap.wins} | {gap.losses} | {p_text(gap.mcnemar)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="only so many of the fitting rows")
    parser.add_argument("--out", type=Path, default=Path("runs/query_likelihood.jsonl"))
    asked = parser.parse_args()
    chat = Chats(ChatOptions(replies="none"))(MODEL)
    first = MiniLM.from_run({}, RunContext(store=partial(choose_store, None)))
    reranker = QueryLikelihood.asking(chat, first, seed=asked.seed)
    every, sessions = english(asked.data, reranker, asked.seed)
    sample, fitting = every[: asked.sample], every[asked.sample :]
    if asked.only:
        sample, fitting = [], fitting[: asked.only]
    reads = read_all([*fitting, *sample], reranker, asked.out)
    items = [*fitting, *sample]
    by_weight = {w: recalls(items, reads, reranker, w) for w in WEIGHTS}
    tested, fitted = [i.name for i in sample], [i.name for i in fitting]

    print(f"{len(items)} rows, recall@1 on the {len(fitted)} that the weight is fitted on:\n")
    print("| weight | " + " | ".join(f"{w:g}" for w in WEIGHTS) + " |")
    print("| --- |" + " --- |" * len(WEIGHTS))
    print("| recall@1 | " + " | ".join(f"{mean(by_weight[w], fitted):.3f}" for w in WEIGHTS) + " |")
    chosen = best(by_weight, fitted)
    print(f"\nchosen: {chosen:g}\n")
    for what in ("seconds", "processor"):
        spent = sorted(getattr(reads[item.name], what) for item in items)
        print(
            f"{what} a query: median {statistics.median(spent):.2f}, fastest {spent[0]:.2f},"
            f" p95 {spent[int(0.95 * len(spent))]:.2f}"
        )
    if not tested:
        return
    print("\n| | queries | minilm | query-likelihood | difference, 95 % | wins | losses | p |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    print(line(f"sample, weight {chosen:g}", by_weight[chosen], by_weight[0.0], tested))
    print(line("sample, likelihood alone", by_weight[1.0], by_weight[0.0], tested))
    names = [*fitted, *tested]
    fold = dict(zip(names, folds_of([sessions[n] for n in names], FOLDS).tolist(), strict=True))
    without = {f: best(by_weight, [n for n in names if fold[n] != f]) for f in range(FOLDS)}
    crossed = {n: by_weight[without[fold[n]]][n] for n in names}
    weights = ", ".join(f"{w:g}" for w in without.values())
    untried = [item.name for item in every[:-TRIED]]
    print(line(f"all, cross-fitted ({weights})", crossed, by_weight[0.0], untried))
    deep = statistics.fmean(item.pool[item.gold].text in item.shortlist.texts for item in sample)
    print(f"\nthe gold is among the ten that are reread: {deep:.4f} of the sample")


if __name__ == "__main__":
    main()
