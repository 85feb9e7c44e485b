"""A secret is masked in every form in which a server or a library may write it."""

from __future__ import annotations

import base64
import html
import json
import pickle
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recallbed.harness.secret import Secret, looks_like_a_key

HARD = "sk-\"quote'back\\slash/plus+0123&<%="
keys = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=40)


def written(key: str) -> dict[str, str]:
    """What a text may hold for a key."""
    return {
        "plain": key,
        "header": f"Bearer {key}.",
        "repr": repr(key),
        "repr in a list": repr(["it's", key, '"']),
        "repr of bytes": repr(f"Bearer {key}'\"".encode()),
        "JSON": json.dumps({"message": f"no key {key}"}),
        "JSON in JSON": json.dumps({"message": json.dumps({"key": key})}),
        "JSON of PHP": json.dumps(key).replace("/", "\\/"),
        "repr of JSON": repr(json.dumps({"key": key})),
        "URL": f"http://host/?key={quote(key)}",
        "URL, all": f"http://host/?key={quote(key, safe='')}",
        "form": f"key={quote_plus(key)}",
        "HTML": html.escape(key),
        "base64": base64.b64encode(key.encode()).decode(),
        "base64 of the header": base64.b64encode(f"Bearer {key}".encode()).decode(),
        "basic authentication": base64.b64encode(f"user:{key}".encode()).decode(),
        "base64 for URLs": base64.urlsafe_b64encode(f"u:{key}:".encode()).decode(),
    }


@pytest.mark.parametrize("form", written(HARD))
def test_a_key_is_masked_however_it_is_written(form: str) -> None:
    text = written(HARD)[form]
    masked = Secret(HARD).masked(f"before {text} after")
    assert "***" in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    for fragment in ("quote", "slash", "plus", "0123"):
        assert fragment not in masked
    for start in range(len(text) - 8 if "base64" in form or "basic" in form else 0):
        part = text[start : start + 8]
        assert part not in masked or part in base64.b64encode(b"Bearer user:").decode()


@given(keys)
def test_no_form_of_a_key_is_left_in_a_text(key: str) -> None:
    secret = Secret(key)
    for text in written(key).values():
        masked = secret.masked(text).replace("***", "")
        assert not secret.shows_in(masked) or len(key) < 8


def test_a_placeholder_is_a_word_like_others() -> None:
    assert Secret("none").masked("none of them") == "none of them"
    assert not Secret("none").shows_in("http://none/v1")


def test_a_secret_is_in_no_repr_and_survives_pickling() -> None:
    secret = pickle.loads(pickle.dumps(Secret(HARD)))
    assert HARD not in repr(secret)
    assert secret.masked(HARD) == "***"


@pytest.mark.parametrize(
    ("url", "looks"),
    [
        ("https://host/v1/sk-0123456789abcdefghij", True),
        ("https://host/sk%2D0123456789abcdefghij/v1", True),
        ("https://host/gsk_0123456789abcdefghij/v1", True),
        ("https://host/hf_0123456789abcdefghij", True),
        ("https://host/v1", False),
        ("https://host/client/v4/accounts/0123456789abcdef0123456789abcdef/ai/v1", False),
        ("https://host/openai/deployments/gpt-4o-mini-2024-07-18", False),
        ("https://sk-0123456789abcdefghij/v1", False),
        ("https://host/task-force-of-the-north-side", False),
    ],
)
def test_what_looks_like_a_key_in_a_path(url: str, looks: bool) -> None:
    assert looks_like_a_key(url) is looks
