"""The table at the end of a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis.runs import seconds_by_label
from recallbed.harness.failures import with_reason
from recallbed.harness.run_folder import is_count
from recallbed.harness.terminal import note
from recallbed.harness.text_table import TextTable, print_tables

COSTS = ("calls a query", "tokens in / out a query", "cost", "repairs", "ceiling")


def print_table(path: Path, summary: Mapping[str, Any]) -> None:
    """Print the summary of the run in `path` on stdout, and what a reader must know on stderr."""
    print_tables([build_table(summary, seconds_by_label(path))])
    print_remarks(summary)


def print_remarks(summary: Mapping[str, Any]) -> None:
    """Print what a reader must know of a summary on stderr."""
    note(*remarks(summary))


def build_table(
    summary: Mapping[str, Any], seconds: Mapping[str, tuple[float, float]]
) -> TextTable:
    """One line a retriever and size."""
    ks = [k for k in summary["ks"] if not all(_trivial(c, k) for c in summary["cells"])]
    heads = ["retriever", "distractors"]
    for i, k in enumerate(ks):
        heads += [f"R@{k} [95 %]", "worst-best"] if i == 0 else [f"R@{k}"]
    several = any("recall_any" in cell for cell in summary["cells"])
    for k in ks if several else ():
        heads += [f"any@{k}", f"all@{k}"]
    costs = COSTS if _reranked(summary) else ()
    heads += ["E[RR]", "tied", "chance", *costs, "attempted", "scored", "failed"]
    table = TextTable(title(summary), [*heads, "prep + score"], keys=2)
    shown: set[str] = set()
    for cell in summary["cells"]:
        label = cell["retriever"]
        prepare, score = seconds.get(label, (0.0, 0.0))
        time = "" if label in shown else f"{prepare:.1f} + {score:.1f} s"
        shown.add(label)
        counts = [str(cell[key]) for key in ("attempted", "scored", "failed")]
        counts = [*(_costs(cell, ks) if costs else ()), *counts]
        table.add(label, cell["distractors"], *_figures(cell, ks, several, counts), time)
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
    """What a reader must know besides the figures, each once; empty where there is nothing."""
    lines = []
    if any(cell.get("tie_rate") for cell in summary["cells"]):
        lines.append("worst-best: recall with the gold last or first among its ties")
    for label in summary.get("fitted_on_these_rows", ()):
        lines.append(f"{label}: settings fitted on these rows: not an estimate for others")
    lines += _cell_remarks(summary)
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
            f"stored ids repeat in {summary['pools_with_repeated_ids']} pools:"
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


def _cell_remarks(summary: Mapping[str, Any]) -> Iterator[str]:
    """What is true of single cells: one line for each statement, naming the cells."""
    said: dict[tuple[str, str], dict[str, list[tuple[str, int]]]] = {}
    for cell in summary["cells"]:
        for before, figure, after in _of_cell(cell):
            where = said.setdefault((before, after), {}).setdefault(figure, [])
            where.append((cell["retriever"], cell["distractors"]))
    cells = [(cell["retriever"], cell["distractors"]) for cell in summary["cells"]]
    for (before, after), found in said.items():
        if len(found) == 1:
            [(figure, where)] = found.items()
            yield f"{_named(where, cells)}: {before}{figure}{after}"
        else:
            parts = (f"{figure} ({_named(where, cells)})" for figure, where in found.items())
            yield f"{before}{', '.join(parts)}{after}"


def _of_cell(cell: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Statements about a cell: text, the figure that may differ between cells, text."""
    reasons = cell.get("reasons", {})
    for cause, count in cell["failures"].items():
        yield (
            "",
            str(count),
            f" failed: {with_reason(cause, reasons.get(cause, ''))}",
        )
    if cell.get("all_tied"):
        count = f"{cell['all_tied']} of {cell['scored']}"
        yield "pools in which nothing matches and all tie: ", count, ""
    for k, recall in cell.get("recall", {}).items():
        if recall["trivial"]:
            yield f"R@{k} is trivial, k >= pool of ", str(cell["pool_size"]), ""
        elif recall.get("trivial_pools"):
            count = recall["trivial_pools"]
            yield f"R@{k} is trivial in ", str(count), f" pools of at most {k} memories"
        if recall["ceiling"] < 1:
            reason = "queries with the same words have different golds"
            if "recall_any" in cell:
                reason = f"some queries have more than {k} golds"
            yield f"R@{k} cannot exceed ", f"{recall['ceiling']:.3f}", f": {reason}"
    if "pool_sizes" in cell:
        sizes = cell["pool_sizes"]
        count = f"{sizes['min']} to {sizes['max']} memories, median {sizes['median']:g}"
        yield "pools of ", count, ""


def _named(found: Sequence[tuple[str, int]], cells: Sequence[tuple[str, int]]) -> str:
    """Cells in words; the labels are named unless all of them are meant."""
    by_label: dict[str, list[int]] = {}
    for label, size in found:
        by_label.setdefault(label, []).append(size)
    if len(found) == len(cells) and len({size for _, size in cells}) > 1:
        return "at all sizes"
    sizes = {label: ", ".join(map(str, at)) for label, at in by_label.items()}
    if len(set(sizes.values())) > 1:
        return "; ".join(f"{label} at {at}" for label, at in sizes.items())
    everyone = 1 < len(by_label) == len({label for label, _ in cells})
    labels = "" if everyone else ", ".join(by_label) + " "
    return f"{labels}at {next(iter(sizes.values()))}"


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
