"""Structured verdicts of a model on answers and memories, and their agreement with people."""

import recallbed  # noqa: F401  (first: its guard against folders of the same names)
from judges.verdicts import (
    Grades,
    Judged,
    Pairs,
    Unjudged,
    Verdict,
    disagreed,
    from_row,
    to_row,
)

__all__ = [
    "Grades",
    "Judged",
    "Pairs",
    "Unjudged",
    "Verdict",
    "disagreed",
    "from_row",
    "to_row",
]
