"""`python -m memory_scoring.annotators A.jsonl B.jsonl`: agreement on the memories of each row.

The paper's figures for tasks 1 and 2 (arXiv 2603.26680, section 3): F1 of the sets of memories,
Spearman's correlation of confidence, and kappa of type, label and time scope over paired memories.
It does not say how memories are paired; `--pair` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import typer

from judges.agreement import describe_measures
from judges.nominal import measure_sums, measured_value, nominal_measures
from judges.summary import pair_f1, spearman
from memory_scoring.pairing import coverage, hungarian, similar_pairs
from memory_scoring.predictions import Items, MemoryList, read_memory_lists
from memory_scoring.similarity import text_similarity
from recallbed.corpus.predictions import NameLookup, PredictionFile
from recallbed.corpus.records import MemoryItem
from recallbed.errors import DataError, UserError
from recallbed.harness.app import App
from recallbed.harness.options import AsJson, Seed

PairBy = Literal["text", "match", "id"]
SAME_FROM = 0.5
"""From this similarity two texts may be one memory."""
MOST_LEVELS = 40
NO_SPREAD = "fewer than two different confidences of a rater"
EMPTY = "no memories"
ATTRIBUTES: Mapping[str, Callable[[MemoryItem], str | None]] = {
    "type": lambda item: item.type,
    "label": lambda item: item.label,
    "time_scope": lambda item: item.time_scope,
}
Both: TypeAlias = tuple[MemoryItem, MemoryItem]
app = App()


def read_annotator(path: Path) -> dict[str, Items]:
    """Return the memories of each row by benchmark_id.

    Raise DataError for a file that cannot be read, a row that is not valid, and a repeated id.
    """
    file: PredictionFile[MemoryList] = read_memory_lists(path)
    for tally in (file.malformed, file.nameless):
        if tally.count:
            raise DataError(tally.first_faults[0])
    found: dict[str, Items] = {}
    for row in file.predictions:
        if row.value is None:
            raise DataError(row.fault)
        if row.benchmark_id in found:
            raise DataError(f"benchmark_id `{row.benchmark_id}` appears twice", path, row.line)
        found[row.benchmark_id] = row.value.items
    return found


def pair_memories(first: Items, second: Items, by: PairBy) -> list[Both]:
    """Return the memories of two lists that are one memory, one to one.

    By `text`: the assignment with the largest sum of text similarities, without those below 0.5;
    `match`: the leaderboard's matcher, which compares label, type and confidence too; `id`: equal
    memory_ids, the first of each list.
    """
    if by == "match":
        return [(first[p.gold], second[p.predicted]) for p in similar_pairs(first, second)]
    if by == "id":
        mine, theirs = _by_id(first), _by_id(second)
        return [(item, theirs[name]) for name, item in mine.items() if name in theirs]
    scores = np.array([[text_similarity(a.text, b.text) for b in second] for a in first])
    found = hungarian(scores) if scores.size else []
    return [(first[i], second[j]) for i, j in found if scores[i, j] >= SAME_FROM]


def _by_id(items: Items) -> dict[str, MemoryItem]:
    found: dict[str, MemoryItem] = {}
    for item in items:
        name = (item.id or "").strip().lower()
        if name:
            found.setdefault(name, item)
    return found


def compare_annotators(
    first: Mapping[str, Items], second: Mapping[str, Items], by: PairBy = "text", seed: int = 0
) -> dict[str, Any]:
    """Return what --json prints. Rows that both have are compared; intervals draw whole rows.

    Raise UserError if they have no row in common.
    """
    lookup = NameLookup(second)
    rows = {name: other for name in first if (other := lookup.find(name)) is not None}
    if not rows:
        raise UserError("the files have no benchmark_id in common")
    names = list(rows)
    pairs = {name: pair_memories(first[name], second[rows[name]], by) for name in names}
    sizes = [(len(pairs[name]), len(first[name]), len(second[rows[name]])) for name in names]
    counts = np.array(sizes, float)
    per_row = np.array([[coverage(n, b, a)[2], 1.0] for n, a, b in sizes])
    flat = [(name, pair) for name in names for pair in pairs[name]]
    clusters = [name for name, _ in flat]
    in_pairs, in_first, in_second = (int(n) for n in counts.sum(0))
    measures = {
        "memory-set F1": measure_sums(
            counts, names, lambda n: pair_f1(n[..., 0], n[..., 1], n[..., 2]), EMPTY, seed
        ),
        "memory-set F1, mean of rows": measure_sums(
            per_row, names, lambda n: n[..., 0] / n[..., 1], EMPTY, seed
        ),
        "confidence, Spearman": _confidence(flat, seed),
    }
    for name, value in ATTRIBUTES.items():
        labels = [(_label(value(one)), _label(value(other))) for _, (one, other) in flat]
        found = nominal_measures(labels, clusters, seed)
        shared = sum(None not in pair for pair in labels)
        measures[f"{name}, kappa"] = {**found["kappa"], "n": shared}
        if shared < len(labels):
            measures[f"{name}, kappa with missing ratings"] = found["kappa_missing"]
    return {
        "pair": by,
        "rows": len(rows),
        "only_in_a": len(first) - len(rows),
        "only_in_b": len(second) - len({*rows.values()}),
        "memories": {"a": in_first, "b": in_second, "paired": in_pairs},
        "seed": seed,
        "measures": measures,
    }


def _label(value: str | None) -> str | None:
    return (value or "").strip() or None


def _confidence(flat: Sequence[tuple[str, Both]], seed: int) -> dict[str, Any]:
    """Spearman's correlation over the pairs in which both memories have a confidence."""
    known = [
        (name, one.confidence, other.confidence)
        for name, (one, other) in flat
        if one.confidence is not None and other.confidence is not None
    ]
    first, second = (sorted({row[i] for row in known}) for i in (1, 2))
    n = {"n": len(known)}
    if len(first) < 2 or len(second) < 2:
        return {**measured_value(np.nan, np.empty(0), NO_SPREAD), **n}
    if max(len(first), len(second)) > MOST_LEVELS:
        from scipy.stats import spearmanr

        value = float(spearmanr([row[1] for row in known], [row[2] for row in known]).statistic)
        reason = f"more than {MOST_LEVELS} different confidences"
        return {"value": value, "low": None, "high": None, "reason": reason, **n}
    levels = sorted({*first, *second})
    place = {level: i for i, level in enumerate(levels)}
    counts = np.zeros((len(known), len(levels) ** 2))
    for row, (_, one, other) in enumerate(known):
        counts[row, place[one] * len(levels) + place[other]] = 1
    found = measure_sums(
        counts,
        [name for name, _, _ in known],
        lambda n: spearman(n.reshape(-1, len(levels), len(levels))),
        NO_SPREAD,
        seed,
    )
    return {**found, **n}


def describe_annotators(result: Mapping[str, Any]) -> Iterator[str]:
    """Return the result as lines of text."""
    memories = result["memories"]
    yield (
        f"{result['rows']} rows in both, {result['only_in_a']} only in A,"
        f" {result['only_in_b']} only in B"
    )
    yield f"memories: A {memories['a']}, B {memories['b']}, paired by {result['pair']}" + (
        f" {memories['paired']}"
    )
    yield from describe_measures(result["measures"])


@app.command(
    examples=(
        "recallbed annotators first.jsonl second.jsonl",
        "recallbed annotators first.jsonl second.jsonl --pair id --json",
    )
)
def annotators(
    a: Annotated[Path, typer.Argument(help="Rows with benchmark_id and memory_items.")],
    b: Annotated[Path, typer.Argument(help="Those of the other annotator or system.")],
    *,
    pair: Annotated[
        PairBy,
        typer.Option(
            help="Which memories are one: similar text, the leaderboard's matcher, or equal ids."
        ),
    ] = "text",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the memory lists of two annotators.

    F1 of the lists, and over paired memories Spearman's correlation of confidence and kappa of
    type, label and time scope.
    """
    from recallbed.harness.terminal import say_result

    result = compare_annotators(read_annotator(a), read_annotator(b), pair, seed)
    say_result(result, describe_annotators(result), as_json)


if __name__ == "__main__":
    app()
