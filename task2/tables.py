"""The tables that task 2 adds to a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from memory_scoring.command import number, with_interval
from recallbed.harness.text_table import TextTable

JSON = Any


def more_tables(report: Mapping[str, JSON]) -> Iterable[TextTable]:
    """Actions, and where a retriever was named, localisation."""
    actions = dict(report["actions"])
    dropped, not_closer = actions.pop("dropped"), actions.pop("text_not_closer")
    found = TextTable(
        f"actions over memories; {dropped} given memories dropped,"
        f" {not_closer} actions wrong by their text alone",
        ("action", "gold", "predicted", "correct", "precision", "recall", "F1"),
    )
    for name, row in actions.items():
        found.add(
            name,
            *(str(row[key]) for key in ("gold", "predicted", "correct")),
            *(number(row[key]) for key in ("precision", "recall", "f1")),
        )
    yield found
    if not report["localisation"]:
        return
    found = TextTable(
        "localisation: is the memory that must change ranked first?",
        (
            *("retriever", "R@1 [95 %]", "worst-best", "E[RR] [95 %]", "chance"),
            *("attempted", "scored", "failed"),
        ),
    )
    for row in report["localisation"]:
        counts = (str(row["attempted"]), str(row["scored"]), str(sum(row["failed"].values())))
        recall = row["recall@1"]
        found.add(
            row["retriever"],
            with_interval(recall),
            "-" if recall is None else f"{recall['worst']:.3f}-{recall['best']:.3f}",
            with_interval(row["reciprocal_rank"]),
            number(row["chance"]),
            *counts,
        )
    yield found
    for row in report["localisation"]:
        causes = {**row["left_out"], **{f"failed: {k}": n for k, n in row["failed"].items()}}
        if causes:
            named = f"{row['retriever']}: sessions in no mean"
            listed = TextTable(named, ("why", "sessions"))
            for why, count in causes.items():
                listed.add(why, str(count))
            yield listed
