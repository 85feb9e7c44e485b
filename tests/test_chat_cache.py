"""Replies on disk: what is stored, what is not, and that no stored call is made twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from recallbed.chat_models import Cause, Failure, Message, Reply, ReplyCache, Request, Rung, Usage
from recallbed.chat_models.cache import Stored, choose_cache, key_of
from tests.kit import ROOT, checked
from tests.scripted_server import Call, scripted_server
from tests.test_chat_openai import client as any_client


class Verdict(BaseModel):
    good: bool


class Other(BaseModel):
    good: bool
    why: str = ""


def ask(text: str, **settings: Any) -> Request:
    return Request((Message("user", text),), Verdict, **settings)


def right(call: Call) -> Any:
    return {"good": True}


client = partial(any_client, retries=1)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "replies.sqlite"


def test_a_run_from_the_cache_sends_nothing_and_counts_the_same(cache: Path) -> None:
    """The rungs left and the re-asks are found in the cache too, with no server behind it."""

    def choose(call: Call) -> str:
        return "repaired when asked again" if "3" in call.prompt else "perfect"

    requests = [ask(f"Is {i} good?") for i in range(8)]
    refusing = scripted_server(right, choose, refuses=("json_schema",))
    with refusing as server, client(server, cache=cache) as model:
        before = model.complete_all(requests)
    with client(server, cache=cache) as model:
        after = model.complete_all(requests)
        assert model.sent == 0
    for one, other in zip(before, after, strict=True):
        assert isinstance(one, Reply)
        assert isinstance(other, Reply)
        assert other.from_cache
        assert not one.from_cache
        assert (one.text, one.parsed, one.usage, one.rung, one.re_asks) == (
            other.text,
            other.parsed,
            other.usage,
            other.rung,
            other.re_asks,
        )
    assert sum(r.usage.calls for r in after) == 9


@pytest.mark.parametrize(
    "behaviour", ["truncated", "empty", "refusal", "status 503", "status 400", "cut", "not chat"]
)
def test_errors_and_cut_replies_are_never_stored(behaviour: str, cache: Path) -> None:
    with scripted_server(right, behaviour) as server, client(server, cache=cache) as model:
        assert isinstance(model.complete(ask("Good?")), Failure)
        assert len(ReplyCache(cache)) == 0
        server.choose = lambda call: "perfect"
        assert isinstance(model.complete(ask("Good?")), Reply)
        assert len(ReplyCache(cache)) == 1


def test_a_reply_that_breaks_the_schema_is_stored_and_fails_again_alike(cache: Path) -> None:
    with scripted_server(right, "wrong schema") as server, client(server, cache=cache) as model:
        first = checked(Failure, model.complete(ask("Good?")))
        assert model.complete(ask("Good?")) == first
        assert (first.cause, len(server.calls)) == (Cause.SCHEMA, 3)


def test_all_that_can_change_a_reply_is_in_the_key(cache: Path) -> None:
    messages = (Message("user", "Good?"),)
    others = [
        ask("Good?"),
        ask("Good? "),
        ask("Good?", max_tokens=7),
        ask("Good?", temperature=0.5),
        ask("Good?", temperature=None),
        ask("Good?", seed=1),
        ask("Good?", sample=1),
        Request(messages, Other),
        Request(messages),
        Request((Message("system", "Good?"),)),
        Request((*messages, *messages)),
    ]
    with scripted_server(right) as server, scripted_server(right) as second:
        with client(server, cache=cache) as model:
            for _ in range(2):
                model.complete_all(others)
                assert len(server.calls) == len(others)
        for changed in (
            client(server, "another", cache=cache),
            client(server, cache=cache, extra_body={"top_k": 1}),
            client(second, cache=cache),
        ):
            with changed as model:
                model.complete(others[0])
                assert model.sent == 1


def test_recall_never_sends(cache: Path) -> None:
    with scripted_server(right) as server:
        with client(server, cache=cache) as model:
            assert model.recall(ask("Good?")) is None
            sent = checked(Reply, model.complete(ask("Good?")))
            assert checked(Reply, model.recall(ask("Good?"))).parsed == sent.parsed
        with client(server) as model:
            assert model.recall(ask("Good?")) is None
        assert len(server.calls) == 1


CHILD = """
import json, sys
from pathlib import Path
from pydantic import BaseModel
from recallbed.chat_models import Message, Request
from recallbed.chat_models.openai_model import OpenAIModel
class Verdict(BaseModel):
    good: bool
url, cache, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
model = OpenAIModel("scripted", base_url=url, cache=cache, max_in_flight=2, first_wait=0.01)
requests = [Request((Message("user", f"Is {i} good?"),), Verdict) for i in range(count)]
replies = model.complete_all(requests)
print(json.dumps([[r.text, r.usage.calls, r.usage.tokens_in] for r in replies]))
"""


def child(url: str, cache: Path, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, url, str(cache), str(count)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_killed_and_run_again_no_stored_call_is_repeated(cache: Path) -> None:
    running: list[subprocess.Popen[str]] = []

    def choose(call: Call) -> str:
        if len(server.calls) == 12:
            os.kill(running[0].pid, signal.SIGKILL)
        return "perfect"

    with scripted_server(right, choose) as server:
        running.append(child(server.url, cache, 20))
        assert running[0].wait(120) == -signal.SIGKILL
        before, stored = len(server.calls), len(ReplyCache(cache))
        assert 10 <= stored <= 12  # two were under way
        again = child(server.url, cache, 20)
        out, _ = again.communicate(timeout=120)
        assert again.returncode == 0
        assert len(json.loads(out)) == 20
        assert len(server.calls) == before + 20 - stored


def test_two_processes_share_a_cache(cache: Path) -> None:
    with scripted_server(right) as server:
        both = [child(server.url, cache, 20) for _ in range(2)]
        outputs, errors = zip(*(process.communicate(timeout=120) for process in both), strict=True)
        assert errors == ("", "")
        assert [process.returncode for process in both] == [0, 0]
        assert outputs[0] == outputs[1]
        calls = len(server.calls)
        third = child(server.url, cache, 20)
        assert third.communicate(timeout=120)[0] == outputs[0]
        assert len(server.calls) == calls


FAULTS = (
    *("truncated", "duplicated", "out of range", "prose around", "echo", "echo only", "empty"),
    *("refusal", "reasoning first", "reasoning only", "usage missing", "no json", "wrong schema"),
    *("repaired when asked again", "429 then fine", "500 then fine", "cut once", "cut"),
    *("status 503", "status 429", "context", "not chat"),
)


def test_a_broken_run_under_all_faults_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    """Each fault strikes by the question's hash; what was stored before the break isn't sent."""

    def choose(call: Call) -> str:
        place = zlib.crc32(call.prompt.split("good?")[0].encode()) % (2 * len(FAULTS))
        return FAULTS[place] if place < len(FAULTS) else "perfect"

    requests = [ask(f"Is {i} good?") for i in range(120)]
    with scripted_server(right, choose) as server:

        def answers(cache: str, count: int = 120) -> tuple[list[Reply | Failure], int]:
            with client(server, cache=tmp_path / cache, first_wait=0.001) as model:
                return model.complete_all(requests[:count]), model.sent

        whole, _ = answers("whole")
        _, before = answers("broken", 50)
        stored = len(ReplyCache(tmp_path / "broken"))
        resumed, _ = answers("broken")
    assert len(ReplyCache(tmp_path / "broken")) == len(ReplyCache(tmp_path / "whole"))
    assert stored > 30
    assert before > stored
    causes = {answer.cause for answer in whole if isinstance(answer, Failure)}
    assert causes >= {Cause.CUT, Cause.EMPTY, Cause.NO_JSON, Cause.SCHEMA, Cause.RATE_LIMITED}
    for one, other in zip(whole, resumed, strict=True):
        if isinstance(one, Reply) and isinstance(other, Reply):
            other = replace(other, from_cache=one.from_cache)
        assert one == other


def test_the_first_of_two_stored_replies_stays(cache: Path) -> None:
    store, key = ReplyCache(cache), key_of({"a": 1})
    first = store.put(key, Stored("half \ud83d", Usage(1, 2, 3)))
    assert ReplyCache(cache).put(key, Stored("other", Usage(1, 5, 5))) == first
    assert store.get(key) == Stored("half \ud83d", Usage(1, 2, 3))
    assert store.keep_rung(key, Rung.PLAIN) is Rung.PLAIN
    assert store.keep_rung(key, Rung.STRICT) is Rung.PLAIN
    assert store.get(key_of({"a": 2})) is None


def test_a_damaged_reply_is_asked_for_again_replaced_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "replies.sqlite"
    cache = ReplyCache(path)
    for key in (b"j", b"k"):
        cache.put(key, Stored("first", Usage(1, 2, 3)))
    cache.keep_rung(b"k", Rung.PLAIN)
    cache.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE reply SET text = '\"fi2st\"' WHERE key = x'6b'")
        connection.execute("UPDATE rung SET rung = 'JSON mode'")
    assert cache.get(b"k") is None
    assert cache.rung(b"k") is None
    assert cache.get(b"j") == Stored("first", Usage(1, 2, 3))
    assert cache.put(b"k", Stored("second", Usage(1))) == Stored("second", Usage(1))
    assert cache.get(b"k") == Stored("second", Usage(1))
    assert cache.keep_rung(b"k", Rung.STRICT) is Rung.STRICT
    cache.close()
    assert capsys.readouterr().err == f"note: {path}: damaged replies, requested again: 1\n"


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RECALLBED_REPLIES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert choose_cache(None) == tmp_path / "recallbed" / "replies.sqlite"
    assert choose_cache("none") is None
    monkeypatch.setenv("RECALLBED_REPLIES", str(tmp_path / "r"))
    assert choose_cache(None) == tmp_path / "r"
    assert choose_cache(str(tmp_path / "s")) == tmp_path / "s"


def test_a_stored_reply_is_on_the_disk_before_anyone_sees_it(tmp_path: Path) -> None:
    """FULL: each commit is flushed, so that no row outlasts the reply that it rests on."""
    cache = ReplyCache(tmp_path / "replies.sqlite")
    with cache._using() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    cache.close()
