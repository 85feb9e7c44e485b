"""What a user may change in every request: the temperature, and fields of a server's own."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from recallbed.chat_models.base import JSON, Request
from recallbed.errors import UserError

AS_REQUESTED: Literal["as requested"] = "as requested"
"""The temperature of a model whose user named none: what each request says."""
_OURS = ("messages", "model", "n", "response_format", "stream")
"""Fields on which the reading of a reply depends."""


Temperature = float | Literal["as requested"] | None


def at_temperature(request: Request, temperature: Temperature) -> Request:
    """The request as it is asked of a model with this option."""
    if temperature == AS_REQUESTED:
        return request
    return replace(request, temperature=temperature)


def temperature_setting(temperature: Temperature) -> dict[str, JSON]:
    """What the settings of a model say of it: nothing if no one chose it."""
    return {} if temperature == AS_REQUESTED else {"temperature": temperature}


def read_temperature(word: str) -> float | None:
    """The temperature that `word` gives, None for "none". Raises UserError for anything else."""
    if word == "none":
        return None
    try:
        found = float(word)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found >= 0):
        raise UserError(f"--temperature {word}: give a number from 0, or none to leave it out")
    return found


def read_extra_body(text: str) -> dict[str, JSON]:
    """The JSON object in `text`, or in the file that "@FILE" names. Raises UserError."""
    where = f"--extra-body {text}"
    if text.startswith("@"):
        try:
            text = Path(text[1:]).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{where}: cannot be read ({error})") from None
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise UserError(f'{where}: must be a JSON object, such as {{"think": false}}')
    for field in _OURS:
        if field in found:
            raise UserError(f"{where}: `{field}` is set by each request and cannot be changed")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
