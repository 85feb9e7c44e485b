"""The published figures, as reference lines and columns. They are facts of others, never ours."""

from __future__ import annotations

import csv
from importlib.resources import files

from recallbed.errors import UserError

CAPTION = "published pools; LLMs judged by use"
BASELINES = ("nltk+bm25", "all-MiniLM-L6-v2")


def published_task3() -> dict[str, dict[int, float]]:
    """Recall by system and number of distractors, from the public leaderboard."""
    found: dict[str, dict[int, float]] = {}
    for row in _rows("leaderboard_task3"):
        name = row.pop("model")
        found[name] = {int(size.removeprefix("d")): float(value) for size, value in row.items()}
    return found


def chosen_published(wish: str) -> dict[str, dict[int, float]]:
    """Return those of `published_task3` that --published names.

    `none`, `baselines`, `all`, or names with commas. Raise UserError for a name that there is not.
    """
    everything = published_task3()
    known = {"none": [], "baselines": BASELINES, "all": list(everything)}
    names = known[wish] if wish in known else wish.split(",")
    for name in names:
        if name not in everything:
            raise UserError(
                f"--published {name}: choose baselines, all, none, {', '.join(everything)}"
            )
    return {name: everything[name] for name in names}


def published_table(number: int) -> dict[str, dict[str, float]]:
    """Return Table 2, 3 or 4 of the paper: figures by system and column; blank ones are absent."""
    found: dict[str, dict[str, float]] = {}
    for row in _rows(f"paper_table{number}"):
        name = row.pop("model" if "model" in row else "system")
        found[name] = {column: float(value) for column, value in row.items() if value}
    return found


def _rows(name: str) -> list[dict[str, str]]:
    text = files("analysis.published").joinpath(f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))
