"""Finding the answer of a model in a reply that holds more than JSON.

A reply may hold other JSON: reasoning before the answer, a copy of a memory that looks like an
answer, an example. Only the last separate JSON value is accepted: on lines of its own or in a code
fence, after any reasoning. JSON inside a sentence, a quotation or a longer JSON value is ignored.
A model that answered otherwise is asked again, which costs a call; accepting the wrong value would
be a wrong score that nobody notices.

The search is linear in the length of the reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

# End of a model's reasoning, if a server leaves it in the reply. The opening mark is often part of
# the prompt, so a closing one alone counts.
TAGS = r"think|thinking|thought|thoughts|reasoning|reflection"
_CLOSING = re.compile(rf"</(?:{TAGS})>|\[/THINK\]|<\|channel\|>final<\|message\|>|◁/think▷", re.I)
_OPENING = re.compile(rf"<(?:{TAGS})>|\[THINK\]|<\|channel\|>analysis<\|message\|>|◁think▷", re.I)
_FENCE = re.compile(r"(?:`{1,3}|~~~)[A-Za-z]*")
_AFTER = re.compile(r"[ \t\r]*+(?:`{1,3}|~~~)?[ \t\r]*+(?:\n|$)")
_BRACKET = re.compile(r"[{\[]")
_ANY_BRACKET = re.compile(r"[{}\[\]]")
# A string, or an unclosed quotation mark with the rest of its line.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*+("?)|[{}\[\]]')
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Anchored:
    """A JSON value as the model wrote it; `whole` if the reply is nothing else."""

    raw: str
    whole: bool


def find_answer(reply: str, array: bool = False) -> Anchored | None:
    """Return the answer in a reply: an object, or an array if there is no separate object.

    With `array` an array is preferred. None if there is neither.
    """
    text = reply.strip()
    if _is_json(text):
        return Anchored(text, whole=True)
    found = list(_separate(after_reasoning(text)))
    wanted = [raw for raw in found if raw.startswith("[" if array else "{")]
    pieces = wanted or found
    return Anchored(pieces[-1], whole=False) if pieces else None


def after_reasoning(text: str) -> str:
    """Return what follows the model's reasoning; "" if the reasoning does not end."""
    closings = list(_CLOSING.finditer(text))
    rest = text[closings[-1].end() :] if closings else text
    opening = _OPENING.match(rest.lstrip())
    return "" if opening else rest


def _separate(text: str) -> Iterator[str]:
    """The outermost JSON values with nothing else on their lines but a fence."""
    at = 0
    while at < len(text):
        start = _bracket(text, at)
        if start is None:
            at = _next_line(text, at)
            continue
        end = _balanced(text, start)
        after = _AFTER.match(text, end)
        if after and _fence_or_nothing(text[at:start]) and _is_json(text[start:end]):
            yield text[start:end]
            at = after.end()
        else:
            # What begins inside a JSON value, complete or not, is a part of it.
            at = _next_line(text, end)


def _bracket(text: str, at: int) -> int | None:
    """The first bracket on the line from `at`."""
    found = _BRACKET.search(text, at, _next_line(text, at))
    return found.start() if found else None


def _next_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _balanced(text: str, start: int) -> int:
    """The position after the bracket that closes the one at `start`; the end if none does."""
    depth = 0
    for bracket, end in _brackets(text, start):
        depth += 1 if bracket in "{[" else -1
        if depth == 0:
            return end
    return len(text)


def _brackets(text: str, start: int) -> Iterator[tuple[str, int]]:
    """The brackets outside of strings, each with the position after it."""
    for found in _STRING_OR_BRACKET.finditer(text, start):
        if found[0][0] != '"':
            yield found[0], found.end()
        elif not found[1]:  # no string begins here or later on this line
            for bracket in _ANY_BRACKET.finditer(text, found.start(), found.end()):
                yield bracket[0], bracket.end()


def _fence_or_nothing(before: str) -> bool:
    word = before.strip()
    return not word or _FENCE.fullmatch(word) is not None


def _is_json(text: str) -> bool:
    """Whether `text` is one object or array and nothing else."""
    if text[:1] not in ("{", "["):
        return False
    try:
        # In a longer text an error would count all lines before it, so the value is copied.
        return _DECODER.raw_decode(text)[1] == len(text)
    except (ValueError, RecursionError):
        return False
