"""The shapes of replies that rerankers ask for. The last line of defence is `repair`, not these."""

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
    """Lists in lists laid flat, and labels as they stand in the prompt ("[2]") as numbers."""
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
