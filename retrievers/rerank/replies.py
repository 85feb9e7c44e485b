"""The shapes of replies that rerankers ask for. The last line of defence is `repair`, not these."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, Field, field_validator, model_validator

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
