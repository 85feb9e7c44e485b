"""Chat completions that another program requests: sent unchanged, with tool calls in the reply."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from recallbed.chat_models.anchor import after_reasoning
from recallbed.chat_models.base import JSON, Message, Request, Role
from recallbed.errors import UserError
from recallbed.harness.input_text import clean_text

_FIELDS = (
    *("messages", "tools", "tool_choice", "parallel_tool_calls"),
    *("response_format", "stop"),
)
_ROLES: Mapping[str, Role] = {"developer": "system", "system": "system", "assistant": "assistant"}


@dataclass(frozen=True, slots=True)
class Passthrough:
    """Messages, tools and reply format in OpenAI's JSON. `text` is what `of` makes of them.

    The order of keys is kept: a model writes the fields of a schema in their order.
    """

    text: str

    @classmethod
    def of(cls, body: Mapping[str, JSON]) -> Passthrough:
        """Keep what a model reads of the body of a request; null counts as missing.

        Lone surrogates, which cannot be sent, become U+FFFD. Raise UserError for an invalid field.
        """
        fields = {name: body[name] for name in _FIELDS if body.get(name) is not None}
        messages = fields.get("messages")
        if not isinstance(messages, list) or not messages:
            raise UserError("`messages` must be a list of at least one message")
        for number, message in enumerate(messages):
            role, content = _part(message, "role"), _part(message, "content")
            if not isinstance(role, str) or not isinstance(content, str | list | None):
                raise UserError(f"`messages[{number}]` must have a role, and text or parts")
        tools = fields.get("tools", [])
        if not (isinstance(tools, list) and all(isinstance(tool, Mapping) for tool in tools)):
            raise UserError("`tools` must be a list of objects")
        form = fields.get("response_format")
        if form is not None and not isinstance(_part(form, "type"), str):
            raise UserError("`response_format` must be an object with a type")
        try:
            text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (ValueError, RecursionError):
            raise UserError("the request is not JSON") from None
        return cls(clean_text(text, Counter()))

    @property
    def fields(self) -> dict[str, JSON]:
        """Return the fields as a client library takes them."""
        found: dict[str, JSON] = json.loads(self.text)
        return found

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return the messages as text: what is not text is written as JSON."""
        return tuple(
            Message(_ROLES.get(message["role"], "user"), _as_text(message))
            for message in self.fields["messages"]
        )

    @property
    def reply_schema(self) -> Mapping[str, JSON] | None:
        """Return the JSON schema that the reply must fit; None if it may be any text."""
        form = self.fields.get("response_format") or {}
        if form.get("type") == "json_object":
            return {"type": "object"}
        schema = _part(form.get("json_schema"), "schema")
        return schema if isinstance(schema, Mapping) else None

    @property
    def beyond_text(self) -> str | None:
        """Return the first field that a model without tools and pictures cannot obey, or None."""
        fields = self.fields
        if fields.get("tools") and fields.get("tool_choice") != "none":
            return "tools"
        if fields.get("stop"):
            return "stop"
        parts = (part for m in fields["messages"] for part in _parts(m.get("content")))
        return next(("messages" for part in parts if _text_of(part) is None), None)


def passthrough_key(request: Request) -> dict[str, JSON]:
    """Return the entry in the key of a stored reply; none for a request of ours."""
    return {} if request.passthrough is None else {"passthrough": request.passthrough.text}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function that the model calls; `arguments` is JSON as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A reply with text, tool calls or both; `content` is None if there is no text."""

    content: str | None
    tool_calls: tuple[ToolCall, ...] = ()

    @classmethod
    def of(cls, message: Any) -> AssistantMessage | None:
        """Read a message in OpenAI's JSON whose content is text or null; None for another form."""
        content, calls = _part(message, "content"), _part(message, "tool_calls") or []
        if not isinstance(content, str | None) or not isinstance(calls, list):
            return None
        read = [_tool_call(call) for call in calls]
        known = tuple(call for call in read if call is not None)
        return cls(content, known) if len(known) == len(read) else None

    def to_json(self) -> dict[str, JSON]:
        """Return the message in OpenAI's JSON."""
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in self.tool_calls
        ]
        said = {"role": "assistant", "content": self.content}
        return {**said, "tool_calls": calls} if calls else said

    def map_text(self, change: Callable[[str], str]) -> AssistantMessage:
        """Return the message with each of its texts changed."""
        calls = tuple(
            ToolCall(change(call.id), change(call.name), change(call.arguments))
            for call in self.tool_calls
        )
        return AssistantMessage(None if self.content is None else change(self.content), calls)

    def without_reasoning(self) -> AssistantMessage:
        """Return the message without reasoning that a server left in the text."""
        rest = after_reasoning(self.content or "")
        if rest == (self.content or ""):
            return self
        return replace(self, content=rest.strip() or None)

    @property
    def is_empty(self) -> bool:
        """Return whether there is neither text nor a tool call."""
        return not (self.tool_calls or (self.content or "").strip())


def _tool_call(call: Any) -> ToolCall | None:
    function = _part(call, "function")
    name, arguments = _part(function, "name"), _part(function, "arguments")
    if isinstance(arguments, Mapping):  # as some servers give them
        arguments = json.dumps(arguments, ensure_ascii=False)
    if not (isinstance(name, str) and name and isinstance(arguments, str | None)):
        return None
    given = _part(call, "id")
    if not (isinstance(given, str) and given):  # some servers give none
        read = json.dumps([name, arguments]).encode()
        given = f"call_{hashlib.sha256(read).hexdigest()[:24]}"
    return ToolCall(given, name, arguments or "{}")


def _part(whole: Any, name: str) -> Any:
    return whole.get(name) if isinstance(whole, Mapping) else None


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _text_of(part: Any) -> str | None:
    """The text of a part of a message, None for a picture, sound or file."""
    text = part if isinstance(part, str) else _part(part, "text")
    return text if isinstance(text, str) else None


def _as_text(message: Mapping[str, JSON]) -> str:
    content = message.get("content")
    texts = [content] if isinstance(content, str) else []
    for part in _parts(content):
        text = _text_of(part)
        texts.append(json.dumps(part, ensure_ascii=False) if text is None else text)
    if calls := message.get("tool_calls"):
        texts.append(json.dumps(calls, ensure_ascii=False))
    return "\n".join(texts)
