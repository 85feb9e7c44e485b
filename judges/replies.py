"""What a judge's reply is made of: evidence first, then yes or no, or numbers.

A verdict is one of the allowed values, whole. "not yes", "incorrect" or "yes and no" break the
schema: the model is asked again, and then the item is unjudged.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field


def _bare(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


Number = Annotated[int, BeforeValidator(_no_bool)]
"""A whole number; "2" is 2, but true isn't 1."""


class YesOrNo(BaseModel):
    """The evidence comes before the verdict, so that it is looked for before one is taken."""

    evidence: str = Field(description="What in the material decides the question, briefly.")
    verdict: Annotated[Literal["yes", "no"], BeforeValidator(_bare)]


def is_yes(reply: YesOrNo, repairs: Counter[str]) -> bool:
    """The vote in a reply; there is nothing to mend in it."""
    return reply.verdict == "yes"
