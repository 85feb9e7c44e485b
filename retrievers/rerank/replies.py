"""Replies of rerankers: their schemas, and the repair of the labels in them.

Labels run from 1 to the number of candidates in the prompt. Candidates that a reply leaves out keep
their order; no label counts from the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field, field_validator, model_validator

from recallbed.chat_models import Failure
from recallbed.chat_models.anchor import after_reasoning
from recallbed.chat_models.base import Cause

_LABEL = re.compile(r"\[?\s*(-?\d{1,9})\s*\]?")


class Order(BaseModel):
    """Labels, best first."""

    order: list[int] = Field(description="Labels of memories, the most useful first")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"order": value} if isinstance(value, list) else value

    @field_validator("order", mode="before")
    @classmethod
    def _flat(cls, value: Any) -> Any:
        return _flatten(value) if isinstance(value, list) else value


class Best(BaseModel):
    """One label."""

    best: int = Field(description="Label of the most useful memory")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"best": value} if isinstance(value, list) else value

    @field_validator("best", mode="before")
    @classmethod
    def _single(cls, value: Any) -> Any:
        flat = _flatten(value if isinstance(value, list) else [value])
        return flat[0] if len(flat) == 1 else value


def _flatten(values: list[Any]) -> list[Any]:
    """Flatten nested lists, and convert labels as in the prompt ("[2]") to numbers."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, list):
            found += _flatten(value)
        elif isinstance(value, str) and (label := _LABEL.fullmatch(value.strip())):
            found.append(int(label[1]))
        else:
            found.append(value)
    return found


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
"""Causes of unusable replies. All other causes are failures of the call, and so of the query."""
_LISTED = re.compile(
    # At most nine digits: a longer number is not a label, and int() rejects very long ones.
    r'(?:`{3}[a-z]*\s*)?(?:\{\s*"order"\s*:\s*)?\[((?:\s*"?-?\d{1,9}"?\s*,)+)',
    re.IGNORECASE,
)


def usable_labels(
    labels: Sequence[int], count: int, expected: int, repairs: Counter[str]
) -> list[int]:
    """Return the distinct labels from 1 to `count`, in order.

    Counts labels out of range, repeated labels, and missing ones of the `expected` number.
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
