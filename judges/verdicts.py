"""Verdict of a judge on one item: a value, or the cause of its absence.

Unjudged items are neither right nor wrong: they are counted separately and enter no score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from recallbed.chat_models.base import NOTHING_USED, Usage

JSON = Any
T = TypeVar("T")
TIED = "the votes are tied"
MISSING_GRADE = "a grade is missing"


@dataclass(frozen=True, slots=True)
class Grades:
    """Emotional intelligence of an answer, 1 (worst) to 5 in each of three respects.

    A grade that the judge left out is None; at least one is given.
    """

    resonation: int | None
    expression: int | None
    reception: int | None

    @property
    def given(self) -> tuple[int, ...]:
        """The grades that are not missing."""
        grades = (self.resonation, self.expression, self.reception)
        return tuple(grade for grade in grades if grade is not None)

    @property
    def mean(self) -> float:
        """The mean of the grades that are given."""
        return sum(self.given) / len(self.given)


@dataclass(frozen=True, slots=True)
class Judged(Generic[T]):
    """A verdict and the replies on which it is based.

    `raw` holds the unchanged replies and `votes` their values, one per vote; a vote whose call
    failed is None. Both are empty if there was nothing to ask. `usage` is the sum over the votes.
    `prompt` is the file's name, version and hash. `repairs` counts repairs of replies by kind.
    """

    value: T
    raw: tuple[str, ...] = ()
    votes: tuple[T | None, ...] = ()
    usage: Usage = NOTHING_USED
    model: str = ""
    prompt: str = ""
    repairs: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unjudged:
    """No verdict. `cause` is one of chat_models' causes, or that the votes are tied."""

    cause: str
    raw: tuple[str, ...] = ()
    usage: Usage = NOTHING_USED
    votes: tuple[Any, ...] = ()
    model: str = ""
    prompt: str = ""


Verdict: TypeAlias = Judged[T] | Unjudged
Pairs: TypeAlias = tuple[tuple[int, int], ...]
"""(position among the golds, position among the predicted), one to one, by gold."""


def disagreed(verdict: Verdict[Any]) -> bool | None:
    """Return whether the valid votes differ; None if there are fewer than two."""
    valid = [vote for vote in verdict.votes if vote is not None]
    return None if len(valid) < 2 else any(vote != valid[0] for vote in valid)


def to_row(verdict: Verdict[Any]) -> dict[str, JSON]:
    """Return a verdict as JSON for a row of a run, without its usage."""
    kept: dict[str, JSON] = {
        "verdict": _plain(verdict.value) if isinstance(verdict, Judged) else None,
        "cause": verdict.cause if isinstance(verdict, Unjudged) else None,
        "model": verdict.model,
        "prompt": verdict.prompt,
        "votes": [_plain(vote) for vote in verdict.votes],
        "raw": list(verdict.raw),
    }
    if isinstance(verdict, Judged):
        kept["repairs"] = dict(sorted(verdict.repairs.items()))
    return kept


def from_row(row: Mapping[str, JSON]) -> Verdict[Any]:
    """Return the verdict of a `to_row`, without its usage."""
    votes = tuple(_value(vote) for vote in row["votes"])
    raw, model, prompt = tuple(row["raw"]), row["model"], row["prompt"]
    if row["cause"] is not None:
        return Unjudged(row["cause"], raw, votes=votes, model=model, prompt=prompt)
    return Judged(
        _value(row["verdict"]), raw, votes, model=model, prompt=prompt, repairs=row["repairs"]
    )


def _plain(value: Any) -> JSON:
    if isinstance(value, Grades):
        return asdict(value)
    return [list(pair) for pair in value] if isinstance(value, tuple) else value


def _value(plain: JSON) -> Any:
    if isinstance(plain, dict):
        return Grades(**plain)
    return tuple(tuple(pair) for pair in plain) if isinstance(plain, list) else plain
