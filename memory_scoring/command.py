"""What a scoring command prints on stdout: lines and tables, or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from memory_scoring.answers import NAMES, Answers
from memory_scoring.score_options import ScoreOptions
from memory_scoring.scoring import plan_pairs
from recallbed.errors import UserError
from recallbed.harness.fingerprint import canonical
from recallbed.harness.plan import print_plans
from recallbed.harness.terminal import note, say, say_json
from recallbed.harness.text_table import TextTable, print_tables

JSON = Any
Report = Mapping[str, JSON]
SHOWN = 12
"""Groups in a table: task 2's references have some ninety top-level labels."""


def carry_out(
    options: ScoreOptions,
    answers: Answers[Any],
    report: Callable[[], Report],
    more: Callable[[Report], Iterable[TextTable]] = lambda report: (),
) -> None:
    """Print the report, with the tables of `more` behind its own; after --dry-run the plan.

    With --json stdout has JSON alone, and what was not scored goes to stderr.

    Raises UserError where --dry-run has no judge to plan for.
    """
    if options.dry_run:
        if options.judge is None:
            raise UserError("--dry-run: only --scorer judge asks a chat model")
        plans = plan_pairs(answers, options.judge)
        print_plans(plans, as_json=True)
        return
    found = report()
    if options.as_json:
        say_json(canonical(found))
        note(*head(found))
        return
    say(*head(found), "")
    print_tables([*tables(found), *more(found)])


def head(report: Report) -> Iterable[str]:
    """What was scored, and every line that wasn't."""
    if report["sample"]:
        yield "The embedded sample, not AlpsBench: its figures say that all works, and no more"
    how = f", {report['assign']} assignment" if "assign" in report else ""
    yield (
        f"{report['predictions']}: {report['lines']} lines, {report['task']} of split"
        f" {report['split']}, {report['answered']} of {report['asked']} sessions answered"
    )
    yield f"scorer {report['scorer']}{how}: {report['sessions']} sessions scored"
    for name, tally in {**report["causes"], **report["lines_of_no_session"]}.items():
        if tally["count"] and name != "answered":
            yield f"  {NAMES[name]}: {_tally(tally)}"
            yield from (f"    {fault}" for fault in tally.get("faults", ()))
    for name in ("members_left_out", "memories_without_value"):
        if report[name]["count"]:
            yield f"  {name.replace('_', ' ')}: {_tally(report[name])}"
    for kind, count in sorted(report["mended"].items()):
        yield f"  mended: {kind} x {count}"
    if "judge" in report:
        judge = report["judge"]
        yield f"judge {judge['model']}: {judge['judged']} of {judge['asked']} sessions judged"
        for cause, count in judge["unjudged"].items():
            yield f"  unjudged: {cause}: {count}"
        if judge["disagreement"] is not None:
            yield f"  votes differ in {judge['disagreement']:.1%} of {judge['voted']}"


def tables(report: Report) -> Iterable[TextTable]:
    """The figures, and their breakdowns by type, label and language."""
    columns: tuple[str, ...] = ("figure", "mean [95 %]", "pooled", "unanswered as wrong")
    table = TextTable("over sessions", columns)
    for name, interval in report["intervals"].items():
        table.add(
            name.replace("_", " "),
            with_interval({"mean": report[name], **interval}),
            number(report["pooled"].get(name)),
            number(report["unanswered_as_wrong"].get(name)),
        )
    text = report["text_similarity"]
    table.add("text similarity of the pairs", with_interval(text), "-", "-")
    yield table
    for key in ("type", "label"):
        columns = ("gold", "recall [95 %]", f"recall, same {key}", "predicted", "precision [95 %]")
        groups = report[f"by_{key}"]
        more = f" ({len(groups) - SHOWN} smaller ones are in --json alone)"
        named = f"over memories, by {key}" + (more if len(groups) > SHOWN else "")
        table = TextTable(named, (key, *columns))
        for name, row in list(groups.items())[:SHOWN]:
            table.add(
                name,
                str(row["gold"]),
                with_interval(row["recall"]),
                number((row["recall_as_such"] or {}).get("mean")),
                str(row["predicted"]),
                with_interval(row["precision"]),
            )
        yield table
    columns = ("language", "sessions", "precision", "recall", "F1 [95 %]")
    table = TextTable("over sessions, by language", columns)
    for name, row in report["by_language"].items():
        table.add(
            name,
            str(row["sessions"]),
            number(row["precision"]),
            number(row["recall"]),
            with_interval({"mean": row["f1"], **row["intervals"]["f1"]}),
        )
    yield table


def with_interval(found: Mapping[str, JSON] | None) -> str:
    """A mean with its interval; "-" for none."""
    if found is None:
        return "-"
    digits = 2 if found["high"] > 1 else 4
    mean, low, high = (f"{found[key]:.{digits}f}" for key in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def number(value: float | None) -> str:
    """Four digits; "-" for none."""
    return "-" if value is None else f"{value:.4f}"


def _tally(tally: Mapping[str, JSON]) -> str:
    more = ", ..." if tally["count"] > len(tally["lines"]) else ""
    return f"{tally['count']} (lines {', '.join(map(str, tally['lines']))}{more})"
