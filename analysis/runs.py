"""Run folders of sweeps, read back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from analysis.metrics import Metric, summarised_metrics
from analysis.rows import SweepRow, is_sweep_row
from analysis.summary import SweepSummary, summarise
from recallbed.errors import UserError
from recallbed.harness.configurations import is_label
from recallbed.harness.run_folder import (
    MANIFEST,
    ROWS,
    TIMINGS,
    is_count,
    read_manifest,
    read_rows,
)


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder in memory; a last row cut short is left out."""

    path: Path
    manifest: Mapping[str, Any]
    rows: Sequence[SweepRow]
    summaries: dict[tuple[Any, ...], SweepSummary] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Those made so far, by ks and more metrics: each takes thousands of resamples."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of its retrievers, in order."""
        return tuple(entry["label"] for entry in self.manifest["fingerprint"]["retrievers"])

    @property
    def strategy(self) -> str:
        """Return how its pools were made."""
        return str(self.manifest["fingerprint"]["pools"]["strategy"])

    @property
    def rows_of_a_cell(self) -> int:
        """Return how many rows a label has at a size in the finished run."""
        prints = self.manifest["fingerprint"]
        return int(prints["data"]["queries"]) * len(prints["pools"]["seeds"])

    def summary(self, ks: Sequence[int], metric: Metric | None = None) -> SweepSummary:
        """Return its summary for any `ks`, with `metric` even if summaries do not have it."""
        known = metric is None or metric in summarised_metrics(ks, several_golds=False)
        more = () if metric is None or known else (metric,)
        key = tuple(ks), more
        if key not in self.summaries:
            self.summaries[key] = summarise(self.manifest, self.rows, ks, more)
        return self.summaries[key]


def read_run(path: Path) -> Run:
    """Return the run in `path`; raise UserError if there is none, or it has no rows."""
    manifest = read_manifest(path)
    prints = manifest["fingerprint"]
    if "retrievers" not in prints and ("task" in prints or "answer" in prints):
        raise UserError(
            f"{path}: not a run of recallbed sweep."
            " Of other runs, recallbed export --what predictions writes the predictions"
        )
    for new, old in _FORMER_KEYS.items():
        if old in manifest:
            manifest.setdefault(new, manifest.pop(old))
    for name, sound in _fields(manifest):
        if not sound:
            raise UserError(
                f"{path / MANIFEST}: field `{name}` is missing or has an unexpected value"
            )
    labels = [entry["label"] for entry in manifest["fingerprint"]["retrievers"]]
    for label in labels:
        if not is_label(label) or labels.count(label) > 1:
            raise UserError(
                f"{path / MANIFEST}: {label[:80]!r} is not a label. Labels are distinct and consist"
                " of letters, digits, - and _"
            )
    kept, _ = read_rows(path / ROWS, is_sweep_row, "a row of task3.sweep")
    rows = [SweepRow.from_json(row) for row in kept]
    run = Run(path, manifest, rows)
    seeds = len(manifest["fingerprint"]["pools"]["seeds"])
    seen: Counter[tuple[str, int, str]] = Counter()
    for number, row in enumerate(rows, 1):
        place = f"{path / ROWS}:{number}"
        if row.retriever not in run.labels:
            raise UserError(f"{place}: `{row.retriever}` is not a retriever of the manifest")
        key = row.retriever, row.distractors, row.query
        seen[key] += 1
        if seen[key] > seeds:
            raise UserError(f"{place}: `{row.query}` has more rows than there are pools")
    if not rows:
        raise UserError(f"{path}: the run has no rows yet")
    return run


def names_apart(pairs: Sequence[tuple[Run, str]]) -> list[str]:
    """Return a name for each run and label.

    A label of several runs is named with its pool strategy, and with its folder if a label appears
    in several runs of one strategy.
    """
    by_label = Counter(label for _, label in pairs)
    by_both = Counter((label, run.strategy) for run, label in pairs)
    paths = {run.path.resolve(): run.path.resolve().name for run, _ in pairs}
    folders = Counter(paths.values())
    names = []
    for run, label in pairs:
        name = label if by_label[label] == 1 else f"{label}, {run.strategy} pools"
        if by_both[label, run.strategy] > 1:
            folder = run.path.resolve().name
            name += f" ({folder if folders[folder] == 1 else run.path})"
        names.append(name)
    return names


def origin_of(run: Run) -> dict[str, Any]:
    """Return the data and the pools of a run, without the pool sizes, as its fingerprint has them.

    Runs with the same origin are on the same queries and pools wherever they have the same size.
    """
    prints = run.manifest["fingerprint"]
    pools = {key: value for key, value in prints["pools"].items() if key != "distractors"}
    return {"data": prints["data"], "pools": pools}


_FORMER_KEYS = {"repaired": "mended", "duplicate_queries": "rivals"}
"""Keys of a manifest as older versions wrote them."""


def _fields(manifest: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the fields of a manifest that are read, each with whether its value is valid."""
    prints = manifest["fingerprint"]
    retrievers, pools = prints.get("retrievers"), prints.get("pools")
    yield (
        "fingerprint.retrievers",
        isinstance(retrievers, list)
        and all(isinstance(e, dict) and isinstance(e.get("label"), str) for e in retrievers),
    )
    seeds = pools.get("seeds") if isinstance(pools, dict) else None
    yield "fingerprint.pools", isinstance(seeds, list) and all(map(is_count, seeds))
    yield "fingerprint.pools.strategy", isinstance(pools.get("strategy"), str)
    yield "fingerprint.seed", is_count(prints.get("seed"))
    data = prints.get("data")
    yield "fingerprint.data", isinstance(data, dict) and "sample" in data
    yield "fingerprint.data.split", isinstance(data.get("split"), str)
    yield "fingerprint.data.queries", is_count(data.get("queries"))
    for name in ("notes", "repaired", "sessions", "duplicate_queries"):
        yield name, isinstance(manifest.get(name), dict)
    models, prices = manifest.get("chat_models", {}), manifest.get("prices", {})
    yield (
        "chat_models",
        isinstance(models, dict) and all(isinstance(names, list) for names in models.values()),
    )
    yield "prices", isinstance(prices, dict) and all(map(_is_price, prices.values()))
    yield "pools_with_repeated_ids", "pools_with_repeated_ids" in manifest
    yield "sessions", all(isinstance(s, str) for s in manifest["sessions"].values())
    sizes = manifest.get("pool_sizes", {})
    yield "pool_sizes", isinstance(sizes, dict)
    yield "abstentions", is_count(manifest.get("abstentions", 0))
    left_out = manifest.get("left_out", [])
    yield "left_out", isinstance(left_out, list) and all(isinstance(q, str) for q in left_out)
    duplicates = manifest["duplicate_queries"]
    for name, by_pool in (("duplicate_queries", duplicates), ("pool_sizes", sizes)):
        for counts in by_pool.values():
            sound = isinstance(counts, dict) and all(is_count(n) and n > 0 for n in counts.values())
            yield name, sound


def _is_price(price: Any) -> bool:
    return isinstance(price, dict) and all(type(price.get(key)) is float for key in ("in", "out"))


def seconds_by_label(path: Path) -> dict[str, tuple[float, float]]:
    """Return by label the seconds of preparing and of scoring, over all parts of a run."""
    spent: dict[str, tuple[float, float]] = {}
    for record in _timings(path):
        prepare, score = spent.get(record["retriever"], (0.0, 0.0))
        if record.get("phase") == "prepare":
            prepare += record["seconds"]
        else:
            score += record["seconds"]
        spent[record["retriever"]] = (prepare, score)
    return spent


def seconds_per_row(path: Path, label: str, distractors: int) -> list[float]:
    """Return the seconds of each pool of one label and size, without preparing."""
    try:
        found = (path / TIMINGS).stat()
    except OSError as error:
        raise UserError(f"{path / TIMINGS}: cannot be read ({error.strerror})") from None
    by_cell = _seconds_by_cell(path, (found.st_ino, found.st_mtime_ns, found.st_size))
    return list(by_cell.get((label, distractors), ()))


@lru_cache(maxsize=4)  # a frontier asks for every label and size of a run
def _seconds_by_cell(path: Path, state: tuple[int, int, int]) -> dict[tuple[str, Any], list[float]]:
    """By label and size; `state` is that of the file, which changes when it is written."""
    found: dict[tuple[str, Any], list[float]] = {}
    for record in _timings(path):
        if isinstance(record.get("distractors"), int | None):
            cell = record["retriever"], record.get("distractors")
            found.setdefault(cell, []).append(record["seconds"])
    return found


def _timings(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of timings.jsonl, without one that a full disk cut short."""
    try:
        raw = (path / TIMINGS).read_bytes()
    except OSError as error:
        raise UserError(f"{path / TIMINGS}: cannot be read ({error.strerror})") from None
    for line in raw.split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if (
            isinstance(record, dict)
            and isinstance(record.get("retriever"), str)
            and type(record.get("seconds")) in (int, float)
        ):
            yield record
