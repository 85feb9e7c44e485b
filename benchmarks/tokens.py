"""What reranking costs and what it could reach: real prompts, counted by a real tokenizer.

    python benchmarks/tokens.py --data DIR [--distractors 1000] [--limit N] [--out RUN]

Sweeps first stages and rerankers over the real pools. The model behind the rerankers is a reader
that always knows the gold (it is told by this script), served over HTTP as any model would be. So
recall is what is possible at all: the first stage's recall at that depth, and 1 for the whole pool.
Tokens are those of the very prompts and replies, counted with SmolLM2's tokenizer, chat template
included. Prints a table, and the input tokens of each reranker as a share of full-context's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recallbed.chat_models import ChatOptions, Message, chat_model, harmless_line
from recallbed.corpus.material import gather
from recallbed.corpus.options import DataOptions, PoolOptions
from recallbed.harness.run_options import RunOptions
from retrievers.options import RetrieverOptions
from task3.options import SweepConfig
from task3.sweep_run import run_sweep
from tests.reader import reader
from tests.scripted_server import Call, scripted_server

RERANKERS = {
    "listwise 5": ("listwise", {"depth": 5}),
    "listwise 10": ("listwise", {"depth": 10}),
    "listwise 20": ("listwise", {"depth": 20}),
    "listwise 50": ("listwise", {"depth": 50}),
    "setwise 20": ("setwise", {"depth": 20, "top": 1}),
    "pairwise 20": ("pairwise", {"depth": 20, "top": 1}),
    "full context": ("full-context", {}),
}
FIRST = "minilm"


def configured() -> RetrieverOptions:
    names, settings = ["bm25", FIRST], []
    for label, (name, chosen) in RERANKERS.items():
        label = label.replace(" ", "-")
        names.append(f"{label}={name}")
        first = {} if name == "full-context" else {"first_stage": FIRST}
        for key, value in {"model": "openai:perfect-reader", **first, **chosen}.items():
            settings.append(f"{label}.{key}={value}")
    return RetrieverOptions(tuple(names), tuple(settings))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--distractors", type=int, default=1000)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs/tokens"))
    asked = parser.parse_args()

    sizes = (asked.distractors,)
    rows = gather(asked.data, asked.split, "nested", sizes, (0,), asked.limit).pools.rows
    golds: dict[str, set[str]] = {}
    for row in rows:
        golds.setdefault(harmless_line(row.query), set()).add(harmless_line(row.gold_memory.text))
    tokenizer = chat_model("local:smollm2")

    def count(call: Call, reply: str) -> tuple[int, int]:
        prompt = [Message(m["role"], m["content"]) for m in call.body["messages"]]
        alone = tokenizer.count_tokens([Message("assistant", "")])
        return (
            tokenizer.count_tokens(prompt),
            max(1, tokenizer.count_tokens([Message("assistant", reply)]) - alone),
        )

    with scripted_server(reader(lambda query, text: float(text in golds[query]))) as server:
        server.count = count
        outcome = run_sweep(
            SweepConfig(
                configured(),
                DataOptions(asked.data, asked.split, asked.limit),
                PoolOptions("nested", distractors=sizes),
                ks=(1,),
                run=RunOptions(asked.out, overwrite=True),
                chat=ChatOptions(base_url=server.url, replies="none"),
            )
        )
    cells = {cell["retriever"]: cell for cell in outcome.summary["cells"]}
    whole = cells["full-context"]["tokens_in"]
    print(
        "| configuration | calls | tokens in | tokens out | share of full context | R@1 possible |"
    )
    print("| --- | --: | --: | --: | --: | --: |")
    for label, cell in cells.items():
        n = cell["attempted"]
        each = [cell[key] / n for key in ("calls", "tokens_in", "tokens_out")]
        print(
            f"| {label} | {each[0]:.1f} | {each[1]:,.0f} | {each[2]:,.0f} |"
            f" {cell['tokens_in'] / whole:.2%} | {cell['recall']['1']['mean']:.3f} |"
        )
    print(f"\n{len(rows)} queries, {asked.distractors} distractors; per query. {outcome.path}/")


if __name__ == "__main__":
    main()
