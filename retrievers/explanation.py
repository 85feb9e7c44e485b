"""Why a memory has its score, in parts that a person can check."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

JSON = Any


class Explanation(ABC):
    """Why one memory of a pool has its score. As text it is one line."""

    kind: ClassVar[str]
    """The key `kind` in JSON."""

    @property
    def score(self) -> float | None:
        """The score that the parts add up to; None if they do not make a score."""
        return None

    @abstractmethod
    def parts(self) -> Mapping[str, JSON]:
        """Return what it holds as JSON."""

    @abstractmethod
    def __str__(self) -> str: ...

    def to_json(self) -> dict[str, JSON]:
        """Return its kind and parts."""
        return {"kind": self.kind, **self.parts()}


@dataclass(frozen=True, slots=True)
class TextExplanation(Explanation):
    """What a retriever of the user's own says of a score."""

    kind: ClassVar[str] = "text"
    text: str

    @override
    def parts(self) -> Mapping[str, JSON]:
        return {"text": self.text}

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TermWeights(Explanation):
    """The terms of a query, as indexed, that add to a score, and how much each adds.

    The largest come first; together they are the score.
    """

    kind: ClassVar[str] = "terms"
    terms: tuple[tuple[str, float], ...]

    @property
    @override
    def score(self) -> float:
        return math.fsum(weight for _, weight in self.terms)

    @override
    def parts(self) -> Mapping[str, JSON]:
        return {"terms": [list(pair) for pair in self.terms], "score": self.score}

    def __str__(self) -> str:
        if not self.terms:
            return "no shared term"
        return " + ".join(f"{term} {weight:.2f}" for term, weight in self.terms)


@dataclass(frozen=True, slots=True)
class Cosine(Explanation):
    """The cosine of the vectors of query and memory."""

    kind: ClassVar[str] = "cosine"
    cosine: float

    @property
    @override
    def score(self) -> float:
        return self.cosine

    @override
    def parts(self) -> Mapping[str, JSON]:
        return {"cosine": self.cosine}

    def __str__(self) -> str:
        return f"cosine {self.cosine:.4f}"


@dataclass(frozen=True, slots=True)
class LegShare:
    """What one leg of a fusion adds to a score: its own score, and its (above, tied) in the pool.

    `explanation` is the leg's own of its score, None if it gives none.
    """

    leg: str
    share: float
    leg_score: float
    ties: tuple[int, int]
    explanation: Explanation | None = None

    def to_json(self) -> dict[str, JSON]:
        """Return the fields."""
        return {
            "leg": self.leg,
            "share": self.share,
            "leg_score": self.leg_score,
            "rank": _rank(self.ties),
            "explanation": self.explanation and self.explanation.to_json(),
        }

    def __str__(self) -> str:
        why = "" if self.explanation is None else f": {self.explanation}"
        return f"{self.leg} {self.share:.4f} (rank {_rank_text(self.ties)}{why})"


@dataclass(frozen=True, slots=True)
class FusedShares(Explanation):
    """The shares of the legs of a fusion; together they are the score."""

    kind: ClassVar[str] = "legs"
    legs: tuple[LegShare, ...]

    @property
    @override
    def score(self) -> float:
        return math.fsum(one.share for one in self.legs)

    @override
    def parts(self) -> Mapping[str, JSON]:
        return {"legs": [one.to_json() for one in self.legs], "score": self.score}

    def __str__(self) -> str:
        return " + ".join(map(str, self.legs))


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A model's reply to a prompt that showed a memory, as number `shown_as`, from 1."""

    text: str
    shown_as: int

    def to_json(self) -> dict[str, JSON]:
        """Return the fields."""
        return {"reply": self.text, "shown_as": self.shown_as}

    def __str__(self) -> str:
        return f"shown as [{self.shown_as}], reply {self.text}"


@dataclass(frozen=True, slots=True)
class RerankerEvidence:
    """What a reranker made of a candidate: a value, such as a cross-encoder's output, or replies.

    `value_name` says what the value is.
    """

    value: float | None = None
    value_name: str = ""
    replies: tuple[ModelReply, ...] = ()

    def __str__(self) -> str:
        known = [] if self.value is None else [f"{self.value_name} {self.value:.4f}"]
        return "; ".join([*known, *map(str, self.replies)])


@dataclass(frozen=True, slots=True)
class RerankedPlace(Explanation):
    """Whether a memory was a candidate of a reranker, and what the reranker made of it.

    `ties` is its (above, tied) by the first stage, of which the best `depth` were candidates;
    `explanation` is the first stage's own, None if it gives none. `evidence` is None for a memory
    that was no candidate, and if it is not known, such as a reply that is not in the cache.
    """

    kind: ClassVar[str] = "reranked"
    candidate: bool
    depth: int
    ties: tuple[int, int] | None = None
    explanation: Explanation | None = None
    evidence: RerankerEvidence | None = None

    @override
    def parts(self) -> Mapping[str, JSON]:
        found: dict[str, JSON] = {
            "candidate": self.candidate,
            "depth": self.depth,
            "first_stage_rank": self.ties and _rank(self.ties),
            "first_stage": self.explanation and self.explanation.to_json(),
        }
        if self.evidence is not None:
            if self.evidence.value is not None:
                found |= {"value": self.evidence.value, "value_is": self.evidence.value_name}
            found["replies"] = [one.to_json() for one in self.evidence.replies]
        return found

    def __str__(self) -> str:
        said = []
        if self.ties is not None:
            why = "" if self.explanation is None else f" ({self.explanation})"
            said.append(f"first stage: rank {_rank_text(self.ties)}{why}")
        if not self.candidate:
            said.append(f"not among the {self.depth} candidates")
        elif self.evidence is not None:
            said.append(str(self.evidence))
        return "; ".join(said) or "candidate"


def _rank(ties: tuple[int, int]) -> list[int]:
    above, tied = ties
    return [above + 1, above + tied]


def _rank_text(ties: tuple[int, int]) -> str:
    first, last = _rank(ties)
    return str(first) if first == last else f"{first}-{last}"
