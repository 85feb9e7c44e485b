"""The published figures of task 3, as reference lines."""

from __future__ import annotations

import csv
from importlib.resources import files

CAPTION = "published pools; LLMs judged by use"
BASELINES = ("nltk+bm25", "all-MiniLM-L6-v2")


def published_task3() -> dict[str, dict[int, float]]:
    """Recall by system and number of distractors, from the public leaderboard."""
    text = files("analysis.published").joinpath("leaderboard_task3.csv").read_text("utf-8")
    found: dict[str, dict[int, float]] = {}
    for row in csv.DictReader(text.splitlines()):
        name = row.pop("model")
        found[name] = {int(size.removeprefix("d")): float(value) for size, value in row.items()}
    return found
