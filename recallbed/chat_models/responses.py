"""Reading a server's response: a complete reply, or trouble that may or may not pass.

No part of a response is trusted: the type of each is checked before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from recallbed.chat_models.base import Cause, Failure, Usage, reason_in, short_reason
from recallbed.chat_models.passthrough import AssistantMessage
from recallbed.chat_models.structured import RawReply

# Finish reasons of a complete reply: `stop` of OpenAI and most others; the rest of Together, TGI,
# SGLang and gateways to Bedrock and Cohere.
WHOLE = frozenset({"stop", "eos", "eos_token", "stop_sequence", "end_turn", "complete"})
_CALLS_TOOLS = frozenset({"tool_calls", "tool_use", "function_call"})
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_FILTERED = frozenset({"content_filter", "content_filtered", "safety", "refusal"})
_MAY_PASS = frozenset({"error", "abort", "insufficient_system_resource"})
_MOST_TOKENS = 10**9
"""Per call. A larger number is not accepted as a count."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a call gave no usable reply, and whether a retry may succeed (`again`).

    `free` if nothing was sent or the server refused it at once: anything else may be billed.
    `unreachable` if there is no server; `length_name` if it requires the newer name of max_tokens.
    `denial` is the message that ends the run if the server refuses every other prompt too.
    """

    failure: Failure
    again: bool = False
    retry_after: float | None = None
    free: bool = False
    unreachable: bool = False
    length_name: bool = False
    denial: str | None = None


def read_completion(
    body: bytes,
    shown: Callable[[str], str],
    estimate: Callable[[str], Usage],
    passthrough: bool = False,
) -> tuple[RawReply | Trouble, Usage]:
    """Parse the body of a chat completion: the reply or trouble, and its usage.

    Only a reply with a normal finish reason (WHOLE) is accepted. `shown` masks the key in a text;
    `estimate` gives the usage of a reply that reports none. With `passthrough` the message may call
    tools, and the text of the reply is the message as JSON.
    """
    try:
        completion = json.loads(body)
    except (ValueError, RecursionError):
        completion = None
    reported = _reported(_part(completion, "usage"))
    choices = _part(completion, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = _part(choice, "message")
    text, refusal = _content(_part(message, "content"))
    if not isinstance(message, Mapping) or text is None:
        reason = reason_in(completion) or "is the base URL right?"
        return _unreadable(shown(f"the reply is no chat completion ({reason})"), reported, estimate)
    passed = AssistantMessage(None)
    if passthrough:
        content = None if message.get("content") is None else text
        found = AssistantMessage.of({**message, "content": content})
        if found is None:
            return _unreadable("the tool calls of the reply cannot be read", reported, estimate)
        passed = found.map_text(shown)
    usage = reported or estimate(text + "".join(call.arguments for call in passed.tool_calls))
    text = shown(text)
    refusal = _part(message, "refusal") or refusal
    finish = _part(choice, "finish_reason")

    def trouble(cause: Cause, line: str, again: bool = False) -> tuple[Trouble, Usage]:
        return Trouble(Failure(cause, short_reason(shown(line)), text, usage), again), usage

    end = finish.lower() if isinstance(finish, str) else ""
    if end in _CUT:
        return trouble(Cause.CUT, f"the reply ends at the output limit (finish_reason {end})")
    if refusal:
        return trouble(Cause.REFUSED, str(refusal))
    if end in _FILTERED:
        return trouble(Cause.REFUSED, f"stopped by a content filter (finish_reason {end})")
    if end not in WHOLE and not (passed.tool_calls and end in _CALLS_TOOLS):
        reason = reason_in(choice) or reason_in(completion)
        line = f"the reply does not end by a normal stop (finish_reason {finish or 'missing'})"
        line += f": {reason}" if reason else ""
        return trouble(Cause.SERVER_ERROR, line, again=end in _MAY_PASS)
    if not (text.strip() or passed.tool_calls):
        return trouble(Cause.EMPTY, f"no text came (finish_reason {end})")
    return RawReply(json.dumps(passed.to_json()) if passthrough else text, usage), usage


def _unreadable(
    line: str, reported: Usage | None, estimate: Callable[[str], Usage]
) -> tuple[Trouble, Usage]:
    failure = Failure(Cause.SERVER_ERROR, short_reason(line), usage=reported or Usage())
    return Trouble(failure, again=True), reported or estimate("")


def _part(whole: Any, name: str) -> Any:
    return whole.get(name) if isinstance(whole, Mapping) else None


def _content(content: Any) -> tuple[str | None, str]:
    """The text and the refusal in a message's content: a string, a list of parts, or null.

    The text is None for other content. Parts that are neither text nor refusal (reasoning, images)
    are ignored.
    """
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        return None, ""
    texts, refusals = [], []
    for part in content:
        text, refusal = part if isinstance(part, str) else _part(part, "text"), None
        if _part(part, "type") == "refusal":
            text, refusal = None, _part(part, "refusal")
        texts += [text] if isinstance(text, str) else []
        refusals += [refusal] if isinstance(refusal, str) else []
    return "".join(texts), " ".join(refusals)


def _reported(usage: Any) -> Usage | None:
    """The tokens that a server reports, None if these are not valid counts.

    Some servers bill reasoning that only the total includes.
    """
    prompt, completion, total = (
        count if _is_count(count) else None
        for count in (_part(usage, f"{name}_tokens") for name in ("prompt", "completion", "total"))
    )
    # No prompt has 0 tokens: some servers write zeros if they do not count.
    if not prompt or (completion is None and total is None):
        return None
    return Usage(1, prompt, max(completion or 0, (total or 0) - prompt))


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_TOKENS
