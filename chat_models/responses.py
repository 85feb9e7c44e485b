"""What a server's answer means: a whole reply, or trouble that may or may not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chat_models.base import Cause, Failure, Usage
from chat_models.structured import RawReply

_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a call gave no usable reply, and whether it may if it is sent again.

    `free` if nothing was sent or the server refused it unworked: all else may be billed.
    `unreachable` if there is no server; `length_name` if it wants the reply's bound under its newer
    name. `denial` is the line that ends the run if the server refuses every other prompt too.
    """

    failure: Failure
    again: bool = False
    retry_after: float | None = None
    free: bool = False
    unreachable: bool = False
    length_name: bool = False
    denial: str | None = None


def read_completion(
    completion: Any, shown: Callable[[str], str], estimate: Callable[[str], Usage]
) -> tuple[RawReply | Trouble, Usage]:
    """A chat completion as `openai` hands it over, unchecked: the reply or trouble, and its usage.

    `shown` strikes the key out of a text; `estimate` is the usage of a reply that tells none.
    """
    try:
        choice = completion.choices[0]
        text, finish = choice.message.content or "", choice.finish_reason
        refusal = getattr(choice.message, "refusal", None)
        if not isinstance(text, str):
            raise TypeError
    except (AttributeError, IndexError, TypeError):
        told = getattr(completion, "error", None) or "is the base URL right?"
        line = one_line(shown(f"the reply is no chat completion ({told})"))
        return Trouble(Failure(Cause.SERVER_ERROR, line), again=True), Usage()
    usage = _reported(completion) or estimate(text)
    text = shown(text)
    if finish == "length":
        line = "the reply ends where the output limit is, max_tokens"
        return Trouble(Failure(Cause.CUT, line, text)), usage
    if refusal or finish == "content_filter":
        why = one_line(shown(str(refusal))) if refusal else "stopped by a content filter"
        return Trouble(Failure(Cause.REFUSED, why, text)), usage
    if not text.strip():
        return Trouble(Failure(Cause.EMPTY, f"no text came (finish_reason {finish})")), usage
    return RawReply(text, usage), usage


def _reported(completion: Any) -> Usage | None:
    usage = getattr(completion, "usage", None)
    tokens_in = getattr(usage, "prompt_tokens", None)
    tokens_out = getattr(usage, "completion_tokens", None)
    if type(tokens_in) is not int or type(tokens_out) is not int:
        return None
    # No prompt has 0 tokens: some servers write zeros where they don't count.
    return Usage(1, tokens_in, tokens_out) if tokens_in > 0 and tokens_out >= 0 else None


def one_line(text: str) -> str:
    """`text` on one line, cut to what a table can show."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."
