"""`analysis.compare` on two models' answers of task 3: paired by query, on the same pools."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from analysis.compare import app
from analysis.paired import paired
from recallbed.harness.item_run import ITEM_KEYS
from task3 import score
from tests import kit, test_task3_answer
from tests.kit import one_line_error
from tests.scripted_server import Call, ScriptedServer
from tests.test_task3_answer import LINE, fails_for_tea, selects

compared = partial(kit.run, app)
root, server = test_task3_answer.root, test_task3_answer.server


def as_json(*words: object) -> dict[tuple[str, str], Any]:
    return {(one["figure"], one["scale"]): one for one in kit.run_json(app, *words)}


def answer_run(root: Path, server: ScriptedServer, out: Path, *more: object) -> Path:
    test_task3_answer.run(root, server, out, *more, code=0)
    return out


def misses(call: Call) -> dict[str, Any]:
    """A memory that is not the gold."""
    label = next(label for label, text in LINE.findall(call.prompt) if "summers" not in text)
    return {"answer": "a", "reason": "r", "selected_memory": int(label)}


@pytest.fixture
def runs(root: Path, server: ScriptedServer, tmp_path: Path) -> list[Path]:
    """One chooses the gold always; the other never, and fails on the two queries about tea."""
    one = answer_run(root, server, tmp_path / "one")
    server.answer, server.choose = misses, fails_for_tea("status 400")
    return [one, answer_run(root, server, tmp_path / "two")]


def test_queries_are_paired_and_those_that_failed_are_counted(runs: list[Path], root: Path) -> None:
    found = as_json(*runs, "--data", root)
    assert list(found) == [
        ("recall@1", "exact"),
        ("gold shown", "counted in the run"),
        ("used", "overlap of the reason"),
    ]
    recall = found["recall@1", "exact"]
    names = [f"q{n}" for n in range(12) if n not in (0, 8)]
    sessions = {name: name for name in names}
    by_hand = paired(dict.fromkeys(names, 1.0), dict.fromkeys(names, 0.0), sessions)
    assert (recall["n"], recall["unpaired"]) == (10, 2)
    for key in ("a", "b", "difference", "low", "high", "wins", "ties", "losses", "p", "verdict"):
        assert recall[key] == getattr(by_hand, key)
    assert found["gold shown", "counted in the run"]["ties"] == 10
    assert found["used", "overlap of the reason"]["difference"] == 1.0
    result = compared(*runs, "--data", root, code=0)
    assert result.stdout.startswith(f"Task 3: {runs[0]} and {runs[1]}, paired by query")
    assert "recall@1, exact: 2 queries left out" in result.stderr


def test_a_judge_of_both_adds_whether_the_gold_was_used(
    runs: list[Path], root: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    server.answer, server.choose = test_task3_answer.knows, lambda call: "perfect"
    verdicts = [tmp_path / f"{run.name}-judged" for run in runs]
    for run, out in zip(runs, verdicts, strict=True):
        judge = ["--use", "judge", "--judge-model", "openai:j", "--base-url", server.url]
        pools = ["--data", root, "--distractors", 7, "--out", out]
        kit.run(score.app, run, *judge, *pools, code=0)
    named = ["--verdicts", verdicts[0], "--verdicts", verdicts[1]]
    used = as_json(*runs, "--data", root, *named)["used", "judge openai:j"]
    assert (used["a"], used["b"], used["n"], used["unpaired"]) == (1.0, 0.0, 10, 2)
    words = [*runs, "--data", root, *named[:2]]
    one_line_error(compared(*words), f"{runs[1]} has verdicts of no judge")


def test_other_pools_other_kinds_and_other_data_are_refused(
    runs: list[Path], root: Path, server: ScriptedServer, tmp_path: Path
) -> None:
    server.answer, server.choose = selects(1), lambda call: "perfect"
    nested = answer_run(root, server, tmp_path / "nested", "--pools", "nested")
    one_line_error(compared(runs[0], nested, "--data", root), "not the same pools", "pools.")
    part = answer_run(root, server, tmp_path / "part", "--limit", 4)
    one_line_error(compared(runs[0], part, "--data", root), "not the same rows: 8 queries")
    one_line_error(compared(runs[0], tmp_path), "answers of task 3", "RUN:LABEL")
    one_line_error(compared(*runs), "not of the embedded sample", "--data")
    one_line_error(compared(*runs, "--script", "Han"), "concern sweeps of task 3")


def test_a_damaged_row_is_named(runs: list[Path], root: Path) -> None:
    rows = [{key: row[key] for key in ITEM_KEYS} for row in kit.rows_of(runs[1])]  # without checks
    rows[1]["result"]["correct"] = "no"
    kit.write_lines(runs[1] / "rows.jsonl", rows)
    one_line_error(compared(*runs, "--data", root), "rows.jsonl:2", "not a row of a run of task 3")
