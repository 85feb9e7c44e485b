"""What reranking cost and what it could have found, from the rows of one label and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.metrics import recall_at, recall_within
from analysis.rows import ties_of

Row = Mapping[str, Any]
FINE_FROM = 100
"""Places in a prompt from which on it is cut into tenths, else into thirds."""


def price_of(manifest: Mapping[str, Any], label: str) -> Mapping[str, float] | None:
    """The price of the one chat model that a label asks, for a million tokens `in` and `out`.

    None where it isn't known, and where a label asks several models: rows add their tokens up.
    """
    models = manifest.get("chat_models", {}).get(label, ())
    price: Mapping[str, float] | None = None
    if len(models) == 1:
        price = manifest.get("prices", {}).get(models[0])
    return price


def spent(rows: Sequence[Row], price: Mapping[str, float] | None) -> dict[str, Any]:
    """What the replies behind these rows took: calls and tokens a scored query, and the cost.

    `cost` is of all rows, in the currency of the table of prices; None where the price isn't known
    or the tokens of a call are an estimate. No calls cost nothing. Calls of failed rows are unknown
    to their rows, and so not in it.
    """
    scored = [row for row in rows if row["error"] is None]
    total = {key: sum(row[key] for row in scored) for key in ("calls", "tokens_in", "tokens_out")}
    estimated = sum(row.get("estimated", 0) for row in scored)
    cost = None
    if not total["calls"]:
        cost = 0.0
    elif price is not None and not estimated:
        cost = (total["tokens_in"] * price["in"] + total["tokens_out"] * price["out"]) / 1e6
    return {
        "a_query": {key: round(n / max(len(scored), 1), 4) for key, n in total.items()},
        "estimated_calls": estimated,
        "cost": None if cost is None else round(cost, 9),
    }


def first_stage_recall(rows: Sequence[Row], ks: Sequence[int]) -> dict[str, Any]:
    """The depth, and by k what recall@k could at best be with the depth's memories in any order.

    With one gold that is the first stage's recall@depth. A k of at least the depth keeps the first
    stage's own recall@k: no order within the depth changes it. Empty where no first stage is known.
    """
    known = [r for r in rows if r.get("first") is not None and r["depth"] is not None]
    if not known:
        return {}
    best = {
        str(k): float(np.mean([recall_within(k, r["depth"], _first(r)) for r in known])) for k in ks
    }
    return {
        "depth": max(row["depth"] for row in known),
        "first_stage_recall": {k: round(value, 6) for k, value in best.items()},
    }


def _first(row: Row) -> list[tuple[int, int]]:
    return ties_of({"above": row["first"][0], "tied": row["first"][1]})


def recall_by_place(rows: Sequence[tuple[Row, int]], ks: Sequence[int]) -> list[dict[str, Any]]:
    """Recall of the golds by where they stood in the prompt, in equal parts of its length.

    `rows` come with the size of their pool. A part without golds has no recall. Empty where no
    place is known.
    """
    found: list[tuple[float, int, int]] = []
    longest = 0
    for row, pool in rows:
        shown = row.get("shown")
        length = min(row.get("depth") or pool, pool)
        for place, tie in zip(
            shown if isinstance(shown, list) else [shown], ties_of(row), strict=True
        ):
            if place is not None:
                found.append((place / length, *tie))
                longest = max(longest, length)
    if not found:
        return []
    parts = 10 if longest >= FINE_FROM else 3
    table = []
    for part in range(parts):
        mine = [tie for place, *tie in found if min(int(place * parts), parts - 1) == part]
        table.append(
            {
                "from": round(part / parts, 4),
                "to": round((part + 1) / parts, 4),
                "golds": len(mine),
                "recall": {
                    str(k): round(float(np.mean([recall_at(k, *tie) for tie in mine])), 6)
                    for k in (ks if mine else ())
                },
            }
        )
    return table
