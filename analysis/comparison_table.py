"""Paired comparisons as tables: of retrievers, and of runs of one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analysis.metrics import Recall
from analysis.p_values import p_text
from analysis.paired import Paired
from analysis.significance import ALPHA, Pairing, SideArea
from recallbed.harness.terminal import note
from recallbed.harness.text_table import TextTable

MEASURES = (
    *("difference", "95 % interval", "wins", "ties", "losses"),
    *("p", "McNemar p", "Holm p", "effect", "verdict"),
)


class TableLine(NamedTuple):
    """One comparison: its keys, the names of its sides, and the outcome."""

    keys: tuple[str, ...]
    a: str
    b: str
    paired: Paired
    holm: float | None


def comparison_table(results: Sequence[Pairing]) -> TextTable:
    """Return pairings, at least one, as a table: one line per size, metric and pair."""
    recall = all(type(one.metric) is Recall for one in results)
    area = bool(results[0].sizes)
    lines = []
    for one in results:
        metric = one.metric.name.removeprefix("R@") if recall else one.metric.name
        keys = (metric,) if area else (str(one.distractors), metric)
        lines.append(TableLine(keys, one.a, one.b, one.paired, one.holm))
    heads = ("k",) if recall else ("metric",)
    what = "Recall@k of " if recall else ""
    if area:
        what = f"Area under {'recall@k' if recall else 'the curve'} against log pool size of "
    return pairs_table(what, heads if area else ("distractors", *heads), lines, "query")


def area_table(areas: Sequence[SideArea]) -> TextTable:
    """Return the area under each side's curve as a table."""
    table = TextTable(
        "Area under the curve against log pool size",
        ["retriever", "metric", "distractors", "n", "area [95 %]"],
        keys=2,
        texts=("metric",),
    )
    for one in areas:
        sizes = ",".join(map(str, one.sizes))
        mean = f"{one.mean.mean:.4f} [{one.mean.low:.4f}, {one.mean.high:.4f}]"
        table.add(one.side, one.metric.name, sizes, one.n, mean)
    return table


def pairs_table(
    what: str,
    heads: Sequence[str],
    lines: Sequence[TableLine],
    unit: str,
    texts: Sequence[str] = (),
) -> TextTable:
    """Return comparisons as a table; those of one pair have its names as columns.

    The title is `what` and the pair.
    """
    pairs = list(dict.fromkeys((line.a, line.b) for line in lines))
    sides: tuple[str, ...] = ()
    if len(pairs) == 1:
        means = pairs[0]
        title = f"{what}{' and '.join(means)}"
    else:
        sides, means = ("a", "b"), ("mean a", "mean b")
        title = f"{what}a - b"
    table = TextTable(
        f"{title}, paired by {unit}",
        [*heads, *sides, "n", *means, *MEASURES],
        keys=len(heads) + len(sides),
        texts=(*texts, *sides, "verdict"),
    )
    for line in lines:
        named = (line.a, line.b) if sides else ()
        table.add(*line.keys, *named, *_cells(line))
    return table


def _cells(line: TableLine) -> list[str]:
    r = line.paired
    verdicts = {"a is better": f"{line.a} is better", "b is better": f"{line.b} is better"}
    verdict = verdicts.get(r.verdict or "", r.verdict or "-")
    if r.verdict in verdicts and line.holm is not None and line.holm > ALPHA:
        verdict += " (not after Holm)"
    return [
        *(str(r.n), f"{r.a:.4f}", f"{r.b:.4f}", f"{r.difference:+.4f}"),
        "-" if r.low is None else f"[{r.low:+.4f}, {r.high:+.4f}]",
        *(str(r.wins), str(r.ties), str(r.losses)),
        *(p_text(r.p), p_text(r.mcnemar), p_text(line.holm)),
        "-" if r.effect is None else f"{r.effect:+.3f}",
        "no difference" if r.equal else verdict,
    ]


def note_reasons(results: Sequence[Paired], families: Mapping[str, Sequence[float | None]]) -> None:
    """Print on stderr what `comparison_remarks` says."""
    note(*comparison_remarks(results, families))


def comparison_remarks(
    results: Sequence[Paired], families: Mapping[str, Sequence[float | None]]
) -> list[str]:
    """Return why figures are missing, each reason once, and what Holm corrects for.

    `families` has the adjusted p-values by what they are of, such as `comparisons`.
    """
    lines = [f"no interval and no verdict: {r.reason}" for r in results if r.reason]
    lines += [
        f"no McNemar p: {r.mcnemar_reason}"
        for r in results
        if r.mcnemar_reason and r.mcnemar_reason != r.reason
    ]
    lines += [
        f"no effect size: {r.effect_reason}"
        for r in results
        if r.effect_reason and r.effect_reason != r.reason
    ]
    for what, ps in families.items():
        tests = sum(p is not None for p in ps)
        if tests > 1:
            lines.append(f"Holm p: corrected for {tests} {what}")
    return list(dict.fromkeys(lines))


def note_left_out(results: Sequence[Pairing]) -> None:
    """Print on stderr how many queries failed at each size, by pair if there are several."""
    pairs = {(one.a, one.b) for one in results}
    for (size, a, b), count in {
        (one.distractors, one.a, one.b): one.unpaired for one in results if one.unpaired
    }.items():
        pair = f"{a} and {b}: " if len(pairs) > 1 else ""
        note(
            f"{pair}{count} queries left out at {size} distractors: they failed on one side or both"
        )
