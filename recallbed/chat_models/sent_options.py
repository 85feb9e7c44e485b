"""Options that change every request: the temperature, and fields of a particular server."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from recallbed.chat_models.base import JSON, Request
from recallbed.errors import UserError

AS_REQUESTED: Literal["as requested"] = "as requested"
"""Default: each request says its own temperature."""
_OURS = ("messages", "model", "n", "response_format", "stream")
"""Fields on which the reading of a reply depends."""
Temperature = float | Literal["as requested"] | None


def at_temperature(request: Request, temperature: Temperature) -> Request:
    """Return the request with the temperature of this option."""
    if temperature == AS_REQUESTED:
        return request
    return replace(request, temperature=temperature)


def temperature_setting(temperature: Temperature) -> dict[str, JSON]:
    """Return the entry in the settings of a model; none for the default."""
    return {} if temperature == AS_REQUESTED else {"temperature": temperature}


def read_temperature(word: str) -> float | None:
    """Parse a temperature, None for "none". Raise UserError for anything else."""
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
    """Parse the JSON object in `text`, or in the file that "@FILE" names. Raise UserError."""
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
    raise ValueError(f"{constant} is not JSON")
