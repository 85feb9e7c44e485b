"""Who says right or wrong: structured verdicts of a model, and their agreement with people."""

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
