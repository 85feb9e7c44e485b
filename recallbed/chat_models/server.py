"""Where an OpenAI-compatible server is, and the key that it wants: from options or environment."""

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
    """`base_url`, else $RECALLBED_BASE_URL, $OPENAI_BASE_URL, else OpenAI's own.

    Raises UserError for one that is no URL, or that carries a key: addresses are written down.
    """
    url = base_url or next((os.environ[name] for name in _URLS if os.environ.get(name)), OPENAI)
    try:
        parts = urlsplit(url.strip())
        sound = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        sound = False
    if not sound:
        raise UserError("the base URL is no http address. Write it like http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "the base URL carries a user name, a password or a query. Give the server and the path"
            f" alone, and the key in ${_KEYS[0]}"
        )
    if looks_like_a_key(url):
        raise _key_in_path()
    return url.strip().rstrip("/")


class Key(Secret):
    """A key that is shown to the server alone: not in a repr, and struck out of what comes back.

    Raises UserError for one that no header can carry.
    """

    def __init__(self, value: str) -> None:
        if any(not 32 < ord(character) < 127 for character in value):
            raise UserError("the API key holds a space, a line break or a letter outside ASCII")
        super().__init__(value)


def choose_key(api_key: str | None, key_env: str | None, address: str) -> Key:
    """`api_key`, else the variable named `key_env`, else $RECALLBED_API_KEY or $OPENAI_API_KEY.

    A server other than OpenAI's may want none. Raises UserError if one is missing, and if the
    address holds it or any key that these variables hold.
    """
    if api_key is None and key_env is not None and not os.environ.get(key_env):
        raise UserError(f"the variable {key_env}, named as the API key's, isn't set")
    names = (key_env,) if key_env else _KEYS
    found = api_key or next((os.environ[name] for name in names if os.environ.get(name)), None)
    if not found and address == OPENAI:
        raise UserError(f"{OPENAI} wants an API key. Set {_KEYS[1]}")
    key = Key((found or "none").strip())
    others = [Secret(os.environ[name].strip()) for name in _KEYS if os.environ.get(name)]
    if any(secret.shows_in(address) for secret in (key, *others)):
        raise _key_in_path()
    return key


def _key_in_path() -> UserError:
    return UserError(
        "the base URL holds an API key, and addresses are written down. Give the server and the"
        f" path alone, and the key in ${_KEYS[0]}"
    )


Result = TypeVar("Result")


class BackgroundLoop:
    """Runs coroutines for any thread, also for one that has a running loop (a notebook's)."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="recallbed-chat", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`. What interrupts the waiting (Ctrl-C) cancels the work."""
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
