"""An audit as text: a summary in words, a table with one line per finding, and remarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from analysis.findings import RECALL, Cleaned, Finding
from analysis.p_values import p_text
from analysis.shortcut_scores import KS
from recallbed.harness.text_table import TextTable

if TYPE_CHECKING:
    from analysis.audit import Audit

OTHER_TASKS = "other tasks"


def audit_summary(found: Audit) -> Iterator[str]:
    """Yield the first lines of the report: the worst finding of each group in words."""
    data = found.data
    where = f"{data.split}, {data.distractors} distractors, {_count(len(data.rows), 'query')}"
    shortcuts = found.of("shortcut")
    of_pools = [one for one in shortcuts if one.group != OTHER_TASKS]
    of_inputs = [one for one in shortcuts if one.group == OTHER_TASKS]
    notes = found.of("note")
    if of_pools:
        yield f"{_count(len(of_pools), 'shortcut')} in {where}:"
        yield from (f"  {_in_words(one)}" for one in _first_of_group(of_pools))
    else:
        yield f"No shortcut in {where}."
    if notes:
        yield "Notes:"
        yield from (f"  {_in_words(one)}" for one in _first_of_group(notes))
    elif not of_pools:
        tested = sum(one.holm is not None and one.group != OTHER_TASKS for one in found.findings)
        yield f"None of {tested} rankers that read no text is above chance by 1 % of the way to 1."
    if of_inputs:
        yield "Inputs of other tasks that name the memory they ask for (no loader reads the field):"
        yield from (f"  {_in_words(one)}" for one in of_inputs)


def _count(number: int, what: str) -> str:
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number:,} {what if number == 1 else several}"


def _first_of_group(findings: Sequence[Finding]) -> list[Finding]:
    """The worst of each group; each field is a group of its own."""
    first: dict[str, Finding] = {}
    for one in findings:
        first.setdefault(one.name if one.group == "fields" else one.group, one)
    return list(first.values())


def _in_words(finding: Finding) -> str:
    if finding.unit != RECALL or finding.value is None:
        return f"{finding.name}: {finding.text}"
    bounds = finding.interval
    interval = f" [{bounds.low:.3f}, {bounds.high:.3f}]" if bounds else ""
    return f"recall@1 {finding.value:.3f}{interval}, chance {finding.chance:.3f}, by {finding.by}"


def audit_table(found: Audit) -> TextTable:
    """Return the findings as a table, one line each."""
    table = TextTable(
        "Recall@1 of rankers that read no text, and shares of queries and texts",
        ["verdict", "what", "value", "95 % interval", "chance", "p (Holm)", "recall@5", "cleaned"],
        keys=2,
        texts=("what", "cleaned"),
    )
    for one in found.findings:
        if one.verdict == "not applicable":
            continue
        interval = one.interval
        table.add(
            *(one.verdict, one.name, "-" if one.value is None else f"{one.value:.4f}"),
            f"[{interval.low:.4f}, {interval.high:.4f}]" if interval else "-",
            "-" if one.chance is None else f"{one.chance:.4f}",
            p_text(one.holm),
            f"{one.recall[5]:.4f}" if 5 in one.recall else "-",
            _cleaned_text(one.cleaned),
        )
    return table


def _cleaned_text(cleaned: Cleaned | None) -> str:
    if cleaned is None:
        return ""
    if cleaned.step is None:
        return "stays"
    return "gone" if cleaned.value is None else f"{cleaned.value:.4f}, {cleaned.verdict}"


def report_lines(found: Audit) -> Iterator[str]:
    """Yield the lines below the table: what does not apply, what stays, and the reference."""
    silent: dict[str, list[str]] = {}
    for one in found.of("not applicable"):
        silent.setdefault(one.text, []).append(one.name)
    for why, names in silent.items():
        yield f"not applicable: {', '.join(names)}: {why}"
    kept: dict[str, list[str]] = {}
    for one in found.findings:
        if one.cleaned and one.cleaned.step is None and one.group != OTHER_TASKS:
            kept.setdefault(one.cleaned.reason, []).append(one.name)
    for reason, names in kept.items():
        yield f"not removed from the cleaned view: {', '.join(names)}: {reason}"
    changed = found.cleaned.changed.items()
    steps = ", ".join(f"{step} ({count:,})" if count else step for step, count in changed)
    yield f"cleaned view: {steps}; {len(found.cleaned.rows):,} queries are left"
    sides = found.reference.before, found.reference.after
    parts = [f"recall@{k} {sides[0].recall[k]:.4f}, cleaned {sides[1].recall[k]:.4f}" for k in KS]
    yield f"shared words (weighted by rarity in the pool), for comparison: {'; '.join(parts)}"


def listed(found: Audit) -> Iterator[str]:
    """Yield the places of each finding: query, positions, similarity, how it was found, text."""
    for one in found.findings:
        for example in one.examples:
            places = ", ".join(map(str, example.positions))
            parts = [
                example.query_id,
                f"position {places}" if places else "",
                "" if example.similarity is None else f"{example.similarity:.2f}",
                example.how,
                example.text,
            ]
            yield f"{one.name}: {' | '.join(part for part in parts if part)}"
