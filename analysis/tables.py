"""The table at the end of a sweep."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.runs import seconds_by_label
from harness.run_folder import is_count

if TYPE_CHECKING:
    from rich.table import Table

COSTS = ("calls a query", "tokens in / out a query", "cost", "repairs", "ceiling")


def print_table(path: Path, summary: Mapping[str, Any]) -> None:
    """Print the summary of the run in `path` on stderr."""
    from rich.console import Console

    wide = None if sys.stderr.isatty() else 230 if _reranked(summary) else 180
    console = Console(stderr=True, width=wide, highlight=False)
    console.print(build_table(summary, seconds_by_label(path)))
    for line in remarks(summary):
        console.print(line, style="dim" if sys.stderr.isatty() else "")


def build_table(summary: Mapping[str, Any], seconds: Mapping[str, tuple[float, float]]) -> Table:
    """One line a retriever and size."""
    from rich import box
    from rich.table import Table

    ks = [k for k in summary["ks"] if not all(_trivial(c, k) for c in summary["cells"])]
    table = Table(title=title(summary), box=box.SIMPLE_HEAD)
    table.add_column("retriever", no_wrap=True)
    table.add_column("distractors", justify="right")
    for i, k in enumerate(ks):
        head = f"R@{k} [95 %]" if i == 0 else f"R@{k}"
        table.add_column(head, justify="right", no_wrap=True)
        if i == 0:
            table.add_column("worst-best", justify="right")
    several = any("recall_any" in cell for cell in summary["cells"])
    for k in ks if several else ():
        table.add_column(f"any@{k}", justify="right")
        table.add_column(f"all@{k}", justify="right")
    costs = COSTS if _reranked(summary) else ()
    for head in ("E[RR]", "tied", "chance", *costs, "attempted", "scored", "failed", "time"):
        table.add_column(head, justify="right")
    shown: set[str] = set()
    for cell in summary["cells"]:
        label = cell["retriever"]
        prepare, score = seconds.get(label, (0.0, 0.0))
        time = "" if label in shown else f"{prepare:.1f} + {score:.1f} s"
        shown.add(label)
        counts = [str(cell[key]) for key in ("attempted", "scored", "failed")]
        counts = [*(_costs(cell, ks) if costs else ()), *counts]
        table.add_row(label, str(cell["distractors"]), *_figures(cell, ks, several, counts), time)
    return table


def _reranked(summary: Mapping[str, Any]) -> bool:
    return any("a_query" in cell for cell in summary["cells"])


def _costs(cell: Mapping[str, Any], ks: list[int]) -> list[str]:
    """What stands below COSTS; nothing for a label that asked no one and reranked nothing."""
    if "a_query" not in cell:
        return [""] * len(COSTS)
    a_query, cost = cell["a_query"], cell["cost"]
    ceiling = cell.get("first_stage_recall", {}).get(str(ks[0])) if ks else None
    return [
        f"{a_query['calls']:.2f}",
        f"{a_query['tokens_in']:.0f} / {a_query['tokens_out']:.0f}",
        "unknown" if cost is None else f"{cost:.4f}",
        str(sum(cell["repairs"].values())),
        "" if ceiling is None else f"{ceiling:.3f}",
    ]


def _figures(cell: Mapping[str, Any], ks: list[int], several: bool, counts: list[str]) -> list[str]:
    if "recall" not in cell:
        return ["-"] * (len(ks) * (3 if several else 1) + 1 + 3) + counts
    shown = []
    for i, k in enumerate(ks):
        recall = cell["recall"][str(k)]
        if recall["trivial"]:
            shown += ["k >= pool"] * (2 if i == 0 else 1)
        elif i == 0:
            shown.append(f"{recall['mean']:.3f} [{recall['low']:.3f}, {recall['high']:.3f}]")
            shown.append(f"{recall['worst']:.3f}-{recall['best']:.3f}")
        else:
            shown.append(f"{recall['mean']:.3f}")
    for k in ks if several else ():
        for name in ("recall_any", "recall_all"):
            shown.append(f"{cell.get(name, cell['recall'])[str(k)]['mean']:.3f}")
    first = cell["recall"][str(ks[0])] if ks else {"chance": 1.0}
    rr = cell["reciprocal_rank"]["mean"]
    return [*shown, f"{rr:.3f}", f"{cell['tie_rate']:.1%}", f"{first['chance']:.4f}", *counts]


def title(summary: Mapping[str, Any]) -> str:
    """What was measured, the sample called a sample."""
    data, pools = summary["data"], summary["pools"]
    name = f"split {data['split']}"
    if data["sample"]:
        name = "embedded sample, not AlpsBench"
    elif data.get("own"):
        name = f"file {data['split']}"
    seeds = f", {len(pools['seeds'])} pool seeds" if len(pools["seeds"]) > 1 else ""
    strategy = f"{pools['strategy']} pools"
    if name.startswith("file") and pools["strategy"] == "released":
        strategy = "pools as given"
    return f"Task 3, {name}: {data['queries']} queries, {strategy}{seeds}"


def remarks(summary: Mapping[str, Any]) -> list[str]:
    """What a reader must know besides the figures; empty where there is nothing."""
    lines = ["worst-best: recall with the gold last or first among its ties; time: prepare + score"]
    for label in summary.get("fitted_on_these_rows", ()):
        lines.append(f"{label}: settings fitted on these rows: not an estimate for others")
    for cell in summary["cells"]:
        where = f"{cell['retriever']} at {cell['distractors']}"
        for cause, count in cell["failures"].items():
            lines.append(f"{where}: {count} failed: {cause}")
        if cell.get("all_tied"):
            lines.append(
                f"{where}: in {cell['all_tied']} of {cell['scored']} pools nothing matches, all tie"
            )
        for k, recall in cell.get("recall", {}).items():
            if recall["trivial"]:
                lines.append(f"{where}: R@{k} is trivial, k >= pool of {cell['pool_size']}")
            elif recall.get("trivial_pools"):
                count = recall["trivial_pools"]
                lines.append(f"{where}: R@{k} is trivial in {count} pools of at most {k} memories")
            if recall["ceiling"] < 1:
                reason = "queries with the same words have different golds"
                if "recall_any" in cell:
                    reason = f"some queries have more than {k} golds"
                lines.append(f"{where}: R@{k} cannot exceed {recall['ceiling']:.3f}: {reason}")
        if "pool_sizes" in cell:
            sizes = cell["pool_sizes"]
            lines.append(
                f"{where}: pools of {sizes['min']} to {sizes['max']} memories,"
                f" median {sizes['median']:g}"
            )
    for label, notes in summary["notes"].items():
        for what in ("queries", "memories"):
            if notes.get(f"truncated_{what}"):
                lines.append(
                    f"{label}: truncated {what}: {notes[f'truncated_{what}']}"
                    f" of {notes[f'of_{what}']}"
                )
        if notes.get("unreturned_memories"):
            lines.append(
                f"{label}: {notes['unreturned_memories']} of {notes['of_memories']} memories are"
                " not in its files: they share the place below the last"
            )
    lines += _rerank_remarks(summary)
    if summary["pools_with_repeated_ids"]:
        lines.append(
            f"stored ids repeat inside {summary['pools_with_repeated_ids']} pools:"
            " a memory is known by its position, and no retriever sees an id"
        )
    if summary.get("abstentions"):
        lines.append(
            f"queries without gold (abstention): {summary['abstentions']},"
            " counted apart; no pool is scored for them"
        )
    if any("recall_any" in cell for cell in summary["cells"]):
        lines.append(
            "R@k: share of a query's golds found; any@k, all@k: at least one, every one of them"
        )
    if summary["mended"]:
        mended = ", ".join(f"{what} x {count}" for what, count in summary["mended"].items())
        lines.append(f"mended in the data while reading: {mended}")
    return lines


def _rerank_remarks(summary: Mapping[str, Any]) -> list[str]:
    """What a reader must know of reranked labels, a line a label each."""
    cells = {cell["retriever"]: cell for cell in summary["cells"] if "a_query" in cell}
    lines = []
    for label, cell in cells.items():
        depth, sound = cell.get("depth"), summary["notes"].get(label, {}).get("sound_places")
        for k in summary["ks"]:
            if depth is not None and k >= depth:
                lines.append(f"{label}: reranking the first {depth} cannot change R@{k}")
            elif is_count(sound) and k > sound:
                lines.append(f"{label}: R@{k} goes past the first {sound}, all that it orders well")
    if any("first_stage_recall" in cell for cell in cells.values()):
        lines.append("ceiling: the first stage's recall at the depth; no new order gets past it")
    estimated: Counter[str] = Counter()
    for cell in summary["cells"]:
        estimated[cell["retriever"]] += cell.get("estimated_calls", 0)
    for label, cell in cells.items():
        models = summary.get("chat_models", {}).get(label, [])
        if estimated[label]:
            lines.append(
                f"{label}: no tokens told for {estimated[label]} calls: estimated, no cost"
            )
        elif cell["cost"] is None:
            why = "no price for " if len(models) < 2 else "it asks several models: "
            lines.append(f"{label}: cost unknown, {why}{', '.join(models) or 'its model'}")
    return lines


def _trivial(cell: Mapping[str, Any], k: int) -> bool:
    return bool(cell.get("recall", {}).get(str(k), {}).get("trivial", False))
