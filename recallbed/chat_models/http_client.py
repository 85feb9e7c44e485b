"""HTTP client of the `openai` library: bounded replies, no redirects."""

from __future__ import annotations

import os
import ssl
from functools import cache
from typing import Any

import httpx2
from openai import DEFAULT_CONNECTION_LIMITS

from recallbed.chat_models.call_errors import CERTIFICATES

MAX_REPLY_BYTES = 4 * 2**20
"""Bytes of one reply, decompressed. The longest replies of real models stay below 1 MB."""
_ENCODINGS = ("", "identity", "gzip", "deflate")


class ReplyTooLarge(Exception):
    """The reply is larger than MAX_REPLY_BYTES; the connection is closed at that point."""


class UnusableEncoding(Exception):
    """The reply is compressed in a way that was not requested and is not supported."""


class BoundedClient(httpx2.AsyncClient):
    """Reads every reply, errors too, up to MAX_REPLY_BYTES, and requests no compression.

    Raise ReplyTooLarge and UnusableEncoding, and otherwise what httpx2 raises.
    """

    def __init__(self, timeout: float) -> None:
        super().__init__(
            headers={"Accept-Encoding": "identity"},
            timeout=timeout,
            limits=DEFAULT_CONNECTION_LIMITS,
            verify=_certificates(*map(os.environ.get, CERTIFICATES)),
            # Prompts hold a user's memories: they are sent only to the address that the user gave.
            follow_redirects=False,
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Return the whole response, decompressed."""
        response = await super().send(request, **{**options, "stream": True})
        try:
            content = await _read(response)
        finally:
            await response.aclose()
        headers = {
            name: value
            for name, value in response.headers.items()
            if name not in ("content-encoding", "content-length", "transfer-encoding")
        }
        return httpx2.Response(
            response.status_code, headers=headers, content=content, request=request
        )


@cache
def _certificates(*named: str | None) -> ssl.SSLContext:
    """The trusted certificates, read once for all clients; `named` are those of the environment."""
    return httpx2.create_ssl_context()


async def _read(response: httpx2.Response) -> bytes:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in _ENCODINGS:
        raise UnusableEncoding(f"the reply is compressed ({encoding}), which was not asked for")
    pieces, size = [], 0
    async for piece in response.aiter_bytes():  # decompressed in pieces of at most 1 MiB
        size += len(piece)
        if size > MAX_REPLY_BYTES:
            raise ReplyTooLarge(f"the reply is larger than {MAX_REPLY_BYTES // 2**20} MiB")
        pieces.append(piece)
    return b"".join(pieces)
