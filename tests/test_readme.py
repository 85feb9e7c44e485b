"""The README's commands, run in the order in which they stand, in one folder."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recallbed.corpus.layout import sample_root
from tests.kit import ROOT, write_lines
from tests.scripted_server import Call, scripted_server

NOT_RUN = {
    "make": "needs a virtual environment of its own; test_docs checks the targets",
    "python -m task3.tune": "its grid takes a minute; test_tune runs it on less",
}
"""Commands that are not run, by what they begin with, and why."""


def commands() -> list[list[str]]:
    """The words of every indented command of the README, without its comment."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^ {4}((?:python -m|make) .*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def block(begin: str) -> str:
    """The indented block of the README that begins so."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^ {{4}}{re.escape(begin)}.*(?:\n(?: {{4}}.*)?)*", text, re.MULTILINE)
    assert found is not None
    return re.sub(r"^ {4}", "", found[0], flags=re.MULTILINE)


def reply(call: Call) -> object:
    """What any of the asked prompts takes, by the schema that it comes with."""
    schema = json.dumps(call.body.get("response_format", "")) + call.prompt
    if '"used_memory_fact"' in schema:
        return {"answer": "As you like.", "used_memory_fact": ""}
    if '"selected_memory"' in schema:
        return {"answer": "As you like.", "reason": "It fits.", "selected_memory": 1}
    if '"order"' in schema:
        return {"order": [2, 1]}
    if '"resonation"' in schema:
        return {"evidence": "all", "resonation": 3, "expression": 3, "reception": 3}
    return {"evidence": "all of it", "verdict": "yes"}


def inputs(folder: Path) -> None:
    """The files that the README has its reader bring along; no command's words are changed."""
    (folder / "mymodule.py").write_text(block("# mymodule.py"), encoding="utf-8")
    (folder / "benchmark_data").symlink_to(sample_root())
    row = json.loads(block('{"query"').partition("\n")[0])
    more = [
        {"query": f"What of {i}?", "memories": [f"Likes thing {i}", f"Owns item {i}"], "gold": 0}
        for i in range(60)
    ]
    write_lines(folder / "my.jsonl", [row, *more])
    texts = [memory for one in [row, *more] for memory in one["memories"]]
    write_lines(folder / "memories.jsonl", [{"text": text} for text in texts])


def test_the_commands_run_in_the_order_in_which_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RECALLBED_REPLIES", str(tmp_path / "replies.sqlite"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    left = dict(NOT_RUN)
    started = time.perf_counter()
    with scripted_server(reply) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        for command in commands():
            skipped = [begin for begin in NOT_RUN if shlex.join(command).startswith(begin)]
            if skipped:
                left.pop(skipped[0], None)
                continue
            _, _, module, *words = command
            words = [server.url if "127.0.0.1:8000" in word else word for word in words]
            app = importlib.import_module(module).app
            result = CliRunner().invoke(app, words)
            print(f"{time.perf_counter() - started:6.1f} s after {shlex.join(command)}")
            assert result.exit_code == 0, f"{command}\n{result.output}\n{result.exception!r}"
    assert not left, f"not in the README any more: {left}"
    for made in (
        *("runs/A/summary.json", "runs/B/curve.csv", "curve.png", "predictions.jsonl"),
        *("exported/bm25.d100.run", "exported/d1000.qrels", "store"),
        *("runs/t1/predictions.jsonl", "runs/t2/summary.json", "runs/t4/rows.jsonl"),
    ):
        assert (tmp_path / made).exists(), made
