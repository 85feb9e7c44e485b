"""`analysis.waterfall`: every question counts once, at the first step that its memory missed."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from analysis.traces import STEPS
from analysis.waterfall import app
from judges.verdicts import Grades
from task4 import run as run_command
from task4 import score as score_command
from tests import kit
from tests.kit import one_line_error
from tests.literal_runs import (
    GOLD,
    answered,
    write_answer_verdicts,
    write_memory_run,
    write_sessions,
    write_task4,
    write_task4_run,
)
from tests.scripted_server import scripted_server
from tests.test_task4 import answers

shown = partial(kit.run, app)
as_json = partial(kit.run_json, app)
OTHERS = ["likes tea", "owns a lamp"]
STORE = [*OTHERS, GOLD]
RESULTS: dict[str, Any] = {
    "failed": "a call failed",
    "not-stored": answered(OTHERS, [0, 1]),
    "not-found": answered(STORE, [0, 1]),
    "not-shown": answered(STORE, [0, 1, 2], left_out=1),
    "not-used": answered(STORE, [2, 1], left_out=1),
    "right": answered(STORE, [1, 2], used=GOLD.upper()),
    "wrong": answered(STORE, [1, 2], used=GOLD),
}
VERDICTS = {
    **{"not-stored": False, "not-found": True, "not-shown": "no reply", "not-used": False},
    **{"right": True, "wrong": False},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_task4(tmp_path / "release", dict.fromkeys(RESULTS, 1))


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Path:
    return write_task4_run(tmp_path / "run", root, RESULTS)


@pytest.fixture
def verdicts(tmp_path: Path) -> Path:
    return write_answer_verdicts(tmp_path / "verdicts", VERDICTS)


def assert_counts_add_up(part: Any) -> None:
    left = part["asked"]
    for step in STEPS:
        left -= sum(part["lost_at"][step].values())
        assert part["reached"][step] == left
    assert sum(part["lost_at"]["none"].values()) == left == part["reached"]["used"]


def test_each_question_is_lost_at_its_first_missing_step(
    run: Path, root: Path, verdicts: Path
) -> None:
    [found] = as_json(run, "--data", root, "--verdicts", verdicts)
    part = found["parts"]["pa"]
    assert part["asked"] == 7
    assert part["reached"] == {"answered": 6, "stored": 5, "found": 4, "shown": 3, "used": 2}
    lost = {step: {key: n for key, n in by.items() if n} for step, by in part["lost_at"].items()}
    assert lost == {
        "answered": {"no verdict": 1},
        "stored": {"wrong": 1},
        "found": {"right": 1},
        "shown": {"unjudged": 1},
        "used": {"wrong": 1},
        "none": {"right": 1, "wrong": 1},
    }
    assert part["used_and_right"] == 1
    assert part["names_the_memory_though_lost"] == 0
    assert part["shares"]["answered"]["mean"] == pytest.approx(6 / 7, abs=1e-6)
    assert found["judge"] == "openai:judge"
    assert_counts_add_up(part)


def test_the_tables_show_the_steps_and_where_questions_were_lost(
    run: Path, root: Path, verdicts: Path
) -> None:
    text = shown(run, "--data", root, "--verdicts", verdicts, code=0).stdout
    lines = [line.split() for line in text.splitlines()]
    assert ["pa", "7", "6", "5", "4", "3", "2", "1"] in lines
    assert ["not", "shown", "1", "0", "0", "1", "0"] in lines
    assert ["all", "7", "2", "3", "1", "1"] in lines
    assert "mem0 over bm25, openai:m" in text


def test_without_verdicts_the_last_step_is_not_reported(run: Path, root: Path) -> None:
    result = shown(run, "--data", root, code=0)
    assert ["pa", "7", "6", "5", "4", "3", "2", "-"] in [
        line.split() for line in result.stdout.splitlines()
    ]
    assert "no verdicts" in result.stderr
    [found] = as_json(run, "--data", root)
    assert found["parts"]["all"]["used_and_right"] is None


def test_memories_that_must_not_be_used_are_a_group_of_their_own(tmp_path: Path) -> None:
    root = write_task4(tmp_path / "release", {"a": 1, "b": 3, "c": 4})
    results = {"a": answered(STORE, [2], GOLD), "b": answered(STORE, [2]), "c": "it failed"}
    run = write_task4_run(tmp_path / "run", root, results)
    [found] = as_json(run, "--data", root)
    asked = {name: part["asked"] for name, part in found["parts"].items()}
    assert asked == {
        **{"pa": 1, "vra": 1, "cf": 1},
        **{"memory to be used": 1, "memory not to be used": 2, "all": 3},
    }


def test_a_system_without_a_search_loses_the_oldest_that_do_not_fit(tmp_path: Path) -> None:
    root = write_task4(tmp_path / "release", {"fits": 1, "cut": 1})
    results = {
        "fits": answered([*OTHERS, GOLD], [], GOLD, left_out=2),
        "cut": answered([GOLD, *OTHERS], [], GOLD, left_out=1),
    }
    run = write_task4_run(tmp_path / "run", root, results)
    [found] = as_json(run, "--data", root)
    assert found["searched"] is False
    part = found["parts"]["all"]
    assert part["reached"] == {"answered": 2, "stored": 2, "found": 2, "shown": 1, "used": 1}
    assert part["names_the_memory_though_lost"] == 1


def test_a_run_that_names_the_hits_left_out_says_exactly_what_was_shown(tmp_path: Path) -> None:
    """The first hit is too long for the prompt, and in the last row one of two does not fit."""
    twice = [GOLD, f"{GOLD} ", *OTHERS]
    results = {
        "first-left-out": answered(STORE, [2, 1], GOLD, left_out=1, hits_left_out=[0]),
        "other-left-out": answered(STORE, [1, 2], GOLD, left_out=1, hits_left_out=[0]),
        "context-left-out": answered(STORE, [2], GOLD, left_out=1, hits_left_out=[]),
        "one-of-two": answered(twice, [0, 1], GOLD, left_out=1, hits_left_out=[0]),
    }
    root = write_task4(tmp_path / "release", dict.fromkeys(results, 1))
    run = write_task4_run(tmp_path / "run", root, results)
    [found] = as_json(run, "--data", root)
    part = found["parts"]["all"]
    assert (part["reached"]["found"], part["reached"]["shown"]) == (4, 3)
    assert sum(part["lost_at"]["shown"].values()) == 1
    assert part["shown_is_assumed"] == 0
    assert "approximate" not in shown(run, "--data", root, code=0).stderr


def test_a_run_of_an_earlier_version_says_that_shown_is_approximate(run: Path, root: Path) -> None:
    [found] = as_json(run, "--data", root)
    assert found["parts"]["all"]["shown_is_assumed"] == 2
    assert "shown is approximate for 2 questions" in shown(run, "--data", root, code=0).stderr


@pytest.mark.parametrize("value", [[-1], ["0"], 3, [True]])
def test_damaged_hits_left_out_are_one_line(value: Any, root: Path, tmp_path: Path) -> None:
    result = answered(STORE, [2, 1], left_out=1)
    result["responses"][0]["hits_left_out"] = value
    run = write_task4_run(tmp_path / "run", root, {**RESULTS, "right": result})
    one_line_error(shown(run, "--data", root), "not a row of a run of task 4")


def test_an_empty_search_of_a_searching_system_found_nothing(tmp_path: Path) -> None:
    root = write_task4(tmp_path / "release", {"hit": 1, "none": 1})
    results = {"hit": answered(STORE, [2], GOLD), "none": answered(STORE, [], GOLD)}
    run = write_task4_run(tmp_path / "run", root, results)
    [found] = as_json(run, "--data", root)
    assert found["parts"]["all"]["reached"]["stored"] == 2
    assert found["parts"]["all"]["reached"]["found"] == 1


def test_grades_are_right_from_a_mean_of_four(tmp_path: Path) -> None:
    root = write_task4(tmp_path / "release", {"a": 5, "b": 5})
    run = write_task4_run(
        tmp_path / "run", root, dict.fromkeys(("a", "b"), answered(STORE, [2], GOLD))
    )
    verdicts = write_answer_verdicts(
        tmp_path / "verdicts", {"a": Grades(4, 4, 4), "b": Grades(5, 3, None)}
    )
    [found] = as_json(run, "--data", root, "--verdicts", verdicts)
    assert found["parts"]["ei_en"]["lost_at"]["none"]["right"] == 2
    write_answer_verdicts(verdicts, {"a": Grades(4, 4, 3), "b": Grades(5, 2, None)})
    [found] = as_json(run, "--data", root, "--verdicts", verdicts)
    assert found["parts"]["ei_en"]["lost_at"]["none"]["wrong"] == 2


# What is refused


def test_verdicts_on_other_answers_are_refused(run: Path, root: Path, tmp_path: Path) -> None:
    other = write_answer_verdicts(tmp_path / "other", VERDICTS, answer="Another answer.")
    result = shown(run, "--data", root, "--verdicts", other)
    one_line_error(result, other, "not on the answers of", run)


def test_two_judges_of_one_run_are_refused(run: Path, root: Path, tmp_path: Path) -> None:
    both = [write_answer_verdicts(tmp_path / name, VERDICTS) for name in ("one", "two")]
    words = [word for path in both for word in ("--verdicts", path)]
    one_line_error(shown(run, "--data", root, *words), "both judge the answers of", run)


def test_what_is_no_run_of_task_4_is_one_line(tmp_path: Path, run: Path, root: Path) -> None:
    one_line_error(shown(tmp_path), tmp_path, "not a run folder")
    sessions = write_sessions(tmp_path / "sessions", {"a": ["x"]})
    other = write_memory_run(tmp_path / "task1", sessions, {"a": ["x"]})
    one_line_error(shown(other), other, "not a run of task 4")
    one_line_error(shown(run, "--data", root, "--verdicts", run), "not a run of a judge")
    one_line_error(shown(run), "not of the embedded sample", "--data")
    (run / "summary.json").unlink()
    one_line_error(shown(run, "--data", root), "not finished", "--resume")


@pytest.mark.parametrize(
    "result",
    [
        None,
        {"memory_items": [], "responses": None},
        {"memory_items": [{"text": "x"}], "responses": []},
        answered(STORE, [2]) | {"responses": [{"query_id": "q"}]},
        answered(STORE, [2]) | {"responses": [{"query_id": "q", "error": 3}]},
    ],
)
def test_a_row_of_another_form_is_refused_with_its_line(
    result: Any, root: Path, tmp_path: Path
) -> None:
    run = write_task4_run(tmp_path / "run", root, {"right": result})
    one_line_error(shown(run, "--data", root), "rows.jsonl:1", "not a row of a run of task 4")


def test_other_data_is_refused(run: Path, tmp_path: Path) -> None:
    other = write_task4(tmp_path / "other", dict.fromkeys([*RESULTS, "more"], 1))
    one_line_error(shown(run, "--data", other), "another hash")


# A real run over the embedded sample


@pytest.mark.slow
def test_a_real_run_and_its_verdicts_add_up(tmp_path: Path) -> None:
    out, judged = tmp_path / "run", tmp_path / "judged"
    with scripted_server(answers) as server:
        model = ["--base-url", server.url, "--replies", tmp_path / "replies.sqlite"]
        words = ["--system", "turns", "--chat-model", "openai:m", "--limit", "6", "--out", out]
        kit.run(run_command.app, *words, "--system-set", "budget=100", *model, code=0)
        scores = kit.run_json(
            score_command.app, out, "--judge-model", "openai:j", "--out", judged, *model
        )
    result = shown(out, "--verdicts", judged, code=0)
    assert "The embedded sample" in result.stderr
    missing = tmp_path / "missing"
    one_line_error(shown(out, "--data", missing), f"--data {missing}: no such folder")
    responses = [one for row in kit.rows_of(out) for one in row["result"]["responses"]]
    for one in responses:
        assert len(one.get("hits_left_out", [])) == one["left_out"] < len(one["hits"])
    assert any(one["left_out"] for one in responses)
    [found] = as_json(out, "--verdicts", judged)
    assert found["sample"]
    assert found["parts"]["all"]["shown_is_assumed"] == 0
    for part in found["parts"].values():
        assert_counts_add_up(part)
    answered_ones = {n: one for n, one in scores["dimensions"].items() if one["answered"]}
    assert len(answered_ones) >= 6
    for name, dimension in answered_ones.items():
        part = found["parts"][name]
        assert part["asked"] == dimension["answered"]
        stored = part["reached"]["stored"] / part["asked"]
        assert stored == pytest.approx(dimension["retrieval"]["gold_stored"]["mean"], abs=1e-6)
        right = sum(by["right"] for by in part["lost_at"].values())
        if "score" in dimension["judge"]:
            score = dimension["judge"]["score"]["mean"]
            assert right / part["asked"] == pytest.approx(score, abs=1e-6)
