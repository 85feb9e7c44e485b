"""Sweeps of rerankers against a server: the ceiling, faults of every kind, killed and resumed."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recallbed.chat_models import ChatOptions, harmless_line
from recallbed.corpus.material import gather
from recallbed.harness.failures import without_reason
from task3.sweep_run import Outcome
from tests.kit import ROOT, WriteRelease, rows_of, swept
from tests.reader import knows, reader, shown
from tests.scripted_server import Call, scripted_server

pytestmark = pytest.mark.large
QUERIES = 120
# Each is a twentieth of all calls. Of the first kinds a whole reply comes, and is stored.
STORED = (
    *("reversed", "duplicated", "out of range", "prose around", "echo", "echo only", "no json"),
    *("reasoning first", "wrong schema", "usage missing", "429 then fine", "500 then fine"),
)
# Status 408 is used for time-outs: with a time limit of our own, load on this machine could turn a
# right answer into a time-out, whose row is kept without any stored reply.
NOT_STORED = ("truncated", "empty", "status 429", "status 500", "status 408", "cut", "refusal")
KINDS = (*STORED, *NOT_STORED)
WAITS = {"retries": 1, "first_wait": 0.02}


def behaviour(call: Call) -> str:
    """By the hash of the query: the same however and whenever it is asked."""
    kind = hashlib.sha256(shown(call)[0].encode()).digest()[0] % 20
    return KINDS[kind] if kind < len(KINDS) else "perfect"


def invented(write_release: WriteRelease) -> Path:
    """120 queries with twelve memories each, one of which shares two words with its query."""
    things = "tea cats boats maps bread rain chess jazz wool clay moss kites".split()  # noqa: SIM905
    rows = []
    for number in range(QUERIES):
        texts = [f"person {number} and {thing} again" for thing in things]
        thing = things[number % 12]
        rows.append((f"what does person {number} say of {thing}", texts, number % 12))
    return write_release(rows, size=11)


def sweep(data: Path, url: str, out: Path, replies: Path, **more: Any) -> Outcome:
    return swept(
        ["r=listwise"],
        data,
        settings=["r.model=openai:m", "r.first_stage=bm25", "r.depth=8"],
        pools="released",
        distractors=(11,),
        ks=(1, 5),
        out=out,
        chat=ChatOptions(base_url=url, replies=str(replies), **WAITS),
        **more,
    )


def same_bytes(one: Path, other: Path) -> bool:
    names = ("rows.jsonl", "summary.json", "manifest.json")
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_a_perfect_reader_reaches_exactly_the_first_stages_recall_at_its_depth(
    alpsbench: Path, tmp_path: Path
) -> None:
    rows = gather(alpsbench, "dev", "released", (100,), (0,), 8).pools.rows
    golds = {harmless_line(row.query): harmless_line(row.gold_memory.text) for row in rows}
    with scripted_server(reader(lambda query, text: float(golds[query] == text))) as server:
        outcome = swept(
            ["minilm", "llm=listwise"],
            alpsbench,
            settings=["llm.model=openai:m", "llm.depth=20"],
            pools="released",
            distractors=(100,),
            ks=(1, 20),
            limit=8,
            out=tmp_path / "run",
            chat=ChatOptions(base_url=server.url, replies="none"),
        )
        assert len(server.calls) == 8
    minilm, llm = outcome.summary["cells"]
    ceiling = minilm["recall"]["20"]["mean"]
    assert llm["recall"]["1"]["mean"] == ceiling > minilm["recall"]["1"]["mean"]
    assert llm["recall"]["20"]["mean"] == ceiling
    assert llm["first_stage_recall"]["20"] == ceiling


def test_faults_of_every_kind_are_accounted_for_and_a_second_run_has_equal_bytes(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    data = invented(write_release)
    pools = gather(data, "dev", "released", (11,), (0,), None).pools
    golds = [row.gold_memory.text for row in pools.rows]
    with scripted_server(reader(knows(*golds)), behaviour) as server:
        outcome = sweep(data, server.url, tmp_path / "a", tmp_path / "a.sqlite")
        kinds = Counter(behaviour(call) for call in server.calls)
        again = sweep(data, server.url, tmp_path / "b", tmp_path / "b.sqlite")
        before = len(server.calls)
        # Everything that was stored is there: what is asked now are the errors and what was cut.
        sweep(data, server.url, tmp_path / "c", tmp_path / "a.sqlite")
        anew = Counter(behaviour(call) for call in server.calls[before:])
    assert set(kinds) == {*KINDS, "perfect"}, "every kind of fault was met"
    assert same_bytes(tmp_path / "a", tmp_path / "b")
    assert rows_of(tmp_path / "c") == rows_of(tmp_path / "a")
    assert set(anew) <= set(NOT_STORED)
    [cell] = outcome.summary["cells"]
    assert again.summary["cells"] == [cell]
    assert cell["attempted"] == QUERIES == cell["scored"] + cell["failed"]
    # Each row has the outcome of its behaviour, and there is no other cause.
    rows = rows_of(tmp_path / "a")
    failed = Counter(without_reason(row["error"]) for row in rows if row["error"])
    assert set(failed) == {"rate limited", "server error", "timeout", "connection"}
    assert dict(failed) == cell["failures"]
    for kind in ("cut", "wrong format", "repeated", "out of range", "missing"):
        assert cell["repairs"][kind] == sum(row["repairs"].get(kind, 0) for row in rows) > 0
    cut = {call.prompt for call in server.calls if behaviour(call) == "truncated"}
    assert cell["repairs"]["cut"] == len(cut)


SCRIPT = """
import sys
from pathlib import Path
from tests.test_rerank_sweep import sweep
data, url, out = sys.argv[1:]
replies = Path(out).with_suffix(".sqlite")
sweep(Path(data), url, Path(out), replies, on_existing="resume")
"""


def test_killed_half_way_and_resumed_it_repeats_no_call_whose_reply_was_stored(
    write_release: WriteRelease, tmp_path: Path
) -> None:
    at = 90
    data = invented(write_release)
    victim: list[subprocess.Popen[bytes]] = []

    def deadly(call: Call) -> str:
        if victim and len(server.calls) == at:
            victim.pop().send_signal(signal.SIGKILL)
        return behaviour(call)

    out, rowless = tmp_path / "killed", tmp_path / "rowless"
    command = [sys.executable, "-c", SCRIPT, str(data)]
    with scripted_server(reader(lambda query, text: 0.0), deadly) as server:

        def run(folder: Path) -> list[Call]:
            known = len(server.calls)
            subprocess.run([*command, server.url, str(folder)], cwd=ROOT, check=True)
            return server.calls[known:]

        victim.append(subprocess.Popen([*command, server.url, str(out)], cwd=ROOT, env=os.environ))
        assert victim[0].wait() == -signal.SIGKILL
        before = list(server.calls)
        with sqlite3.connect(out.with_suffix(".sqlite")) as replies:
            [(stored,)] = replies.execute("SELECT count(*) FROM reply")
            replies.execute("VACUUM INTO ?", [str(rowless.with_suffix(".sqlite"))])
        written = rows_of(out)
        after = run(out)
        without_rows = run(rowless)  # as if the rows had been lost with the process
        run(tmp_path / "whole")
    assert 0 < stored < QUERIES
    assert written

    def bodies(calls: list[Call]) -> set[str]:
        return {json.dumps(c.body, sort_keys=True) for c in calls if behaviour(c) not in NOT_STORED}

    # Whatever is stored in the end was either stored when it was killed, or sent for afterwards.
    assert stored + len(bodies(after)) == len(bodies(before) | bodies(after))
    assert stored + len(bodies(without_rows)) == len(bodies(before) | bodies(without_rows))
    # Every row rests on stored replies: what it asked is not asked again though the rows are lost.
    pools = gather(data, "dev", "released", (11,), (0,), None).pools
    queries = {row.benchmark_id: harmless_line(row.query) for row in pools.rows}
    rested = {queries[row["query"]] for row in written}
    again = {shown(call)[0] for call in without_rows if behaviour(call) not in NOT_STORED}
    assert not rested & again
    assert same_bytes(out, tmp_path / "whole")
    assert same_bytes(rowless, tmp_path / "whole")
