"""Where an OpenAI-compatible server is, and the key that it wants: from options or environment."""

from __future__ import annotations

import os
from urllib.parse import quote, urlsplit

from harness.errors import UserError

OPENAI = "https://api.openai.com/v1"
_URLS = ("RECALLBED_BASE_URL", "OPENAI_BASE_URL")
_KEYS = ("RECALLBED_API_KEY", "OPENAI_API_KEY")
_SHORTEST = 6


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
    return url.strip().rstrip("/")


class Key:
    """A key that is shown to the server alone: not in a repr, and struck out of what comes back."""

    def __init__(self, value: str) -> None:
        if any(not 32 < ord(character) < 127 for character in value):
            raise UserError("the API key holds a space, a line break or a letter outside ASCII")
        self._value = value

    @property
    def value(self) -> str:
        """The key itself."""
        return self._value

    def __repr__(self) -> str:
        return "Key(***)"

    def struck_out(self, text: str) -> str:
        """`text` without the key; a server may echo what it was sent."""
        if len(self._value) < _SHORTEST:  # a placeholder such as "none", which is also a word
            return text
        for form in (self._value, quote(self._value, safe="")):
            text = text.replace(form, "***")
        return text


def choose_key(api_key: str | None, key_env: str | None, address: str) -> Key:
    """`api_key`, else the variable named `key_env`, else $RECALLBED_API_KEY or $OPENAI_API_KEY.

    A server other than OpenAI's may want none. Raises UserError where one is missing.
    """
    if api_key is None and key_env is not None and not os.environ.get(key_env):
        raise UserError(f"the variable {key_env}, named as the API key's, isn't set")
    names = (key_env,) if key_env else _KEYS
    found = api_key or next((os.environ[name] for name in names if os.environ.get(name)), None)
    if not found and address == OPENAI:
        raise UserError(f"{OPENAI} wants an API key. Set {_KEYS[1]}")
    return Key((found or "none").strip())
