"""`analysis.compare` on runs of tasks 1, 2 and 4: what is paired, and what is refused and why."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from analysis.compare import app
from analysis.p_values import holm
from analysis.paired import paired
from judges.verdicts import Grades
from task1 import run as task1_run
from task1 import score as task1_score
from tests import kit
from tests.kit import one_line_error
from tests.literal_runs import (
    GOLD,
    answered,
    write_answer_verdicts,
    write_memory_run,
    write_pair_verdicts,
    write_sessions,
    write_task4,
    write_task4_run,
)

compared = partial(kit.run, app)
TEXTS = {name: [f"{name} likes tea", f"{name} owns a lamp"] for name in "abcd"}


def as_json(*words: object) -> dict[tuple[str, str], Any]:
    found = kit.run_json(app, *words)
    return {(one["figure"], one["scale"]): one for one in found}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_sessions(tmp_path / "release", TEXTS)


@pytest.fixture
def runs(root: Path, tmp_path: Path) -> list[Path]:
    """One finds everything; the other half in `a` and `b`, nothing in `c`, and fails in `d`."""
    half = {"a": TEXTS["a"][:1], "b": TEXTS["b"][:1], "c": [], "d": None}
    return [
        write_memory_run(tmp_path / "all", root, TEXTS, system="all"),
        write_memory_run(tmp_path / "half", root, half, system="half"),
    ]


def test_sessions_are_paired_and_those_not_scored_are_counted(runs: list[Path], root: Path) -> None:
    found = as_json(*runs, "--data", root)
    assert list(found) == [(name, "matcher") for name in ("precision", "recall", "f1")]
    recall = found["recall", "matcher"]
    by_hand = paired(
        dict.fromkeys("abc", 1.0),
        {"a": 0.5, "b": 0.5, "c": 0.0},
        {name: f"s-{name}" for name in "abc"},
    )
    assert recall["n"] == 3
    assert recall["unpaired"] == 1
    for key in ("a", "b", "difference", "low", "high", "wins", "ties", "losses", "p", "verdict"):
        assert recall[key] == getattr(by_hand, key)
    assert recall["difference"] == pytest.approx(2 / 3)


def test_the_table_names_the_systems_and_notes_what_is_left_out(
    runs: list[Path], root: Path
) -> None:
    result = compared(*runs, "--data", root, code=0)
    title = result.stdout.splitlines()[0]
    assert title.startswith("Task 1: all over bm25, openai:m and half over bm25, openai:m")
    assert "recall, matcher: 1 session left out" in result.stderr
    assert "all over bm25, openai:m is better" in result.stdout


def test_task_2_is_compared_as_task_1(tmp_path: Path) -> None:
    root = write_sessions(tmp_path / "release", TEXTS, "task2")
    none = {name: [] for name in TEXTS}
    runs = [
        write_memory_run(tmp_path / "all", root, TEXTS, "task2"),
        write_memory_run(tmp_path / "none", root, none, "task2"),
    ]
    assert as_json(*runs, "--data", root)["f1", "matcher"]["difference"] == 1.0


def test_a_judge_of_both_adds_figures_on_its_own_scale(
    runs: list[Path], root: Path, tmp_path: Path
) -> None:
    everything = ((0, 0), (1, 1))
    one = write_pair_verdicts(
        tmp_path / "v1", runs[0], {"a": everything, "b": (), "c": (), "d": ()}
    )
    two = write_pair_verdicts(tmp_path / "v2", runs[1], {"a": (), "b": ((0, 0),), "c": "no reply"})
    found = as_json(*runs, "--data", root, "--verdicts", one, "--verdicts", two)
    judged = found["precision", "judge openai:judge"]
    assert (judged["n"], judged["unpaired"]) == (2, 2)
    assert (judged["a"], judged["b"]) == (0.5, 0.5)
    assert found["precision", "matcher"]["n"] == 3


def test_questions_of_task_4_are_paired_by_dimension_and_step(tmp_path: Path) -> None:
    root = write_task4(tmp_path / "release", {"a": 1, "b": 1, "c": 5})
    hit, miss = answered(["x", GOLD], [1], GOLD), answered(["x", GOLD], [0])
    one = write_task4_run(tmp_path / "one", root, {"a": hit, "b": hit, "c": hit})
    two = write_task4_run(tmp_path / "two", root, {"a": miss, "b": hit, "c": miss | {}})
    first = write_answer_verdicts(tmp_path / "v1", {"a": True, "b": True, "c": Grades(4, 4, 4)})
    found = as_json(one, two, "--data", root)
    assert found["found", "counted in the run"]["difference"] == pytest.approx(2 / 3)
    assert found["stored", "counted in the run"]["ties"] == 3
    # The answers of both runs are the same texts, so these verdicts are on both.
    found = as_json(one, two, "--data", root, "--verdicts", first)
    assert found["pa", "judge openai:judge"]["ties"] == 2
    assert found["ei_en", "judge openai:judge"]["a"] == 4.0


def test_any_number_of_runs_is_one_family(runs: list[Path], root: Path, tmp_path: Path) -> None:
    none = write_memory_run(tmp_path / "none", root, {name: [] for name in TEXTS}, system="none")
    again = write_memory_run(tmp_path / "again", root, TEXTS, system="all")
    words = [*runs, none, again, "--data", root]
    found = kit.run_json(app, *words)
    names = [str(runs[0]), "half over bm25, openai:m", "none over bm25, openai:m", str(again)]
    assert [one["sides"] for one in found[:3]] == [[names[0], name] for name in names[1:]]
    assert [one["figure"] for one in found[::3]] == ["precision", "recall", "f1"]
    assert [one["unpaired"] for one in found[:3]] == [1, 0, 0]
    tested = [one["p"] for one in found]
    assert [one["holm"] for one in found] == holm(tested)
    same = found[2]
    assert (same["reason"], same["p"], same["effect"]) == (
        *("no difference on any session", 1.0),
        None,
    )
    every = kit.run_json(app, *words, "--all-pairs")
    assert len(every) == 3 * 6
    base = kit.run_json(app, *words, "--baseline", none)
    assert {one["sides"][0] for one in base} == {names[2]}
    shown = compared(*words, "--all-pairs", code=0)
    assert "no difference on any session" in shown.stderr
    assert "corrected for 18 comparisons" in shown.stderr
    assert "no difference" in shown.stdout
    one_line_error(compared(*words, "--baseline", "x"), "--baseline x: not one of the sides")
    one_line_error(compared(runs[0], "--data", root), "one run only")


# What is refused


def test_different_rows_are_refused_with_the_reason(
    runs: list[Path], root: Path, tmp_path: Path
) -> None:
    part = write_memory_run(tmp_path / "part", root, {"a": [], "b": ["x"]})
    one_line_error(compared(runs[0], part, "--data", root), "2 sessions are in one run only", "`c`")
    other = write_sessions(tmp_path / "other", {**TEXTS, "e": ["x"]})
    run = write_memory_run(tmp_path / "more", other, TEXTS)
    one_line_error(compared(runs[0], run, "--data", root), "made on different data")
    one_line_error(compared(*runs, "--data", other), "another hash")
    one_line_error(compared(*runs), "not of the embedded sample", "--data")


def test_runs_of_different_tasks_are_refused(runs: list[Path], tmp_path: Path) -> None:
    root = write_task4(tmp_path / "release4", {"a": 1})
    run = write_task4_run(tmp_path / "four", root, {"a": answered([GOLD], [0])})
    one_line_error(compared(runs[0], run, "--data", root), "is of task1 and", "of task4")
    one_line_error(compared(runs[0], tmp_path), tmp_path, "not the folder of a run of task 1")


def test_verdicts_of_one_side_or_of_no_side_are_refused(
    runs: list[Path], root: Path, tmp_path: Path
) -> None:
    one = write_pair_verdicts(tmp_path / "v1", runs[0], dict.fromkeys(TEXTS, ()))
    words = [*runs, "--data", root, "--verdicts", one]
    one_line_error(compared(*words), f"{runs[1]} has verdicts of no judge")
    other = write_memory_run(tmp_path / "other", root, {"a": ["y"], "b": [], "c": [], "d": []})
    lost = write_pair_verdicts(tmp_path / "v3", other, dict.fromkeys(TEXTS, ()))
    one_line_error(compared(*runs, "--data", root, "--verdicts", lost), lost, "not on the answers")


@pytest.mark.parametrize("words", [("--script", "Han"), ("--split", "dev")])
def test_options_of_task_3_are_refused(runs: list[Path], words: tuple[str, str]) -> None:
    one_line_error(compared(*runs, *words), "concern sweeps of task 3")


def test_rows_of_which_nothing_is_scored_in_both(root: Path, tmp_path: Path) -> None:
    one = write_memory_run(tmp_path / "one", root, {"a": ["x"], "b": None})
    two = write_memory_run(tmp_path / "two", root, {"a": None, "b": ["x"]})
    one_line_error(compared(one, two, "--data", root), "no sessions are scored in both runs")


# Real runs over the embedded sample


@pytest.mark.slow
def test_the_means_of_real_runs_are_those_of_their_scores(tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("turns", "extractive")]
    for out in runs:
        kit.run(task1_run.app, "--system", out.name, "--limit", 30, "--out", out, code=0)
    found = as_json(*runs)
    scores = [kit.run_json(task1_score.app, out) for out in runs]
    for (figure, scale), one in found.items():
        assert (scale, one["n"], one["unpaired"]) == ("matcher", 30, 0)
        for side, score in zip("ab", scores, strict=True):
            assert one[side] == pytest.approx(score[figure], abs=1e-6)
