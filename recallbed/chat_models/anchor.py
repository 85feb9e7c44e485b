"""The one piece of JSON in a reply that is the answer, or none.

A reply may hold other JSON: thoughts before the answer, an echo of a memory that looks like an
answer, an example. So what is taken is narrow: the last JSON that stands by itself, on lines of
its own or in a code fence, after any reasoning. JSON inside a sentence, a quotation or a longer
piece of JSON is never taken. A model that answered otherwise is asked again, which costs a call;
a wrong piece taken would be a wrong score that nobody sees.

The search takes time linear in the reply's length, whatever the reply is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

# What closes a model's reasoning, where a server leaves it in the reply. The opening mark is often
# part of the prompt, so a closing one alone counts.
TAGS = r"think|thinking|thought|thoughts|reasoning|reflection"
_CLOSING = re.compile(rf"</(?:{TAGS})>|\[/THINK\]|<\|channel\|>final<\|message\|>|◁/think▷", re.I)
_OPENING = re.compile(rf"<(?:{TAGS})>|\[THINK\]|<\|channel\|>analysis<\|message\|>|◁think▷", re.I)
_FENCE = re.compile(r"(?:`{1,3}|~~~)[A-Za-z]*")
_AFTER = re.compile(r"[ \t\r]*+(?:`{1,3}|~~~)?[ \t\r]*+(?:\n|$)")
_BRACKET = re.compile(r"[{\[]")
_ANY_BRACKET = re.compile(r"[{}\[\]]")
# A string, or a quotation mark that no other closes on its line with all that follows it there.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*+("?)|[{}\[\]]')
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Anchored:
    """A piece of JSON as the model wrote it; `whole` where the reply is nothing else."""

    raw: str
    whole: bool


def find_answer(reply: str, array: bool = False) -> Anchored | None:
    """The answer in a reply; an object, or an array where no object stands by itself.

    With `array` it is the other way round. None where nothing stands by itself.
    """
    text = reply.strip()
    if _is_json(text):
        return Anchored(text, whole=True)
    found = list(_standing(after_reasoning(text)))
    wanted = [raw for raw in found if raw.startswith("[" if array else "{")]
    pieces = wanted or found
    return Anchored(pieces[-1], whole=False) if pieces else None


def after_reasoning(text: str) -> str:
    """What follows the model's reasoning; nothing where that never ends."""
    closings = list(_CLOSING.finditer(text))
    rest = text[closings[-1].end() :] if closings else text
    opening = _OPENING.match(rest.lstrip())
    return "" if opening else rest


def _standing(text: str) -> Iterator[str]:
    """The outermost pieces of JSON with nothing else on their lines but a fence."""
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
            # Whatever begins inside a piece, whole or broken, is a part of it.
            at = _next_line(text, end)


def _bracket(text: str, at: int) -> int | None:
    """Where JSON may begin on the line from `at`: the first bracket."""
    found = _BRACKET.search(text, at, _next_line(text, at))
    return found.start() if found else None


def _next_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _balanced(text: str, start: int) -> int:
    """Where the brackets opened at `start` are all closed; the end where they never are."""
    depth = 0
    for bracket, end in _brackets(text, start):
        depth += 1 if bracket in "{[" else -1
        if depth == 0:
            return end
    return len(text)


def _brackets(text: str, start: int) -> Iterator[tuple[str, int]]:
    """The brackets outside of strings, each with the place after it."""
    for found in _STRING_OR_BRACKET.finditer(text, start):
        if found[0][0] != '"':
            yield found[0], found.end()
        elif not found[1]:  # no string begins here, and none after it on this line
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
        # Of a longer text an error would count the lines before it: hence a text of its own.
        return _DECODER.raw_decode(text)[1] == len(text)
    except (ValueError, RecursionError):
        return False
