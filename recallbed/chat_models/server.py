"""Address and API key of an OpenAI-compatible server, and the event loop that calls it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

from recallbed.errors import UserError
from recallbed.harness.secret import Secret, looks_like_a_key

OPENAI = "https://api.openai.com/v1"
_URLS = ("RECALLBED_BASE_URL", "OPENAI_BASE_URL")
_KEYS = ("RECALLBED_API_KEY", "OPENAI_API_KEY")


def choose_address(base_url: str | None) -> str:
    """Return `base_url`, else $RECALLBED_BASE_URL, $OPENAI_BASE_URL, else OpenAI's own.

    Raise UserError for an invalid URL and for one that holds a key: addresses are recorded.
    """
    url = base_url or next((os.environ[name] for name in _URLS if os.environ.get(name)), OPENAI)
    try:
        parts = urlsplit(url.strip())
        sound = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        sound = False
    if not sound:
        raise UserError("the base URL is not an http address. Write it as http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "the base URL holds a user name, a password or a query. Give only the server and the"
            f" path, and the key in ${_KEYS[0]}"
        )
    if looks_like_a_key(url):
        raise _key_in_path()
    return url.strip().rstrip("/")


class Key(Secret):
    """A key that only the server sees: not in a repr, and masked in replies.

    Raise UserError for one that no HTTP header can hold.
    """

    def __init__(self, value: str) -> None:
        if any(not 32 < ord(character) < 127 for character in value):
            raise UserError("the API key holds a space, a line break or a letter outside ASCII")
        super().__init__(value)


def choose_key(api_key: str | None, key_env: str | None, address: str) -> Key:
    """Return `api_key`, else the variable `key_env`, else $RECALLBED_API_KEY or $OPENAI_API_KEY.

    Only OpenAI's own server requires one. Raise UserError if it is missing, and if the address
    holds it or any key of these variables.
    """
    if api_key is None and key_env is not None and not os.environ.get(key_env):
        raise UserError(f"the variable {key_env}, named for the API key, is not set")
    names = (key_env,) if key_env else _KEYS
    found = api_key or next((os.environ[name] for name in names if os.environ.get(name)), None)
    if not found and address == OPENAI:
        raise UserError(f"{OPENAI} requires an API key. Set {_KEYS[1]}")
    key = Key((found or "none").strip())
    others = [Secret(os.environ[name].strip()) for name in _KEYS if os.environ.get(name)]
    if any(secret.shows_in(address) for secret in (key, *others)):
        raise _key_in_path()
    return key


def _key_in_path() -> UserError:
    return UserError(
        "the base URL holds an API key, and addresses are recorded. Give only the server and the"
        f" path, and the key in ${_KEYS[0]}"
    )


Result = TypeVar("Result")


class BackgroundLoop:
    """An event loop in a thread, for callers of any thread, also one with a running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="recallbed-chat", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of `work`. An interruption of the wait (Ctrl-C) cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
