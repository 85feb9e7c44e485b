"""The table at the end of a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.metrics import METRICS, Metric, MetricAtK, Recall
from analysis.runs import seconds_by_label
from analysis.summary import Cell, SweepSummary
from recallbed.harness.failures import with_reason
from recallbed.harness.run_folder import is_count
from recallbed.harness.terminal import note
from recallbed.harness.text_table import TextTable, print_tables

COSTS = ("calls per query", "tokens in / out per query", "cost", "repairs", "ceiling")


def print_table(path: Path, summary: SweepSummary) -> None:
    """Print the summary of the run in `path` on stdout, and its remarks on stderr."""
    print_tables([build_table(summary, seconds_by_label(path))])
    note(*remarks(summary))


def build_table(summary: SweepSummary, seconds: Mapping[str, tuple[float, float]]) -> TextTable:
    """Return one line per retriever and size; `seconds` are of preparing and scoring, by label."""
    metrics = _columns(summary)
    first = metrics[0] if isinstance(metrics[0], Recall) else None
    heads = ["retriever", "distractors"]
    for metric in metrics:
        heads += [f"{metric.name} [95 %]", "worst-best"] if metric is first else [metric.name]
    costs = COSTS if any(cell.reranked for cell in summary.cells) else ()
    heads += ["tied", "chance", *costs, "attempted", "scored", "failed", "prep + score"]
    table = TextTable(title(summary), heads, keys=2)
    shown: set[str] = set()
    for cell in summary.cells:
        label = cell.retriever
        prepare, score = seconds.get(label, (0.0, 0.0))
        time = "" if label in shown else f"{prepare:.1f} + {score:.1f} s"
        shown.add(label)
        figures = ["-"] * (len(metrics) + (first is not None) + 2)
        if cell.estimates:
            figures = [text for metric in metrics for text in _figures(cell, metric, first)]
            chance = cell.estimates[first].chance if first else 1.0
            figures += [f"{cell.tie_rate:.1%}", f"{chance:.4f}"]
        counts = cell.attempted, cell.scored, cell.failed
        money = _costs(cell, first) if costs else ()
        table.add(label, cell.distractors, *figures, *money, *counts, time)
    return table


def _columns(summary: SweepSummary) -> list[Metric]:
    """Recall at each k that is not trivial everywhere, then the other metrics of tables."""
    several = any(cell.several_golds for cell in summary.cells)
    ks = [k for k in summary.ks if not all(_trivial(cell, k) for cell in summary.cells)]
    kinds = [kind for kind in METRICS if kind.tabulated and kind is not Recall]
    kinds = [kind for kind in kinds if several or not kind.several_golds]
    at_k = [metric for k in ks for kind in kinds for metric in kind.at([k])]
    others = [metric for kind in kinds for metric in kind.at([])]
    return [*Recall.at(ks), *(metric for metric in at_k if metric not in others), *others]


def _trivial(cell: Cell, k: int) -> bool:
    recall = cell.recalls().get(k)
    return recall is not None and bool(recall.trivial)


def _figures(cell: Cell, metric: Metric, first: Metric | None) -> list[str]:
    estimate = cell.estimates.get(metric)
    if estimate is None:  # with one gold per query, any and all are recall
        assert isinstance(metric, MetricAtK)
        estimate = replace(cell.recalls()[metric.k], trivial=None)
    if estimate.trivial:
        return ["k >= pool"] * (2 if metric is first else 1)
    if metric is not first:
        return [f"{estimate.mean:.3f}"]
    return [
        f"{estimate.mean:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]",
        f"{estimate.worst:.3f}-{estimate.best:.3f}",
    ]


def _costs(cell: Cell, first: Metric | None) -> list[str]:
    """The columns COSTS; empty for a label that asked no chat model and reranked nothing."""
    report = cell.reranked
    if report is None:
        return [""] * len(COSTS)
    ceiling = report.first_stage_recall.get(first.k) if isinstance(first, Recall) else None
    return [
        f"{report.per_query['calls']:.2f}",
        f"{report.per_query['tokens_in']:.0f} / {report.per_query['tokens_out']:.0f}",
        "unknown" if report.cost is None else f"{report.cost:.4f}",
        str(sum(cell.repairs.values())),
        "" if ceiling is None else f"{ceiling:.3f}",
    ]


def title(summary: SweepSummary) -> str:
    """Return what was measured; the sample is called a sample."""
    return measured(summary.facts)


def measured(facts: Mapping[str, Any]) -> str:
    """Return what was measured, from the facts of a summary or a run's fingerprint."""
    data, pools = facts["data"], facts["pools"]
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


def remarks(summary: SweepSummary) -> list[str]:
    """Return what a reader must know besides the figures, each statement once."""
    lines = []
    if any(cell.tie_rate for cell in summary.cells):
        lines.append("worst-best: recall with the gold last or first among its ties")
    for label in summary.facts["fitted_on_these_rows"]:
        lines.append(f"{label}: settings were fitted on these rows: not an estimate for other rows")
    if left_out := summary.facts.get("left_out"):
        lines.append(
            f"--unseen: {left_out} queries left out, as a retriever was trained on their sessions"
        )
    lines += _cell_remarks(summary)
    for label, notes in summary.facts["notes"].items():
        for what in ("queries", "memories"):
            if notes.get(f"truncated_{what}"):
                lines.append(
                    f"{label}: truncated {what}: {notes[f'truncated_{what}']}"
                    f" of {notes[f'of_{what}']}"
                )
        if notes.get("unreturned_memories"):
            lines.append(
                f"{label}: {notes['unreturned_memories']} of {notes['of_memories']} memories are"
                " not in its files: they share one rank below the last"
            )
    lines += _rerank_remarks(summary)
    if repeated := summary.facts["pools_with_repeated_ids"]:
        lines.append(
            f"stored ids repeat in {repeated} pools:"
            " memories are identified by position, and no retriever sees an id"
        )
    if abstentions := summary.facts["abstentions"]:
        lines.append(
            f"queries without gold (abstention): {abstentions},"
            " counted apart; no pool is scored for them"
        )
    if any(cell.several_golds for cell in summary.cells):
        lines.append(
            "R@k: share of a query's golds found; any@k, all@k: at least one, every one of them"
        )
    if repaired := summary.facts["repaired"]:
        counts = ", ".join(f"{what} x {count}" for what, count in repaired.items())
        lines.append(f"repaired while reading the data: {counts}")
    return lines


def _cell_remarks(summary: SweepSummary) -> Iterator[str]:
    """Yield statements about single cells, one line each, naming the cells."""
    statements: dict[tuple[str, str], dict[str, list[tuple[str, int]]]] = {}
    for cell in summary.cells:
        for before, figure, after in _of_cell(cell):
            named = statements.setdefault((before, after), {}).setdefault(figure, [])
            named.append((cell.retriever, cell.distractors))
    cells = [(cell.retriever, cell.distractors) for cell in summary.cells]
    for (before, after), found in statements.items():
        if len(found) == 1:
            [(figure, named)] = found.items()
            yield f"{_names(named, cells)}: {before}{figure}{after}"
        else:
            parts = (f"{figure} ({_names(named, cells)})" for figure, named in found.items())
            yield f"{before}{', '.join(parts)}{after}"


def _of_cell(cell: Cell) -> Iterator[tuple[str, str, str]]:
    """Yield statements as text, the figure that may differ between cells, text."""
    for cause, failed in cell.failures.items():
        yield "", str(failed), f" failed: {with_reason(cause, cell.reasons.get(cause, ''))}"
    if cell.all_tied:
        count = f"{cell.all_tied} of {cell.scored}"
        yield "pools in which all memories have one score: ", count, ""
    for k, recall in cell.recalls().items():
        if recall.trivial:
            yield f"R@{k} is trivial, k >= pool of ", str(cell.pool_sizes[2]), ""
        elif recall.trivial_pools:
            count = str(recall.trivial_pools)
            yield f"R@{k} is trivial in ", count, f" pools of at most {k} memories"
        if recall.ceiling is not None and recall.ceiling < 1:
            reason = "queries with the same text have different golds"
            if cell.several_golds:
                reason = f"some queries have more than {k} gold{'s'[: k > 1]}"
            yield f"R@{k} cannot exceed ", f"{recall.ceiling:.3f}", f": {reason}"
    smallest, median, largest = cell.pool_sizes
    if smallest < largest:
        sizes = f"{smallest} to {largest} memories, median {median:g}"
        yield "pools of ", sizes, ""


def _names(found: Sequence[tuple[str, int]], cells: Sequence[tuple[str, int]]) -> str:
    """Name cells; the labels are left out if all of them are meant."""
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


def _rerank_remarks(summary: SweepSummary) -> list[str]:
    """Return what a reader must know about reranked labels, one line each."""
    reports = {cell.retriever: cell.reranked for cell in summary.cells if cell.reranked}
    lines = []
    for label, report in reports.items():
        sound = summary.facts["notes"].get(label, {}).get("sound_places")
        for k in summary.ks:
            if report.depth is not None and k >= report.depth:
                lines.append(f"{label}: reranking the first {report.depth} cannot change R@{k}")
            elif is_count(sound) and k > sound:
                lines.append(
                    f"{label}: R@{k} is past the {sound} positions that it orders reliably"
                )
    if any(report.first_stage_recall for report in reports.values()):
        lines.append(
            "ceiling: the first stage's recall at the depth, which no reranking can exceed"
        )
    estimated: Counter[str] = Counter()
    for cell in summary.cells:
        estimated[cell.retriever] += cell.reranked.estimated_calls if cell.reranked else 0
    for label, report in reports.items():
        models = summary.facts.get("chat_models", {}).get(label, [])
        if estimated[label]:
            lines.append(
                f"{label}: tokens of {estimated[label]} calls are estimates (not reported): no cost"
            )
        elif report.cost is None:
            why = "no price for " if len(models) < 2 else "it asks several models: "
            lines.append(f"{label}: cost unknown, {why}{', '.join(models) or 'its model'}")
    return lines
