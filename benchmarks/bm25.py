"""Our BM25 beside rank-bm25: pools of 1,000, tokens ready on both sides, down to (above, tied).

    python benchmarks/bm25.py [--data DIR] [--queries N]

Both sides start from the same tokens in memory: lists of strings for the package, which is what it
takes, and term numbers for ours. Both are timed in one process, pool by pool in turn, after
everything is imported and loaded; the ratio is of the totals. Scores are checked to be equal.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import rank_bm25

from analysis.metrics import above_tied, ranked
from recallbed.corpus import sample_root
from recallbed.corpus.dataset import load_dataset
from recallbed.corpus.pools import build_pools
from retrievers.bm25 import BM25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=sample_root())
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--distractors", type=int, default=1000)
    asked = parser.parse_args()
    data = load_dataset(asked.data, "dev")
    pools = build_pools(data, "nested", (asked.distractors,), (0,), asked.queries)
    members = [pools.texts(pool) for pool in pools.pools[asked.distractors, 0]]
    print(f"{len(members)} pools of {asked.distractors + 1}, {len(pools.memories)} distinct texts")
    packages = {"okapi": "BM25Okapi", "plus": "BM25Plus", "l": "BM25L"}
    print(
        f"{'variant':8} {'ours ms/pool':>13} {'rank-bm25 ms/pool':>18} {'ratio':>6} {'max diff':>9}"
    )
    for variant in ("okapi", "plus", "l", "lucene"):
        ours = BM25(variant=variant, tokens="paper")  # type: ignore[arg-type]
        ours.prepare([], pools.memories)
        tokens = {memory.text: list(ours.tokens(memory.text).content) for memory in pools.memories}
        spent, theirs, worst = 0.0, 0.0, 0.0
        for row, pool, texts in zip(
            pools.rows, pools.pools[asked.distractors, 0], members, strict=True
        ):
            terms = ours.tokens(row.query).content
            rows = [ours._row(memory.text) for memory in texts]
            lists = [tokens[memory.text] for memory in texts]
            start = time.perf_counter()
            scores = np.asarray(ours.score_terms(terms, rows, ours._content).scores)
            mine = above_tied(ranked(scores, len(texts)), pool.gold)
            spent += time.perf_counter() - start
            package = getattr(rank_bm25, packages.get(variant, "BM25Okapi"))
            start = time.perf_counter()
            expected = package(lists).get_scores(terms)
            other = above_tied(ranked(expected, len(texts)), pool.gold)
            theirs += time.perf_counter() - start
            if variant in packages:
                worst = max(worst, float(abs(scores - expected).max()))
                assert mine == other, (row.benchmark_id, mine, other)
        note = f"{worst:9.1e}" if variant in packages else "  (okapi)"
        each = 1000 / len(members)
        print(
            f"{variant:8} {spent * each:13.3f} {theirs * each:18.3f} {theirs / spent:6.1f} {note}"
        )


if __name__ == "__main__":
    main()
