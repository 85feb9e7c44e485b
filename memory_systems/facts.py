"""Facts as a model writes them down, and the memories that they become.

What a field may hold is checked here; a value outside its list is taken for "not known", never for
its nearest neighbour. A fact without text breaks the schema and is asked for again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, model_validator

from memory_systems.taxonomy import UNKNOWN, UNMAPPED, Attitude, Label, TimeScope, Type
from recallbed.corpus.records import Evidence, MemoryItem, Turn
from recallbed.harness.clean_text import clean_text

_LONGEST_EMOTION = 40


def plain(text: str) -> str:
    """A model's text on one line, without characters that can't be stored."""
    return " ".join(clean_text(text, Counter()).split())


def same_text(one: str, other: str) -> bool:
    """Whether two texts read alike, case and spacing aside."""
    return plain(one).casefold() == plain(other).casefold()


def _one_of(words: Any, otherwise: str | None) -> Callable[[Any], Any]:
    known = {word.casefold(): word for word in get_args(words)}
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
        """The memory, not stored yet. `turns` are the utterances that were shown, by number."""
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
    """`old` as it reads after an update: `text`, and of the rest what `new` knows, else `old`."""

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
