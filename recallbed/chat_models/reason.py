"""What a server or a library says was wrong, in a form that rows, tables and logs can take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from recallbed.harness.terminal import one_line

SHOWN = 300
"""Characters. The rest of a longer reason is left out."""


def short_reason(text: str) -> str:
    """`text` on one line of at most SHOWN characters, what steers a terminal as escapes."""
    line = one_line(text[: 10 * SHOWN])
    return line if len(line) <= SHOWN else line[: SHOWN - 3] + "..."


def reason_in(body: Any) -> str:
    """What a server's JSON says was wrong, however it says it; empty where it says nothing."""
    for name in ("error", "message", "detail", "msg"):
        told = body.get(name) if isinstance(body, Mapping) else None
        if isinstance(told, Mapping):
            told = reason_in(told) or json.dumps(told, ensure_ascii=False)
        elif isinstance(told, list) and told:
            told = json.dumps(told, ensure_ascii=False)
        if isinstance(told, str) and told.strip():
            return told
    return body if isinstance(body, str) else ""
