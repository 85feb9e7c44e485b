"""From the labels in a reply to an order of candidates: what is mended, and how it is counted.

Defined once for all paradigms. Labels run from 1 to the number of candidates in the prompt. What a
reply leaves out keeps the order that it had before; nothing is ever read as a place from the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from recallbed.chat_models import Failure
from recallbed.chat_models.anchor import after_reasoning
from recallbed.chat_models.base import Cause

WRONG_FORMAT, REPEATED, MISSING = "wrong format", "repeated", "missing"
OUT_OF_RANGE, CUT, NOT_SENT = "out of range", "cut", "not sent"
UNUSABLE = {
    Cause.NO_JSON: WRONG_FORMAT,
    Cause.SCHEMA: WRONG_FORMAT,
    Cause.EMPTY: WRONG_FORMAT,
    Cause.REFUSED: WRONG_FORMAT,
    Cause.CUT: CUT,
    Cause.NOT_SENT: NOT_SENT,
}
"""What a model said and can't be used. All other causes are failures of the call, and so of the
query: no reply is no opinion."""
_LISTED = re.compile(
    # Of nine digits at most: a longer number is no label, and thousands of them no int.
    r'(?:`{3}[a-z]*\s*)?(?:\{\s*"order"\s*:\s*)?\[((?:\s*"?-?\d{1,9}"?\s*,)+)',
    re.IGNORECASE,
)


def usable_labels(
    labels: Sequence[int], count: int, expected: int, repairs: Counter[str]
) -> list[int]:
    """The labels that name one of `count` candidates, each once, in order.

    Counts each label that is out of range or repeated, and how many of the `expected` are missing.
    """
    found: dict[int, None] = {}
    for label in labels:
        if not 1 <= label <= count:
            repairs[OUT_OF_RANGE] += 1
        elif label in found:
            repairs[REPEATED] += 1
        else:
            found[label] = None
    repairs[MISSING] += max(min(expected, count) - len(found), 0)
    return list(found)


def listed_before_the_cut(failure: Failure) -> list[int]:
    """Return the labels of a reply truncated at the output limit; the last may be half a number.

    Only a reply that begins with the list counts: a list in a sentence is no answer.
    """
    found = _LISTED.match(after_reasoning(failure.text).strip())
    return [int(n) for n in re.findall(r"-?\d+", found[1])] if found else []
