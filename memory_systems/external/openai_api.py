"""Bodies of requests and replies of OpenAI's API, as far as the gateway serves it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recallbed.chat_models.base import JSON, Reply, Request
from recallbed.chat_models.budget import estimate_text
from recallbed.chat_models.passthrough import AssistantMessage, Passthrough
from recallbed.errors import UserError
from recallbed.harness.input_text import STRICT_JSON

REPLY_TOKENS = 4096
"""Limit of a reply if the system names none."""
MOST_TEXTS = 2048
"""Texts of one request for embeddings, as at OpenAI."""
# They would change the form of the reply. Of the others, those that are not read are ignored.
_REFUSED = ("stream", "functions", "function_call", "logprobs", "audio")


class InvalidBody(Exception):
    """A request that the gateway refuses, and why."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Texts to encode. `dimensions` is the length of the vectors, None for the model's own."""

    texts: tuple[str, ...]
    as_base64: bool = False
    dimensions: int | None = None


def read_body(body: bytes) -> Mapping[str, JSON]:
    """Parse the body of a request. Raise InvalidBody unless it is a JSON object."""
    try:
        found = STRICT_JSON.decode(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidBody(f"the body is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise InvalidBody("the body is not a JSON object")
    return found


def read_chat(body: Mapping[str, JSON]) -> Request:
    """Read a request for a chat completion. Raise InvalidBody.

    The temperature is the system's own; 0 if it names none. The model's name is ignored.
    """
    for name in _REFUSED:
        if body.get(name):
            raise InvalidBody(f"`{name}` is not supported")
    if body.get("n") not in (None, 1):
        raise InvalidBody("`n` must be 1")
    temperature = body.get("temperature")
    if temperature is not None and not (_is_number(temperature) and temperature >= 0):
        raise InvalidBody("`temperature` must be a number from 0")
    limits = [_count(body, name) for name in ("max_completion_tokens", "max_tokens")]
    seed = body.get("seed")
    if seed is not None and type(seed) is not int:
        raise InvalidBody("`seed` must be an integer")
    try:
        sent = Passthrough.of(body)
        return Request(
            sent.messages,
            max_tokens=next((limit for limit in limits if limit is not None), REPLY_TOKENS),
            temperature=0.0 if temperature is None else float(temperature),
            seed=seed,
            passthrough=sent,
        )
    except UserError as error:
        raise InvalidBody(str(error)) from None


def read_embeddings(body: Mapping[str, JSON]) -> EmbeddingRequest:
    """Read a request for embeddings. Raise InvalidBody."""
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidBody("`input` must be a text or a list of texts, not of token ids")
    if not 1 <= len(texts) <= MOST_TEXTS:
        raise InvalidBody(f"`input` holds {len(texts)} texts, not 1 to {MOST_TEXTS}")
    form = body.get("encoding_format")
    if form not in (None, "float", "base64"):
        raise InvalidBody("`encoding_format` must be float or base64")
    return EmbeddingRequest(tuple(texts), form == "base64", _count(body, "dimensions"))


def completion_json(model: str, request: Request, reply: Reply) -> JSON:
    """Return the body of a chat completion. Equal replies to equal requests have equal bodies."""
    message = reply.message or AssistantMessage(reply.text)
    said = message.to_json()
    parts = [request.passthrough and request.passthrough.text, said]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    tokens_in, tokens_out = reply.usage.estimate_in, reply.usage.estimate_out
    return {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {**said, "refusal": None},
                "logprobs": None,
                "finish_reason": "tool_calls" if message.tool_calls else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    }


def embeddings_json(
    model: str, request: EmbeddingRequest, vectors: Sequence[NDArray[np.float32]]
) -> JSON:
    """Return the body of a reply with one vector per text. Its usage is an estimate."""
    tokens = sum(map(estimate_text, request.texts))
    return {
        "object": "list",
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": _as_base64(vector) if request.as_base64 else vector.tolist(),
            }
            for index, vector in enumerate(vectors)
        ],
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def models_json(names: Sequence[str]) -> JSON:
    """Return the list of models."""
    entries = [
        {"id": name, "object": "model", "created": 0, "owned_by": "recallbed"} for name in names
    ]
    return {"object": "list", "data": entries}


def error_json(message: str, kind: str, code: str) -> JSON:
    """Return the body of an error."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _as_base64(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _is_number(value: JSON) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _count(body: Mapping[str, JSON], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= 10**9:
        raise InvalidBody(f"`{name}` must be an integer from 1")
    return value
