"""Facts as a model extracts them, with AlpsBench's values of their fields, and their memories.

A value outside its list counts as unknown; it is never replaced by a similar one. A fact without
text violates the schema, so the model is asked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, model_validator

from recallbed.corpus.records import Evidence, MemoryItem, Turn
from recallbed.harness.input_text import clean_text

UNMAPPED = "UNMAPPED"  # the release's own label for a memory that fits no path
UNKNOWN = "unknown"

Type = Literal["direct", "indirect"]
TimeScope = Literal["long_term", "short_term", "recent", "current", "past", "unknown"]
Attitude = Literal["like", "dislike", "preference", "requirement", "constraint", "neutral"]
# The paths that are frequent enough in the development rows to be part of the scheme.
Label = Literal[
    "Personal_Background/Identity",
    "Personal_Background/Education",
    "Personal_Background/Occupation",
    "Personal_Background/Location",
    "Personal_Background/Family",
    "States_Experiences/Physical_State",
    "States_Experiences/Mental_State",
    "States_Experiences/Past_Experience",
    "Possessions/Important_Items",
    "Possessions/Pet",
    "Possessions/Car",
    "Preferences/Food",
    "Preferences/Entertainment",
    "Preferences/Music",
    "Preferences/Reading",
    "Preferences/Sports",
    "Preferences/Shopping",
    "Preferences/Travel_Mode",
    "Preferences/Interaction_Preferences",
    "Thoughts/Opinions/Positive",
    "Thoughts/Opinions/Negative",
    "Thoughts/Curiosity",
    "Thoughts/Goals/Short_Term",
    "Thoughts/Goals/Long_Term",
    "Plans/Schedule",
    "Plans/Commitments",
    "Social_Relationships/Family",
    "Social_Relationships/Friends",
    "Social_Relationships/Partners",
    "Social_Relationships/Colleagues",
    "Social_Relationships/Adversarial",
    "Constraints_and_Boundaries/Disliked_Topics",
    "Constraints_and_Boundaries/Sensitive_Topics",
    "Constraints_and_Boundaries/Do_Not_Remember",
    "UNMAPPED",
]
_LONGEST_EMOTION = 40


def plain(text: str) -> str:
    """Return a model's text on one line, without characters that cannot be stored."""
    return " ".join(clean_text(text, Counter()).split())


def same_text(one: str, other: str) -> bool:
    """Return whether two texts are equal apart from case and white space."""
    return plain(one).casefold() == plain(other).casefold()


def _one_of(values: Any, otherwise: str | None) -> Callable[[Any], Any]:
    known = {value.casefold(): value for value in get_args(values)}
    return lambda value: known.get(
        plain(value).casefold() if isinstance(value, str) else "", otherwise
    )


def _confidence(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= 1 else None  # NaN is neither


def _emotion(value: Any) -> str | None:
    text = plain(value) if isinstance(value, str) else ""
    return text if 0 < len(text) <= _LONGEST_EMOTION and text.casefold() != "none" else None


def _numbers(value: Any) -> list[int]:
    listed = value if isinstance(value, list) else [value]
    return [n for n in listed if isinstance(n, int) and not isinstance(n, bool)]


# The docstrings are in the schema that a model is sent: others would not find stored replies.
class Fact(BaseModel):
    """One thing learned about the user; `evidence` are numbers of utterances."""

    text: Annotated[
        str, BeforeValidator(lambda value: plain(value) if isinstance(value, str) else value)
    ]
    type: Annotated[Type | None, BeforeValidator(_one_of(Type, None))] = None
    label: Annotated[Label, BeforeValidator(_one_of(Label, UNMAPPED))] = "UNMAPPED"
    confidence: Annotated[float | None, BeforeValidator(_confidence)] = None
    time_scope: Annotated[TimeScope, BeforeValidator(_one_of(TimeScope, UNKNOWN))] = "unknown"
    attitude: Annotated[Attitude | None, BeforeValidator(_one_of(Attitude, None))] = None
    emotion: Annotated[str | None, BeforeValidator(_emotion)] = None
    evidence: Annotated[list[int], BeforeValidator(_numbers)] = []

    def item(self, turns: Mapping[int, Turn]) -> MemoryItem:
        """Return the memory, without an id. `turns` are the utterances shown, by number."""
        cited = sorted({number for number in self.evidence if number in turns})
        evidence = Evidence("", tuple(cited), "\n".join(turns[number].text for number in cited))
        return MemoryItem(
            self.text,
            label=self.label,
            type=self.type,
            confidence=self.confidence,
            time_scope=self.time_scope,
            attitude=self.attitude,
            emotion=self.emotion,
            evidence=evidence if cited else None,
        )


class Facts(BaseModel):
    """The reply to the extraction prompt. A bare list is taken as the list of facts."""

    facts: list[Fact]

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, value: Any) -> Any:
        return {"facts": value} if isinstance(value, list) else value


def rewritten(old: MemoryItem, new: MemoryItem, text: str) -> MemoryItem:
    """Return `old` with `text` and with every field that `new` knows."""

    def newer(now: str | None, before: str | None, unknown: str | None = None) -> str | None:
        return before if now in (None, unknown) and before is not None else now

    return MemoryItem(
        text,
        id=old.id,
        label=newer(new.label, old.label, UNMAPPED),
        type=newer(new.type, old.type),
        confidence=old.confidence if new.confidence is None else new.confidence,
        time_scope=newer(new.time_scope, old.time_scope, UNKNOWN),
        attitude=newer(new.attitude, old.attitude),
        emotion=newer(new.emotion, old.emotion),
        evidence=new.evidence or old.evidence,
    )
