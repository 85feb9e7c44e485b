"""What a command took from an earlier one is reported: rows kept, replies in the cache."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recallbed.chat_models import ChatOptions
from recallbed.harness.run_options import RunOptions
from task3.sweep_run import run_sweep
from tests.kit import WriteRelease, sweep_config, swept
from tests.reader import reader
from tests.scripted_server import scripted_server

ROWS = [
    (f"what of {word}", [f"likes {word}", f"has {word} at home", f"sleeps until {i}"], 0)
    for i, word in enumerate(("tea", "cats", "boats", "maps"))
]


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return [line for line in lines if line.startswith(("reused", "replies:"))]


def test_a_sweep_whose_server_is_off_says_that_it_ends_from_the_cache(
    write_release: WriteRelease, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted_server(reader(lambda query, text: len(text))) as server:
        config = sweep_config(
            ["r=listwise"],
            write_release(ROWS),
            settings=["r.model=openai:m", "r.first_stage=overlap", "r.depth=3"],
            distractors=(2,),
            ks=(1,),
            out=tmp_path / "first",
            chat=ChatOptions(
                base_url=server.url, replies=str(tmp_path / "replies.sqlite"), retries=0
            ),
        )
        run_sweep(config)
        assert told(capsys) == []
        assert len(server.calls) == 4
    # From here on nothing answers at this address.
    run_sweep(replace(config, run=RunOptions(tmp_path / "second")))
    assert told(capsys) == ["replies: 4 cached, 0 requested"]
    first, second = (
        json.loads((tmp_path / name / "summary.json").read_text()) for name in ("first", "second")
    )
    assert first["cells"] == second["cells"]

    run_sweep(replace(config, run=RunOptions(tmp_path / "second", resume=True)))
    assert told(capsys) == ["reused 4 rows, scored 0"]
    rows = tmp_path / "second" / "rows.jsonl"
    rows.write_bytes(b"".join(rows.read_bytes().splitlines(keepends=True)[:3]))
    run_sweep(replace(config, run=RunOptions(tmp_path / "second", resume=True)))
    assert told(capsys) == ["reused 3 rows, scored 1", "replies: 1 cached, 0 requested"]


def test_nothing_reused_is_not_mentioned(
    write_release: WriteRelease, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept(["overlap"], write_release(ROWS), distractors=(2,), ks=(1,), out=tmp_path / "run")
    assert told(capsys) == []
