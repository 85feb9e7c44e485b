"""Agreement of annotators: labels with missing ratings, pairs, three raters, lists of memories."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judges.agreement import app as agreement_app
from judges.nominal import alpha_of, nominal_measures
from judges.summary import cohen_kappa, margin_kappa
from memory_scoring.annotators import app as annotators_app
from memory_scoring.annotators import compare_annotators, pair_memories
from recallbed.corpus.records import MemoryItem
from tests.kit import one_line_error, run, run_json, write_lines
from tests.literal_runs import write_memory_run, write_pair_verdicts, write_sessions

agreement = partial(run, agreement_app)
annotators = partial(run, annotators_app)


def rated(a: Sequence[Any], b: Sequence[Any]) -> dict[str, Any]:
    return nominal_measures(list(zip(a, b, strict=True)), [str(i) for i in range(len(a))])


def file_of(path: Path, verdicts: Sequence[Any], **more: Any) -> Path:
    rows = [{"item": i, "verdict": verdict, **more} for i, verdict in enumerate(verdicts)]
    return write_lines(path, rows)


# Labels


def test_kappa_of_labels_by_hand() -> None:
    """4 of 5 agree; by chance (2 x 1 + 2 x 3 + 1 x 1) / 25 = 0.36 would."""
    found = rated("xxyyz", "xyyyz")
    assert found["kappa"]["value"] == pytest.approx((0.8 - 0.36) / 0.64)
    assert found["kappa_missing"] == found["kappa"]  # nothing is missing


def test_missing_ratings_change_the_margins_only() -> None:
    """One more x of A and one more z of B: by chance (3 x 1 + 2 x 3 + 1 x 2) / 36 would agree."""
    found = rated([*"xxyyz", "x", None, None], [*"xyyyz", None, "z", None])
    assert found["kappa"]["value"] == pytest.approx((0.8 - 0.36) / 0.64)
    assert found["kappa_missing"]["value"] == pytest.approx((0.8 - 11 / 36) / (25 / 36))


@pytest.mark.parametrize("seed", range(4))
def test_kappa_from_margins_is_cohens(seed: int) -> None:
    table = np.random.default_rng(seed).integers(0, 9, (4, 4)).astype(float)
    agreed = np.trace(table) / table.sum()
    assert margin_kappa(agreed, table.sum(1), table.sum(0)) == pytest.approx(cohen_kappa(table))


def test_alpha_of_two_raters_is_that_of_krippendorffs_example() -> None:
    """Krippendorff, Computing Krippendorff's alpha-reliability (2011), A: 0.095."""
    a, b = "0100000010", "1110010000"
    assert rated(a, b)["alpha"]["value"] == pytest.approx(0.095, abs=5e-4)


def test_alpha_of_four_raters_with_missing_ratings_is_that_of_krippendorffs_example() -> None:
    """The same paper, C, nominal: 0.743."""
    raters = ["123321412...", "1233224125.3", ".3332342251.", "12332441251."]
    units = [[None if r[i] == "." else r[i] for r in raters] for i in range(12)]
    found = alpha_of(units, [str(i) for i in range(12)])
    assert found["value"] == pytest.approx(0.743, abs=5e-4)


def test_alpha_by_hand() -> None:
    """x x, x y: the ordered pairs that differ are 2 of 4; of all ratings, 6 of 12 pairs would."""
    assert rated("xx", "xy")["alpha"]["value"] == pytest.approx(1 - (2 / 4) / (6 / 12))


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [("xx", "xx", "all ratings are one"), ([None, "x"], ["x", None], "no item has two ratings")],
)
def test_what_is_not_defined_has_a_reason(a: Any, b: Any, reason: str) -> None:
    for one in rated(a, b).values():
        assert one["value"] is None
        assert reason in one["reason"]


def test_labels_of_files(tmp_path: Path) -> None:
    a = file_of(tmp_path / "a", ["Food", " Food", "Pet", "Pet", "Work", "Food", None])
    b = file_of(tmp_path / "b", ["Food", "Pet", "Pet", "Pet", "Work", None, "Work"])
    found = run_json(agreement_app, a, b, "--scale", "nominal")
    assert (found["n"], found["in_both"], found["levels"]) == (5, 7, ["Food", "Pet", "Work"])
    assert found["measures"]["kappa"]["value"] == pytest.approx(0.6875)
    assert found["measures"]["kappa_missing"]["value"] == pytest.approx((0.8 - 11 / 36) * 36 / 25)
    lines = agreement(a, b, "--scale", "nominal", code=0).stdout
    assert "Cohen's kappa: 0.6875 [" in lines
    assert "kappa with missing ratings (Gwet): 0.7120 [" in lines


# Pairs


def test_f1_of_pairs_by_hand(tmp_path: Path) -> None:
    """Of 3 and 2 accepted pairs one is in both: 2 / 5. The rows without pairs agree."""
    a = file_of(tmp_path / "a", [[["m1", "p1"], ["m2", "p2"]], [["m1", 3]], [], None])
    b = file_of(tmp_path / "b", [[["m1", "p1"]], [["m1", "p2"]], [], [["m1"]]])
    found = run_json(agreement_app, a, b, "--scale", "pairs")
    assert found["pairs"] == {"in_both": 1, "a": 3, "b": 2}
    assert found["measures"]["pair_f1"]["value"] == pytest.approx(2 / 5)
    assert found["measures"]["agreement"]["value"] == pytest.approx(1 / 3)
    assert found["b"]["unjudged"] == {"not a verdict": 1}
    assert "F1 of pairs: 0.4000" in agreement(a, b, "--scale", "pairs", code=0).stdout
    empty = file_of(tmp_path / "c", [[], []])
    nothing = run_json(agreement_app, empty, empty, "--scale", "pairs")["measures"]["pair_f1"]
    assert nothing["reason"] == "neither rater accepts a pair"


@pytest.mark.parametrize("task", ["task1", "task2"])
def test_pair_verdicts_of_judge_runs_are_compared(task: str, tmp_path: Path) -> None:
    """Two judges of one run, row by row; of 3 and 2 pairs one is in both."""
    texts = {name: ["tea", "a lamp"] for name in "abc"}
    root = write_sessions(tmp_path / "release", texts, task)
    answers = write_memory_run(tmp_path / "run", root, texts, task)
    one = {"a": ((0, 0), (1, 1)), "b": ((0, 1),), "c": "no reply"}
    two = {"a": ((0, 0),), "b": ((1, 0),), "c": ()}
    rows = [
        write_pair_verdicts(tmp_path / name, answers, verdicts) / "rows.jsonl"
        for name, verdicts in (("one", one), ("two", two))
    ]
    words = ("--field", "result.verdict", "--scale", "pairs")
    found = run_json(agreement_app, *rows, *words)
    assert found["pairs"] == {"in_both": 1, "a": 3, "b": 2}
    assert found["measures"]["pair_f1"]["value"] == pytest.approx(2 / 5)
    assert found["a"]["unjudged"] == {"no reply": 1}
    three = run_json(agreement_app, rows[0], rows[1], rows[1], *words)
    assert (three["n"], three["alignment"]["not"]["count"]) == (2, 2)


# Three raters


def test_alignment_with_two_people_by_hand(tmp_path: Path) -> None:
    """Both agree with the judge on 0 and 3, one on 1, neither on 2; 4 is not judged by all."""
    judge = file_of(tmp_path / "judge", [True, True, True, False, True], row="r")
    first = file_of(tmp_path / "first", [True, True, False, False, True])
    second = file_of(tmp_path / "second", [True, False, False, False, None])
    found = run_json(agreement_app, judge, first, second)
    shares = {name: (one["count"], one["value"]) for name, one in found["alignment"].items()}
    assert shares == {"fully": (2, 0.5), "partially": (1, 0.25), "not": (1, 0.25)}
    assert (found["n"], found["in_all"], found["clusters"]) == (4, 5, 4)
    two = run_json(agreement_app, first, second)
    assert found["raters"]["b_c"] == two["measures"]
    lines = agreement(judge, first, second, code=0).stdout.splitlines()
    assert any(line.startswith("partially aligned: 0.2500 [") for line in lines)
    assert "A and C" in lines
    clustered = run_json(agreement_app, judge, first, second, "--cluster", "row")
    assert clustered["clusters"] == 1


@pytest.mark.parametrize("scale", ["binary", "grade", "nominal", "pairs"])
def test_three_equal_raters_are_fully_aligned_on_every_scale(scale: str, tmp_path: Path) -> None:
    values: dict[str, Sequence[Any]] = {
        "binary": [True, False],
        "grade": [1, 5],
        "nominal": "xy",
        "pairs": [[["m", "p"]], []],
    }
    files = [file_of(tmp_path / name, list(values[scale])) for name in "abc"]
    found = run_json(agreement_app, *files, "--scale", scale)
    assert found["alignment"]["fully"]["value"] == found["alpha"]["value"] == 1.0
    assert "NaN" not in json.dumps(found)


def test_three_files_without_a_common_item_are_one_line(tmp_path: Path) -> None:
    a, b = file_of(tmp_path / "a", [True, None]), file_of(tmp_path / "b", [True, True])
    c = file_of(tmp_path / "c", [None, True])
    one_line_error(agreement(a, b, c), "no item is judged in all of", "2 have a row in all three")


# Lists of memories


def memory(value: str, **more: Any) -> dict[str, Any]:
    return {"value": value, "type": "direct", "label": "A", "confidence": 0.5, **more}


def lists(path: Path, *rows: Sequence[dict[str, Any]]) -> Path:
    return write_lines(
        path, [{"benchmark_id": f"s{i}", "memory_items": row} for i, row in enumerate(rows)]
    )


def test_memory_sets_by_hand(tmp_path: Path) -> None:
    """Three pairs of 4 and 4 memories: F1 6 / 8; the rows have 4 / 5 and 2 / 3.

    Types agree in all pairs but one: observed 2 / 3, by chance (3 x 2 + 0 x 1) / 9.
    Confidence: ranks 1, 2, 3 against 1, 3, 2.
    """
    a = lists(
        tmp_path / "a",
        [memory("likes green tea", confidence=0.1), memory("has a dog", confidence=0.2)],
        [memory("works at night", confidence=0.9), memory("born in May")],
    )
    b = lists(
        tmp_path / "b",
        [
            memory("has a dog", confidence=0.9, label="B"),
            memory("likes green tea", confidence=0.3),
            memory("plays chess on Sundays"),
        ],
        [memory("works at night", confidence=0.8, type="indirect")],
    )
    found = run_json(annotators_app, a, b)
    measures = found["measures"]
    assert found["memories"] == {"a": 4, "b": 4, "paired": 3}
    assert measures["memory-set F1"]["value"] == pytest.approx(6 / 8)
    assert measures["memory-set F1, mean of rows"]["value"] == pytest.approx((4 / 5 + 2 / 3) / 2)
    assert measures["confidence, Spearman"]["value"] == pytest.approx(0.5)
    assert measures["type, kappa"]["value"] == pytest.approx(0.0)
    assert measures["label, kappa"]["value"] == pytest.approx(0.0)
    assert measures["time_scope, kappa"]["reason"] == "no item has two ratings"
    assert "memory-set F1: 0.7500 [" in annotators(a, b, code=0).stdout


def test_equal_lists_agree_completely(tmp_path: Path) -> None:
    rows = [
        [memory("likes tea", type="direct", label="A", confidence=0.1, time_scope="long_term")],
        [memory("has a dog", type="indirect", label="B", confidence=0.9, time_scope="unknown")],
        [],
    ]
    a = lists(tmp_path / "a", *rows)
    for by in ("text", "match"):
        found = run_json(annotators_app, a, a, "--pair", by)["measures"]
        assert {one["value"] for one in found.values()} == {1.0}
    assert len(found) == 6


def test_pairs_by_text_ignore_the_attributes_that_are_compared() -> None:
    one = (MemoryItem("likes tea", label="A", type="direct", confidence=1.0),)
    other = (MemoryItem("Likes tea.", label="B", type="indirect", confidence=0.0),)
    assert len(pair_memories(one, other, "text")) == 1
    assert pair_memories(one, (MemoryItem("has a dog", label="A", type="direct"),), "text") == []
    assert pair_memories(one, (), "text") == []


def test_pairs_by_id() -> None:
    one = (MemoryItem("likes tea", id="m1"), MemoryItem("has a dog", id="m2"), MemoryItem("x"))
    other = (MemoryItem("likes coffee", id=" M1"), MemoryItem("y"))
    assert pair_memories(one, other, "id") == [(one[0], other[0])]


def test_many_confidences_have_no_interval() -> None:
    items = [MemoryItem(f"memory number {i}", id=str(i), confidence=i / 99) for i in range(60)]
    rows = {"s": tuple(items)}
    found = compare_annotators(rows, rows, "id")["measures"]["confidence, Spearman"]
    assert (found["value"], found["low"]) == (pytest.approx(1.0), None)


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    a = lists(tmp_path / "a", [memory("likes tea")])
    other = write_lines(tmp_path / "b", [{"benchmark_id": "q", "memory_items": []}])
    one_line_error(annotators(a, other), "no benchmark_id in common")
    twice = write_lines(tmp_path / "c", [{"benchmark_id": "q", "memory_items": []}] * 2)
    one_line_error(annotators(a, twice), "c:2", "appears twice")
    faulty = write_lines(tmp_path / "d", [{"benchmark_id": "q", "memory_items": 1}])
    one_line_error(annotators(faulty, a), "d:1", "memory_items")
