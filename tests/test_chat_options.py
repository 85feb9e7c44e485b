"""The options of commands that ask a model: the same everywhere, and kept by the client."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import Result

import task1.run
import task1.score
import task2.run
import task2.score
import task3.answer
import task3.predict
import task3.score
import task3.sweep
import task3.tune
import task4.run
import task4.score
from recallbed.chat_models import ChatOptions, Chats, Message, Reply, Request
from recallbed.chat_models.sent_options import read_extra_body, read_temperature
from recallbed.errors import UserError
from tests import kit
from tests.kit import ROOT, WriteRelease, one_line_error
from tests.reader import reader
from tests.scripted_server import scripted_server

ASKING = {
    module.__name__: module.app
    for module in (
        *(task1.run, task1.score, task2.run, task2.score, task3.answer, task3.predict),
        *(task3.score, task3.sweep, task3.tune, task4.run, task4.score),
    )
}
OPTIONS = (
    *("--base-url", "--replies", "--temperature", "--extra-body", "--max-tokens-total"),
    *("--max-cost", "--prices", "--dry-run", "--in-flight", "--requests-per-minute"),
    *("--timeout", "--retries", "--context"),
)
THINK = '{"chat_template_kwargs": {"enable_thinking": false}}'


@pytest.mark.parametrize("name", ASKING)
def test_every_command_that_asks_a_model_has_the_same_options(name: str) -> None:
    there = {word for p in get_command(ASKING[name]).params for word in p.opts}
    assert set(OPTIONS) <= there


def ask(text: str = "Hi", **settings: Any) -> Request:
    return Request((Message("user", text),), **settings)


@pytest.mark.parametrize(
    ("option", "requested", "sent"),
    [(None, 0.0, 0.0), (None, 0.7, 0.7), ("none", 0.7, None), ("1", 0.0, 1.0), ("0", 0.7, 0.0)],
)
def test_the_temperature_that_is_sent(
    option: str | None, requested: float, sent: float | None, tmp_path: Path
) -> None:
    cache = str(tmp_path / "replies.sqlite")
    with scripted_server(lambda call: "yes") as server:
        chats = Chats(ChatOptions(base_url=server.url, replies=cache, temperature=option))
        model = chats("openai:m")
        assert isinstance(model.complete(ask(temperature=requested)), Reply)
        assert server.calls[0].body.get("temperature") == sent
        assert ("temperature" in server.calls[0].body) == (sent is not None)
        assert model.recall(ask(temperature=requested)) is not None
        chats.close()
        assert ("temperature" in model.settings()) == (option is not None)


def test_both_options_are_part_of_the_settings_and_of_the_cache_key(tmp_path: Path) -> None:
    cache = str(tmp_path / "replies.sqlite")
    variants: list[dict[str, str]] = [
        {},
        {"temperature": "none"},
        {"temperature": "1"},
        {"extra_body": THINK},
        {"temperature": "none", "extra_body": THINK},
    ]
    with scripted_server(lambda call: "yes") as server:
        settings = []
        for options in [*variants, *variants]:
            chats = Chats(ChatOptions(base_url=server.url, replies=cache, **options))
            settings.append(chats("openai:m").settings())
            assert isinstance(chats("openai:m").complete(ask()), Reply)
            chats.close()
        assert len(server.calls) == len(variants)
        assert len({json.dumps(one, sort_keys=True) for one in settings}) == len(variants)
        assert server.calls[3].body["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize("word", ["", "warm", "-1", "nan", "inf", "None"])
def test_temperatures_that_are_refused(word: str) -> None:
    with pytest.raises(UserError, match="--temperature"):
        read_temperature(word)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "JSON object"),
        ('{"top_p": NaN}', "NaN"),
        ('{"messages": []}', "`messages`"),
        ('{"stream": true}', "`stream`"),
        ("@absent.json", "absent.json"),
    ],
)
def test_bodies_that_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match="--extra-body") as caught:
        read_extra_body(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_body_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text(THINK)
    assert read_extra_body(f"@{tmp_path / 'body.json'}") == json.loads(THINK)


def run(name: str, *words: str, code: int | None = None) -> Result:
    return kit.run(ASKING[name], *words, code=code)


def test_a_reranker_an_answerer_and_a_memory_system_send_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with scripted_server(reader(lambda query, text: float(len(text)))) as server:
        shared = ("--base-url", server.url, "--replies", "none", "--limit", "1")
        shared += ("--temperature", "none", "--extra-body", THINK, "--retries", "0")
        rerank = ("--retriever", "r=listwise", "--set", "r.model=openai:m")
        rerank += ("--set", "r.first_stage=bm25", "--k", "1", "--distractors", "20")
        run("task3.sweep", *rerank, *shared)
        run("task3.answer", "--chat-model", "openai:m", "--distractors", "5", *shared)
        run("task4.run", "--system", "turns", "--chat-model", "openai:m", *shared)
        kinds = {call.body["messages"][0]["content"][:40] for call in server.calls}
        assert len(kinds) >= 3
        for call in server.calls:
            assert "temperature" not in call.body
            assert call.body["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("task3.sweep", ["--retriever", "r=listwise", "--set", "r.model=openai:m"]),
        ("task3.predict", ["--retriever", "r=listwise", "--set", "r.model=openai:m"]),
        ("task3.answer", ["--chat-model", "openai:m"]),
        ("task1.run", ["--system", "mem0-like", "--chat-model", "openai:m"]),
    ],
)
@pytest.mark.parametrize(
    "option", [["--extra-body", "{"], ["--temperature", "warm"]], ids=lambda option: option[0]
)
def test_a_mistake_in_them_is_one_line_and_nothing_is_written(
    name: str, words: list[str], option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one_line_error(run(name, *words, "--replies", "none", *option), option[0])
    assert not list(tmp_path.iterdir())


def test_predict_shows_what_it_would_send_and_sends_it_as_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with scripted_server(reader(lambda query, text: float(len(text)))) as server:
        words = ("--retriever", "r=listwise", "--set", "r.model=openai:m")
        words += ("--set", "r.first_stage=bm25", "--base-url", server.url, "--replies", "none")
        planned = run("task3.predict", *words, "--dry-run", code=0)
        assert "openai:m:" in planned.stdout
        assert not server.calls
        assert not list(tmp_path.iterdir())
        assert run("task3.predict", *words, "--temperature", "none").exit_code == 0
        assert server.calls
        assert not any("temperature" in call.body for call in server.calls)


BAD_ENVIRONMENTS = {
    "a SOCKS proxy": ("ALL_PROXY", "socks5://127.0.0.1:1", "socksio"),
    "a proxy of no known kind": ("HTTPS_PROXY", "foo://127.0.0.1:1", "HTTPS_PROXY"),
    "a proxy without a port": ("HTTP_PROXY", "http://127.0.0.1:port", "HTTP_PROXY"),
    "no such certificates": ("SSL_CERT_FILE", "/no/such/file.pem", "SSL_CERT_FILE"),
    "no such folder of certificates": ("SSL_CERT_DIR", "/no/such/folder", "SSL_CERT_DIR"),
    "certificates that are none": ("SSL_CERT_FILE", __file__, "SSL_CERT_FILE"),
}
COMMANDS = {
    "task3.answer": ["--chat-model", "openai:m", "--distractors", "1"],
    "task3.sweep": [
        *("--retriever", "bm25", "--retriever", "r=listwise", "--set", "r.model=openai:m"),
        *("--set", "r.first_stage=bm25", "--distractors", "1", "--pools", "released"),
    ],
    "task3.predict": ["--retriever", "r=listwise", "--set", "r.model=openai:m"],
    "task1.run": ["--system", "mem0-like", "--chat-model", "openai:m", "--limit", "1"],
}


@pytest.mark.parametrize("environment", BAD_ENVIRONMENTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_proxy_or_certificates_that_cannot_be_used_end_a_run_before_its_first_row(
    name: str,
    environment: str,
    write_release: WriteRelease,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variable, value, said = BAD_ENVIRONMENTS[environment]
    words = list(COMMANDS[name])
    if name != "task1.run":
        words += ["--data", str(write_release([("Tea?", ["Likes tea", "Has a cat"], 0)]))]
    for other in ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(other, raising=False)
        monkeypatch.delenv(other.lower(), raising=False)
    monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)
    with scripted_server(lambda call: "yes") as server:
        result = run(name, *words, "--base-url", server.url, "--replies", "none")
        assert not server.calls
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1, result.stderr
    assert said in result.stderr
    assert not list(tmp_path.rglob("rows.jsonl"))


def test_a_command_with_a_bad_proxy_shows_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "task3.answer", "--chat-model", "openai:m", "--limit", "1"]
    command += ["--base-url", "http://127.0.0.1:9/v1", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [*command, "--replies", "none"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "ALL_PROXY": "socks5://127.0.0.1:1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "socksio" in done.stderr
    assert not (tmp_path / "run").exists()
