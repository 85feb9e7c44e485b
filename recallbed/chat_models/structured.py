"""Structured replies: how they are requested, parsed and requested again.

`converse` is a generator that yields requests and receives replies, so that the same conversation
serves an asynchronous client and a local model.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recallbed.chat_models.anchor import after_reasoning, find_answer
from recallbed.chat_models.base import (
    JSON,
    Cause,
    Failure,
    Message,
    Reply,
    Request,
    Rung,
    Usage,
    short_reason,
)
from recallbed.chat_models.passthrough import AssistantMessage, passthrough_key
from recallbed.harness.input_text import clean_text

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

RE_ASKS = 2
_FORMAT = "Reply with JSON only, without any other text. It must fit this JSON schema:\n{schema}"
_AGAIN = (
    "Your reply could not be used: {why}. Reply again, with the whole answer, as JSON only,"
    " without any other text."
)
# One escape of a JSON string, a pair of surrogates being one.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|u(?P<unusable>0000|[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.S,
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One call: the messages, and the rung of the structured reply (None for plain text)."""

    messages: tuple[Message, ...]
    rung: Rung | None


@dataclass(frozen=True, slots=True)
class RawReply:
    """A complete reply as it was received, neither truncated nor empty.

    The text of a reply to a passthrough is the message as JSON.
    """

    text: str
    usage: Usage
    from_cache: bool = False


Conversation = Generator[Ask, "RawReply | Failure", Reply | Failure]


def reply_parts(settings: Mapping[str, JSON], request: Request, ask: Ask) -> dict[str, JSON]:
    """Return everything that can change the reply to a call, for the key of its cache."""
    return {
        **settings,
        "messages": [[m.role, m.content] for m in ask.messages],
        "schema": schema_of(request),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "sample": request.sample,
        **passthrough_key(request),
    }


def schema_of(request: Request) -> JSON:
    """Return the JSON schema of the reply; None for plain text."""
    return None if request.schema is None else request.schema.model_json_schema()


def converse(request: Request, rungs: Sequence[Rung], settled: bool = False) -> Conversation:
    """Answer `request` at the first of `rungs` that works.

    A rung fails if the server refuses the request (BAD_REQUEST) or, unless it is the last, if the
    first reply is not plain JSON or the server reports that the model violated the schema: then
    the request is sent at the next rung. At the rung that works a reply without usable JSON is
    requested again, at most RE_ASKS times, with the fault named. Replies at rungs that failed are
    not part of `usage`.

    With `settled` the first rung is known to work, and only a schema violation reported by the
    server leads to the next ones.
    """
    repairs: Counter[str] = Counter()
    if request.schema is None:
        answer = yield Ask(request.messages, None)
        if isinstance(answer, Failure):
            return _cleaned(answer)
        if request.passthrough is not None:
            return _passed_on(answer)
        whole = clean_text(answer.text, repairs)
        text = after_reasoning(whole).strip()
        if not text:
            return Failure(Cause.EMPTY, "reasoning and no answer", whole, answer.usage)
        return Reply(text, usage=answer.usage, from_cache=answer.from_cache, repairs=repairs)
    for place, rung in enumerate(rungs):
        last = place == len(rungs) - 1
        messages = request.messages if rung is Rung.STRICT else _with_format(request)
        usage, from_cache, failure = Usage(), True, Failure(Cause.NO_JSON)
        for attempt in range(1 + RE_ASKS):
            answer = yield Ask(messages, rung)
            first = attempt == 0 and not last and not (settled and place == 0)
            if isinstance(answer, Failure):
                # SCHEMA is here the server's report: see read_error.
                if (answer.cause is Cause.BAD_REQUEST and first) or (
                    answer.cause is Cause.SCHEMA and not last
                ):
                    break
                return _cleaned(replace(answer, usage=usage + answer.usage))
            repairs = Counter()
            text = clean_text(answer.text, repairs)
            parsed, whole_reply, problem = _read(text, request.schema, repairs)
            if parsed is None and not whole_reply and first:
                break
            usage += answer.usage
            from_cache = from_cache and answer.from_cache
            if parsed is not None:
                return Reply(text, parsed, usage, rung, attempt, from_cache, repairs)
            cause = Cause.SCHEMA if problem.found else Cause.NO_JSON
            failure = Failure(cause, problem.why, text, usage)
            again = Message("user", _AGAIN.format(why=problem.why))
            messages = (*messages, Message("assistant", text), again)
        else:
            return failure
    raise AssertionError("the last rung answers")


def _passed_on(answer: RawReply) -> Reply | Failure:
    """The reply to a passthrough, whose text is a message in OpenAI's JSON."""
    repairs: Counter[str] = Counter()
    whole = AssistantMessage.of(json.loads(answer.text))
    assert whole is not None, "made by AssistantMessage.to_json"
    message = whole.map_text(lambda text: clean_text(text, repairs)).without_reasoning()
    if message.is_empty:
        return Failure(Cause.EMPTY, "reasoning and no answer", whole.content or "", answer.usage)
    return Reply(
        message.content or "",
        usage=answer.usage,
        from_cache=answer.from_cache,
        repairs=repairs,
        message=message,
    )


def replied(
    conversation: Conversation, answer: Callable[[Ask], RawReply | Failure | None]
) -> Reply | Failure | None:
    """Return the end of a conversation whose answers need no waiting; None if one is unknown."""
    ask = next(conversation)
    while (came := answer(ask)) is not None:
        try:
            ask = conversation.send(came)
        except StopIteration as end:
            result: Reply | Failure = end.value
            return result
    return None


@dataclass(frozen=True, slots=True)
class _Problem:
    why: str = ""
    found: bool = True


def _read(
    text: str, schema: type[BaseModel], repairs: Counter[str]
) -> tuple[BaseModel | None, bool, _Problem]:
    """The parsed reply, whether it is plain JSON, and why it is unusable."""
    from pydantic import ValidationError

    found = find_answer(text, array=schema.model_json_schema().get("type") == "array")
    if found is None:
        return None, False, _Problem("no JSON stands by itself in it", found=False)
    try:
        parsed = schema.model_validate_json(_clean_escapes(found.raw, repairs))
        return parsed, found.whole, _Problem()
    except ValidationError as error:
        return None, found.whole, _Problem(_first_fault(error))
    except Exception as error:  # the schema's own code failed on the value
        return None, found.whole, _Problem(f"{type(error).__name__} while it was checked")


def _clean_escapes(raw: str, repairs: Counter[str]) -> str:
    """Apply `clean_text` to characters that are written as JSON escapes."""

    def repair(escape: re.Match[str]) -> str:
        if escape["unusable"] is None:
            return escape[0]
        repairs["NUL" if escape["unusable"] == "0000" else "lone surrogate"] += 1
        return r"\ufffd"

    return _ESCAPE.sub(repair, raw)


def _cleaned(failure: Failure) -> Failure:
    nothing: Counter[str] = Counter()
    detail, text = clean_text(failure.detail, nothing), clean_text(failure.text, nothing)
    return replace(failure, detail=detail, text=text)


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, fault["loc"]))
    return short_reason(f"{where}: {fault['msg']}" if where else fault["msg"])


def _with_format(request: Request) -> tuple[Message, ...]:
    assert request.schema is not None
    wanted = _FORMAT.format(schema=json.dumps(schema_of(request), ensure_ascii=False))
    *before, last = request.messages
    if last.role != "user":
        return (*request.messages, Message("user", wanted))
    return (*before, Message("user", f"{last.content}\n\n{wanted}"))


def strict_schema(schema: type[BaseModel]) -> dict[str, JSON]:
    """Return the JSON schema that strict servers require: no optional and no further fields."""
    closed: dict[str, JSON] = _close(schema.model_json_schema())
    return closed


def _close(node: Any) -> Any:
    if isinstance(node, list):
        return [_close(inner) for inner in node]
    if not isinstance(node, Mapping):
        return node
    # A field may be called "default" or "properties", so names of fields are not keywords.
    made = {
        key: {name: _close(inner) for name, inner in value.items()}
        if key in ("properties", "$defs")
        else _close(value)
        for key, value in node.items()
        if key != "default"
    }
    if isinstance(made.get("properties"), dict):
        made["additionalProperties"] = False
        made["required"] = list(made["properties"])
    return made
