"""A cold MiniLM sweep over five sizes beside one plain `encode` of the same distinct texts.

    HF_HUB_OFFLINE=1 python benchmarks/sweep.py [--data DIR] [--rounds N]

Both in one process, after imports and model load: the peer is SentenceTransformer.encode on the
sorted list of distinct texts, with the same batch size; ours is all from `prepare` to the last row
on disk. They take turns; the ratio is of the medians. Pools are built beforehand and printed apart.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

from recallbed.chat_models import Chats
from recallbed.corpus import sample_root
from recallbed.corpus.material import gather
from recallbed.harness.configurations import Configuration
from recallbed.harness.experiment import execute
from recallbed.harness.run_options import RunOptions
from retrievers import RunContext, build_retriever
from retrievers.options import RetrieverOptions
from task3.options import SweepConfig
from task3.sweep_run import Sweep

SIZES = (100, 300, 500, 700, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=sample_root())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="of both sides")
    asked = parser.parse_args()
    start = time.perf_counter()
    material = gather(asked.data, "dev", "nested", SIZES, (0,))
    pools = material.pools
    print(f"load and build pools: {time.perf_counter() - start:.2f} s")
    configuration = Configuration("minilm", "minilm", {"batch_size": str(asked.batch_size)})
    start = time.perf_counter()
    first = build_retriever(configuration, RunContext())
    first.prepare(["warm up"], [])
    model = first.encoder._model  # type: ignore[attr-defined]
    print(f"imports and model: {time.perf_counter() - start:.2f} s")
    texts = sorted({m.text for m in pools.memories} | {row.query for row in pools.rows})
    config = SweepConfig(RetrieverOptions(("minilm",)))
    sweeps, encodes = [], []
    for _ in range(asked.rounds):
        start = time.perf_counter()
        model.encode(texts, batch_size=asked.batch_size, show_progress_bar=False)
        encodes.append(time.perf_counter() - start)
        retriever = build_retriever(configuration, RunContext())
        retriever.encoder.__dict__["_model"] = model  # type: ignore[attr-defined]
        sweep = Sweep(config, material, {"minilm": retriever}, Chats())
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            execute(sweep, RunOptions(out=Path(folder)))
            sweeps.append(time.perf_counter() - start)
        rows = len(sweep.keys())
        print(f"encode {encodes[-1]:.2f} s, sweep {sweeps[-1]:.2f} s")
    ratio = statistics.median(sweeps) / statistics.median(encodes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(texts)} distinct texts, {rows} rows: sweep / encode = {ratio:.3f}")
    print(f"peak memory of the process: {peak:.0f} MiB")


if __name__ == "__main__":
    main()
