"""Shortcuts in the data of task 3: what finds the gold without reading, and other faults.

`python -m analysis.audit DATA` for a release or a file of own memories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis.audit_data import AuditData, AuditRow, read_audit_data
from analysis.cleaned_pools import (
    ALWAYS,
    CHARACTERS,
    EQUAL,
    FIELDS,
    IDS,
    IN_QUERY,
    LABELS,
    MARKS,
    ORDER,
    PARAPHRASES,
    REPEATS,
    CleanedPools,
    clean,
)
from analysis.findings import Cleaned, Finding, Verdict, worst_first
from analysis.shortcut_scores import KS, ShortcutScore, score_shortcuts
from analysis.statistics import rounded
from recallbed.corpus.layout import SAMPLE_NOTE
from recallbed.corpus.options import PoolOptions, Split
from recallbed.harness.app import App
from recallbed.harness.options import AsJson, Seed, Without

app = App()
_TEXTS_NEEDED = "a property of the texts: other distractors or other texts are needed"
_REMOVED_BY: dict[str, tuple[str | None, str]] = {
    "ids": (IDS, ""),
    "position": (ORDER, ""),
    "label": (LABELS, ""),
    "fields": (FIELDS, ""),
    "other tasks": (None, "the cleaned view has the pools only; the loaders do not read the field"),
    "marks": (MARKS, ""),
    "length": (None, _TEXTS_NEEDED),
    "language": (None, _TEXTS_NEEDED),
    "repeats": (REPEATS, ""),
    "encoding": (CHARACTERS, ""),
    "gold in the query": (IN_QUERY, ""),
    "words of the gold": (None, "it is what a lexical retriever finds"),
    "paraphrases of the gold": (PARAPHRASES, ""),
    "equal queries": (EQUAL, ""),
    "rows in other splits": (None, "leave them out of one of the splits"),
    "text rarest in all pools": (None, "the distractors were drawn so: draw others"),
    "text commonest in all pools": (None, "the distractors were drawn so: draw others"),
}
"""By name of a finding, else by its group: the step that removes it, or why none does."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Recall of a plain lexical retriever before and after cleaning, by k; see `word_scores`."""

    before: ShortcutScore
    after: ShortcutScore

    def to_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        sides = (("before", self.before), ("after", self.after))
        return {
            name: {
                "recall": {str(k): score.recall[k] for k in KS},
                "interval": score.interval.to_json(),
                "chance": score.chance[1],
            }
            for name, score in sides
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings on one pool size of some data, worst first, and its cleaned view."""

    data: AuditData
    findings: tuple[Finding, ...]
    cleaned: CleanedPools
    reference: Reference

    def of(self, *verdicts: Verdict) -> list[Finding]:
        """Return the findings with one of these verdicts."""
        return [one for one in self.findings if one.verdict in verdicts]

    @property
    def summary(self) -> list[str]:
        """The first lines of the report, in words."""
        from analysis.audit_report import audit_summary

        return list(audit_summary(self))

    def to_json(self, examples: bool = True) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        data = self.data
        found: dict[str, Any] = rounded(
            {
                "split": data.split,
                "sample": data.sample,
                "own": data.own,
                "distractors": data.distractors,
                "queries": len(data.rows),
                "sessions": len({row.session for row in data.rows}),
                "shortcuts": len(self.of("shortcut")),
                "summary": self.summary,
                "reference": self.reference.to_json(),
                "cleaned": {
                    "queries": len(self.cleaned.rows),
                    "steps": dict(self.cleaned.changed),
                },
            }
        )
        return found | {"findings": [one.to_json(examples) for one in self.findings]}


def audit(
    data: Path | None = None,
    split: str = "dev",
    distractors: int | None = None,
    *,
    encoder: str | None = None,
    seed: int = 0,
) -> Audit:
    """Audit the released pools of one size (default: the smallest), or a file of own memories.

    `data` None is the embedded sample. `encoder` names an embedding model that finds paraphrases
    by cosine, too. Raise DataError for faulty data and a size that is not there.
    """
    from analysis.equal_rows import other_splits
    from analysis.other_tasks import other_task_shortcuts
    from analysis.second_golds import Paraphrases, embedded
    from analysis.shortcut_findings import shortcut_findings, text_findings
    from analysis.shortcuts import shortcuts_of, without_marks

    read = read_audit_data(data, split, distractors)
    paraphrases = Paraphrases(read.rows, embedded(read.rows, encoder) if encoder else None)
    others = None if read.folder is None else other_splits(read.folder, read.distractors)
    texts = text_findings(read, paraphrases, others)
    before = [*shortcut_findings(read.rows, shortcuts_of(read.rows), seed), *texts.findings]
    if read.folder is not None:
        for rows, shortcuts in other_task_shortcuts(read.folder):
            before += shortcut_findings(rows, shortcuts, seed)
    if not read.raw:
        before.append(
            Finding(
                "fields", "fields", "not applicable", "a pipe is read once, without other fields"
            )
        )
    elif not any(one.group == "fields" for one in before):
        before.append(Finding("fields", "fields", "clear", "no field of a row names a memory"))
    cleaned = clean(
        read.rows,
        {*ALWAYS, *(step for one in before if (step := _step(one)[0]) and _flagged(one))},
        left_out={EQUAL: texts.equal, IN_QUERY: texts.in_query},
        paraphrases=texts.paraphrases,
        unmarked=without_marks,
        seed=seed,
    )
    view = replace(read, rows=cleaned.rows, repairs={})
    paraphrases = Paraphrases(view.rows, embedded(view.rows, encoder) if encoder else None)
    after = {
        one.name: one
        for one in (
            *shortcut_findings(view.rows, shortcuts_of(view.rows), seed),
            *text_findings(view, paraphrases, others).findings,
        )
    }
    findings = [
        replace(one, cleaned=_cleaned(one, after.get(one.name))) if _flagged(one) else one
        for one in before
    ]
    reference = Reference(_reference(read.rows, seed), _reference(view.rows, seed))
    return Audit(read, tuple(worst_first(findings)), cleaned, reference)


def _flagged(finding: Finding) -> bool:
    return finding.verdict in ("shortcut", "note")


def _step(finding: Finding) -> tuple[str | None, str]:
    return _REMOVED_BY.get(finding.name) or _REMOVED_BY[finding.group]


def _cleaned(before: Finding, after: Finding | None) -> Cleaned:
    step, reason = _step(before)
    if after is None:
        return Cleaned(step, "not applicable", reason="the field is gone")
    if after.value is None:
        reason = reason or after.text
    return Cleaned(step, after.verdict, after.value, after.chance, reason)


def _reference(rows: Sequence[AuditRow], seed: int) -> ShortcutScore:
    from analysis.second_golds import word_scores

    return score_shortcuts(rows, [word_scores], seed)[0]


@app.command(
    examples=(
        "recallbed audit benchmark_data --list",
        "recallbed audit mine.jsonl --clean cleaned.jsonl",
    )
)
def command(
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA",
            help="Release folder, or a .jsonl of your own memories. Default: the embedded sample.",
        ),
    ] = None,
    *,
    split: Split = "dev",
    pools: Annotated[PoolOptions, Without("pools", "pool_seeds")],
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Find paraphrases by an embedding model, too: minilm, folder or hub name.",
        ),
    ] = None,
    clean_to: Annotated[
        Path | None,
        typer.Option(
            "--clean",
            metavar="FILE",
            help="Write the cleaned pools as a .jsonl of own memories, for sweep --data.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file of --clean.")
    ] = False,
    places: Annotated[
        bool, typer.Option("--list", help="List the place of each fault and second gold.")
    ] = False,
    fail: Annotated[
        bool, typer.Option("--fail-on-shortcut", help="Exit code 1 if there is a shortcut.")
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Look for shortcuts in data: what finds the gold without reading it.

    Rankers that see one thing only, such as the stored ids, the position or the length, are scored
    as retrievers and compared with chance. Then: golds in their queries, distractors that
    paraphrase the gold, equal rows, encoding faults. A cleaned view removes what can be removed,
    and everything is measured again. Audits the released pools of the smallest size, or those of
    --distractors.
    """
    from analysis.audit_report import audit_table, listed, report_lines
    from recallbed.errors import UserError
    from recallbed.harness.files import refuse_output, write_atomically
    from recallbed.harness.terminal import note, say, say_json
    from recallbed.harness.text_table import print_tables

    sizes: tuple[int | None, ...] = pools.distractors or (None,)
    if clean_to is not None:
        if len(sizes) > 1:
            raise UserError("--clean writes one file. Pass one size to --distractors")
        if not clean_to.name.endswith(".jsonl"):
            raise UserError(f"{clean_to}: the name of the file of --clean must end in .jsonl")
        refuse_output(clean_to, overwrite)
    audits = [audit(data, split, size, encoder=encoder, seed=seed) for size in sizes]
    if clean_to is not None:
        write_atomically(clean_to, audits[0].cleaned.to_jsonl())
    if as_json:
        from recallbed.harness.fingerprint import canonical

        say_json(canonical([found.to_json() for found in audits]))
    else:
        for number, found in enumerate(audits):
            say(*[""] * (number > 0), *found.summary, "")
            print_tables([audit_table(found)])
            say("", *report_lines(found), *(listed(found) if places else ()))
        if audits[0].data.sample:
            note(SAMPLE_NOTE)
    if clean_to is not None:
        note(f"{clean_to} is written")
    if fail and any(found.of("shortcut") for found in audits):
        raise SystemExit(1)


if __name__ == "__main__":
    app()
