"""`analysis.paper_table`: our figures from runs, the published ones apart, each on its scale."""

import csv
import io
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from analysis.paper_figures import BOARD_MATCHER, COLUMNS, NOT_STATED
from analysis.paper_table import app
from analysis.published import published_table
from analysis.statistics import mean_interval
from judges.verdicts import Grades
from recallbed.harness.configurations import Configuration
from task1 import run as task1_run
from task1 import score as task1_score
from task3 import answer as answer_command
from task3 import score as task3_score
from task3.sweep_run import run_sweep
from task4 import run as task4_run
from task4 import score as task4_score
from tests import kit
from tests.kit import one_line_error, read_json, sweep_config
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
from tests.scripted_server import Call, scripted_server
from tests.test_task4 import answers

made = partial(kit.run, app)
as_json = partial(kit.run_json, app)
TEXTS = {name: [f"{name} likes tea", f"{name} owns a lamp"] for name in "abcd"}
PREDICTED = {"a": TEXTS["a"], "b": TEXTS["b"][:1], "c": [], "d": None}
JUDGE = "judge openai:judge"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_task4(tmp_path / "release", {"p": 1, "q": 1, "e": 5})
    write_sessions(tmp_path / "release", TEXTS, "task2")
    return write_sessions(tmp_path / "release", TEXTS)


@pytest.fixture
def task1(root: Path, tmp_path: Path) -> Path:
    return write_memory_run(tmp_path / "task1", root, PREDICTED)


@pytest.fixture
def task4(root: Path, tmp_path: Path) -> Path:
    results: dict[str, Any] = dict.fromkeys("pqe", answered([GOLD], [0], GOLD))
    return write_task4_run(tmp_path / "task4", root, results)


def ours(found: Any) -> dict[tuple[str, str, str], Any]:
    return {(one["system"], one["figure"], one["scale"]): one for one in found["ours"]}


def states(found: Any) -> dict[tuple[str, str], str]:
    return {(one["system"], one["figure"]): one["state"] for one in found["missing"]}


def cells(text: str) -> list[list[str]]:
    """The cells of every line of Markdown that is a row."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


# Figures of literal runs


def test_table_3_is_by_the_matcher_with_intervals_over_sessions(task1: Path, root: Path) -> None:
    found = as_json(3, f"mem0={task1}", "--data", root)
    recall = ours(found)["mem0", "recall", "matcher"]
    by_hand = mean_interval([1.0, 0.5, 0.0], ["s-a", "s-b", "s-c"])
    assert by_hand is not None
    assert recall["mean"] == 0.5
    assert (recall["low"], recall["high"]) == pytest.approx((by_hand.low, by_hand.high), abs=1e-6)
    assert (recall["scored"], recall["attempted"]) == (3, 4)
    assert recall["interval"] == "bootstrap"
    assert recall["sample"] is False
    assert [one["figure"] for one in found["ours"]] == ["precision", "recall", "f1"]


def test_verdicts_are_joined_with_their_run_and_are_a_scale_of_their_own(
    task1: Path, root: Path, tmp_path: Path
) -> None:
    pairs = {"a": ((0, 0),), "b": ((0, 0),), "c": "no reply"}
    verdicts = write_pair_verdicts(tmp_path / "verdicts", task1, pairs)
    found = ours(as_json(2, verdicts, f"m={task1}", "--data", root))
    judged, matched = found["m", "task1_f1", JUDGE], found["m", "task1_f1", "matcher"]
    assert judged["mean"] == pytest.approx((0.5 + 2 / 3) / 2, abs=1e-6)
    assert (judged["scored"], judged["attempted"]) == (2, 4)
    assert matched["mean"] == pytest.approx((1 + 2 / 3 + 0) / 3, abs=1e-6)


def test_table_4_has_a_column_of_the_judge_by_dimension(
    task4: Path, root: Path, tmp_path: Path
) -> None:
    given = {"p": True, "q": False, "e": Grades(2, 3, None)}
    verdicts = write_answer_verdicts(tmp_path / "verdicts", given)
    found = as_json(4, f"m={task4}", verdicts, "--data", root)
    assert ours(found)["m", "pa", JUDGE]["mean"] == 0.5
    grades = ours(found)["m", "ei_en", JUDGE]
    assert grades["mean"] == 2.5
    assert 1 <= grades["low"] < 2.5 < grades["high"] <= 5
    assert states(found)["m", "vra"] == "not asked"
    assert states(as_json(4, f"m={task4}", "--data", root))["m", "pa"] == "no verdicts"


def test_runs_of_one_label_are_one_row_and_missing_tasks_are_not_run(
    task1: Path, task4: Path, root: Path, tmp_path: Path
) -> None:
    task2 = write_memory_run(tmp_path / "task2", root, PREDICTED, "task2")
    found = as_json(2, f"m={task1}", f"m={task4}", f"other={task2}", "--data", root)
    assert found["systems"] == [
        {"system": "m", "sample": False, "tasks": ["task1", "task4"]},
        {"system": "other", "sample": False, "tasks": ["task2"]},
    ]
    missing = states(found)
    assert missing["m", "task2_f1"] == missing["m", "task3_d100"] == "not run"
    assert missing["other", "task1_f1"] == missing["other", "task4_pa"] == "not run"
    assert missing["m", "task1_f1"] == missing["m", "task4_pa"] == "no verdicts"
    text = made(2, f"m={task1}", "--data", root, "--markdown", code=0).stdout
    assert ["F1", "m", "not run", ""] in cells(text)


def test_without_a_label_a_row_is_the_system_with_retriever_and_model(
    task1: Path, root: Path
) -> None:
    [system] = as_json(3, task1, "--data", root)["systems"]
    assert system["system"] == "mem0 over bm25, openai:m"


def test_the_plain_model_is_named_by_its_model(root: Path, tmp_path: Path) -> None:
    run = write_memory_run(tmp_path / "llm", root, PREDICTED, system="llm")
    assert as_json(3, run, "--data", root)["systems"][0]["system"] == "openai:m"


def test_a_run_whose_answers_all_went_unjudged_has_no_mean(
    task4: Path, root: Path, tmp_path: Path
) -> None:
    verdicts = write_answer_verdicts(tmp_path / "verdicts", dict.fromkeys("pqe", "no reply"))
    words = [4, f"m={task4}", verdicts, "--data", root]
    entry = ours(as_json(*words))["m", "pa", JUDGE]
    assert (entry["mean"], entry["scored"], entry["attempted"]) == (None, 0, 2)
    assert ["pa", "m", "0 of 2 scored", ""] in cells(made(*words, "--markdown", code=0).stdout)


# Published figures


@pytest.mark.parametrize("number", [2, 3, 4])
def test_every_published_column_is_a_column_of_the_table(number: int) -> None:
    keys = {column.key for column in COLUMNS[number]}
    assert {key for values in published_table(number).values() for key in values} == keys
    text = files("analysis.published").joinpath(f"paper_table{number}.csv").read_text("utf-8")
    assert len(published_table(number)) == len(text.splitlines()) - 1


def test_the_two_scores_of_one_model_are_never_in_one_column(task1: Path, root: Path) -> None:
    """0.2970 is the leaderboard's matcher, 0.5373 the paper's judge."""
    columns: dict[str, str] = {}
    for number in (2, 3):
        rows = cells(made(number, f"m={task1}", "--data", root, "--markdown", code=0).stdout)
        found = [
            (head, row)
            for row in rows
            for head in [next(r for r in rows if r[0] == "figure")]
            if row[:2] == ["F1", "GPT-4.1-mini"]
        ]
        head, row = found[0]
        columns |= {value: name for name, value in zip(head[2:], row[2:], strict=True) if value}
    assert columns == {
        "0.5373": "published: paper's judge",
        "0.2970": "published: leaderboard's matcher",
    }
    assert "0.2970" not in made(2, f"m={task1}", "--data", root, code=0).stdout
    assert "0.5373" not in made(3, f"m={task1}", "--data", root, code=0).stdout


def test_only_the_row_of_table_3_that_the_leaderboard_has_is_by_its_matcher(
    task1: Path, root: Path
) -> None:
    rows = cells(made(3, f"m={task1}", "--data", root, "--markdown", code=0).stdout)
    head = next(row for row in rows if row[0] == "figure")
    board, other = (head.index(f"published: {s}") for s in (BOARD_MATCHER, NOT_STATED))
    theirs = [row for row in rows if row[0] in ("precision", "recall", "F1") and row[1] != "m"]
    assert len(theirs) == 24
    for row in theirs:
        by_board = row[1] == "GPT-4.1-mini"
        assert (bool(row[board]), bool(row[other])) == (by_board, not by_board)
    found = as_json(3, f"m={task1}", "--data", root)["published"]["scales"]
    assert found["GPT-4.1-mini"]["f1"] == BOARD_MATCHER
    assert found["Mem0"]["f1"] == NOT_STATED


def test_published_rows_follow_ours_in_the_papers_order(task1: Path, root: Path) -> None:
    """Whatever the values are: ours is not ranked among them."""
    rows = cells(made(3, f"zz={task1}", "--data", root, "--markdown", code=0).stdout)
    names = [row[1] for row in rows if row[0] == "F1"]
    assert names == ["zz", *published_table(3)]


# Output


def test_csv_has_one_line_per_figure_and_a_column_of_published_ones(
    task1: Path, root: Path
) -> None:
    text = made(3, f"m={task1}", "--data", root, "--csv", code=0).stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    mine = [row for row in rows if row["state"] == "scored"]
    theirs = [row for row in rows if row["state"] == "published"]
    assert [row["published"] for row in mine] == ["", "", ""]
    assert [row["mean"] for row in theirs] == [""] * 24
    by_board = {row["system"] for row in theirs if row["published_scale"] == BOARD_MATCHER}
    assert by_board == {"GPT-4.1-mini"}
    assert len(rows) == 27
    assert mine[1]["mean"] == "0.5"


def test_the_text_table_shows_means_intervals_and_counts(task1: Path, root: Path) -> None:
    text = made(3, f"m={task1}", "--data", root, code=0).stdout
    assert "0.5000 [0.0000, 1.0000]" in text
    assert "What our figures are over" in text
    assert "arXiv 2603.26680" in text
    assert "sample" not in text


def test_several_forms_of_output_exclude_each_other(task1: Path) -> None:
    one_line_error(made(3, task1, "--csv", "--json"), "exclude each other")


# What is refused


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    one_line_error(made(3, tmp_path), tmp_path, "not a run folder")
    one_line_error(made(3, tmp_path / "none"), "not a run folder")
    (tmp_path / "manifest.json").write_text('{"fingerprint": {"task": "tea"}}')
    one_line_error(made(3, tmp_path), tmp_path, "not a run of task 1, 2, 3 or 4")


def test_a_table_that_is_not_there_is_one_line(task1: Path) -> None:
    one_line_error(made(1, task1), "Choose 2, 3 or 4")


def test_runs_of_other_tasks_are_left_out_and_alone_are_an_error(
    task1: Path, task4: Path, root: Path
) -> None:
    result = made(3, f"m={task1}", task4, "--data", root, code=0)
    assert f"{task4}: left out, Table 3 has no task4" in result.stderr
    one_line_error(made(3, task4, "--data", root), "Table 3 needs a run of task1")


def test_two_runs_of_one_cell_are_refused(task1: Path, root: Path, tmp_path: Path) -> None:
    other = write_memory_run(tmp_path / "other", root, PREDICTED)
    result = made(3, f"m={task1}", f"m={other}", "--data", root)
    one_line_error(result, task1, other, "both are task1 of `m`", f"A={task1}")
    found = as_json(3, f"m={task1}", f"n={other}", "--data", root)
    assert [one["system"] for one in found["systems"]] == ["m", "n"]


def test_verdicts_on_no_run_that_is_named_are_refused(
    task1: Path, root: Path, tmp_path: Path
) -> None:
    other = write_memory_run(tmp_path / "other", root, {**PREDICTED, "c": ["x"]})
    verdicts = write_pair_verdicts(tmp_path / "verdicts", other, {"a": ()})
    one_line_error(made(3, task1, verdicts, "--data", root), verdicts, "not on the answers")
    one_line_error(made(3, f"m={verdicts}", task1, "--data", root), "a label names a system")


def test_the_data_must_be_that_of_the_run(task1: Path, tmp_path: Path) -> None:
    one_line_error(made(3, task1), "not of the embedded sample", "--data")
    other = write_sessions(tmp_path / "other", {"a": ["x"]})
    one_line_error(made(3, task1, "--data", other), "another hash")


# Real runs over the embedded sample


@pytest.mark.slow
def test_figures_of_real_runs_are_those_of_the_scores(tmp_path: Path) -> None:
    one, four, judged = tmp_path / "one", tmp_path / "four", tmp_path / "judged"
    kit.run(task1_run.app, "--system", "extractive", "--limit", 30, "--out", one, code=0)
    with scripted_server(answers) as server:
        model = ["--base-url", server.url, "--replies", tmp_path / "replies.sqlite"]
        words = ["--system", "turns", "--chat-model", "openai:m", "--limit", "6", "--out", four]
        kit.run(task4_run.app, *words, *model, code=0)
        scored = kit.run_json(
            task4_score.app, four, "--judge-model", "openai:j", "--out", judged, *model
        )
    scores = kit.run_json(task1_score.app, one)
    found = as_json(2, f"m={one}", f"m={four}", judged)
    entry = ours(found)["m", "task1_f1", "matcher"]
    assert entry["mean"] == pytest.approx(scores["f1"], abs=1e-6)
    interval = scores["intervals"]["f1"]
    for key in ("low", "high"):
        assert entry[key] == pytest.approx(interval[key], abs=1e-6)
    assert entry["sample"] is True
    for key, value in {"pa": "pa", "vra": "vra", "cf": "cf"}.items():
        mine = ours(found)["m", f"task4_{key}", "judge openai:j"]
        theirs = scored["dimensions"][value]["judge"]["score"]
        assert [mine[k] for k in ("mean", "low", "high")] == pytest.approx(
            [theirs[k] for k in ("mean", "low", "high")], abs=1e-6
        )
    grades = scored["dimensions"]["ei_en"]["judge"]["grades"]["mean"]
    mine = ours(found)["m", "task4_ei_en", "judge openai:j"]
    assert [mine[k] for k in ("mean", "low", "high")] == pytest.approx(
        [grades[k] for k in ("mean", "low", "high")], abs=1e-6
    )
    text = made(3, f"m={one}", code=0).stdout
    assert "m *" in text
    assert "* The embedded sample" in text


def chooses(call: Call) -> Any:
    """A model that takes the first memory, and a judge of its use."""
    if "SELECTED MEMORY" in call.prompt:
        return {"evidence": "it says so", "verdict": "yes"}
    return {"answer": "By all means.", "reason": "The first.", "selected_memory": 1}


@pytest.mark.slow
def test_task_3_is_read_from_sweeps_answers_and_judged_use(root: Path, tmp_path: Path) -> None:
    labels = (Configuration("words", "overlap", {}), Configuration("chance", "constant", {}))
    sweep = run_sweep(
        sweep_config(labels, distractors=(50, 100), ks=(1,), limit=20, out=tmp_path / "sweep")
    ).path
    out, judged = tmp_path / "answers", tmp_path / "judged"
    with scripted_server(chooses) as server:
        model = ["--base-url", server.url, "--replies", tmp_path / "replies.sqlite"]
        words = ["--chat-model", "openai:m", "--limit", 12, "--out", out]
        kit.run(answer_command.app, *words, *model, code=0)
        judge = ["--use", "judge", "--judge-model", "openai:j", "--out", judged]
        kit.run(task3_score.app, out, *judge, *model, code=0)
    plain = write_memory_run(tmp_path / "llm", root, PREDICTED, system="llm")
    assert as_json(2, plain, out, "--data", root)["systems"] == [
        {"system": "openai:m", "sample": True, "tasks": ["task1", "task3"]}
    ]
    found = as_json(2, sweep, f"m={out}", judged)
    cell = next(
        one
        for one in read_json(sweep / "summary.json")["cells"]
        if (one["retriever"], one["distractors"]) == ("words", 100)
    )
    entry = ours(found)["words", "task3_d100", "exact recall@1, nested pools"]
    for key in ("mean", "low", "high", "interval"):
        assert entry[key] == cell["recall"]["1"][key]
    assert any("50 distractors left out" in one for one in found["remarks"])
    summary = read_json(out / "summary.json")
    exact = ours(found)["m", "task3_d100", "exact recall@1, nested pools"]
    assert exact["mean"] == summary["recall_at_1"]["mean"]
    overlap = ours(found)["m", "task3_d100", "use by overlap, nested pools"]
    assert overlap["mean"] == summary["used_by_overlap"]["mean"]
    used = ours(found)["m", "task3_d100", "judge openai:j, use, nested pools"]
    assert (used["mean"], used["scored"], used["attempted"]) == (1.0, 12, 12)
    assert states(found)["words", "task3_d300"] == "not run"
