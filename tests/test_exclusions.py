"""Wrong gold labels: scores with and without excluded queries; gold is never edited."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from task3.score import app
from tests.kit import WriteRelease, one_line_error, run, write_lines

QUERIES = 20


@pytest.fixture
def place(write_release: WriteRelease, tmp_path: Path) -> Path:
    """Twenty queries; the predictions miss q0 to q4, and q19 has no row."""
    write_release([(f"what {i}", [f"fact {i} {j}" for j in range(4)], 1) for i in range(QUERIES)])
    text = {"answer": "a text", "reason": "a reason"}
    chosen = ["m0" if i < 5 else "m1" for i in range(QUERIES - 1)]
    rows = [
        {"benchmark_id": f"q{i}", **text, "selected_memory_id": name}
        for i, name in enumerate(chosen)
    ]
    write_lines(tmp_path / "p.jsonl", rows)
    return tmp_path


def score(place: Path, content: str | bytes | None, *words: str, code: int | None = None) -> Result:
    options = ["--data", str(place / "release"), *words]
    if content is not None:
        raw = content.encode() if isinstance(content, str) else content
        (place / "excluded.txt").write_bytes(raw)
        options += ["--exclude", str(place / "excluded.txt")]
    return run(app, place / "p.jsonl", *options, code=code)


def as_json(place: Path, content: str | bytes | None) -> dict[str, Any]:
    return dict(json.loads(score(place, content, "--json", code=0).stdout))


def test_two_excluded_ids_give_scores_with_and_without(place: Path) -> None:
    found = as_json(place, "q0\nq3\n")
    assert found["excluded"] == 2
    with_all, rest = found["all"], found["without_excluded"]
    assert (with_all["asked"], with_all["answered"]) == (20, 19)
    assert (rest["asked"], rest["answered"]) == (18, 17)
    assert with_all["accuracy_over_answered"]["mean"] == pytest.approx(14 / 19, abs=1e-6)
    assert rest["accuracy_over_answered"]["mean"] == pytest.approx(14 / 17, abs=1e-6)
    assert with_all["accuracy_unanswered_as_wrong"]["mean"] == pytest.approx(14 / 20, abs=1e-6)
    assert rest["accuracy_unanswered_as_wrong"]["mean"] == pytest.approx(14 / 18, abs=1e-6)
    assert rest["causes"]["wrong"] == {"count": 3, "lines": [2, 3, 5]}


def test_the_scores_of_all_are_those_without_a_list(place: Path) -> None:
    assert as_json(place, "q0\nq3\n")["all"] == as_json(place, None)["all"]
    assert "without_excluded" not in as_json(place, None)


def test_the_text_shows_both_counts_and_the_ceiling(place: Path) -> None:
    text = " ".join(score(place, "q0\nq3\n").stdout.split())
    assert "all 20 queries accuracy over answered queries 0.7368 (14 / 19)" in text
    assert "without the 2 excluded, 18 queries accuracy over answered queries 0.8235" in text
    assert "a perfect system gets 0.9000 (18 / 20) on all" in text


def test_the_ceiling_of_the_audit(write_release: WriteRelease, tmp_path: Path) -> None:
    """99 of 1540 golds wrong: 0.936."""
    write_release([(f"what {i}", [f"fact {i}", f"other {i}"], 0) for i in range(1540)])
    rows = [{"benchmark_id": f"q{i}", "selected_memory_id": "m0"} for i in range(99, 1540)]
    rows += [{"benchmark_id": f"q{i}", "selected_memory_id": "m1"} for i in range(99)]
    write_lines(tmp_path / "p.jsonl", rows)
    result = score(tmp_path, "".join(f"q{i}\n" for i in range(99)))
    assert "a perfect system gets 0.9357 (1441 / 1540) on all" in result.stdout
    text = " ".join(result.stdout.split())
    assert "all 1540 queries accuracy over answered queries 0.9357 (1441 / 1540)" in text
    assert "1441 queries accuracy over answered queries 1.0000 (1441 / 1441)" in text


@pytest.mark.parametrize(
    "content",
    [
        *("q3\nq0", "# found by the audit\n\nq0\n   \n  # again\nq3\n", "\ufeffq0\r\nq3\r\n"),
        *("q0\nq3\nq0\n", "  q0  \n\tq3"),
    ],
)
def test_lists_as_they_come(place: Path, content: str) -> None:
    assert as_json(place, content) == as_json(place, "q0\nq3\n")


@pytest.mark.parametrize("content", ["", "\n\n", "# none yet\n"])
def test_a_list_without_ids_excludes_nothing_and_says_so(place: Path, content: str) -> None:
    found = as_json(place, content)
    assert found["excluded"] == 0
    assert found["without_excluded"] == found["all"]
    assert "without the 0 excluded, 20 queries" in score(place, content).stdout


def test_an_excluded_query_without_a_row_is_no_longer_missing(place: Path) -> None:
    rest = as_json(place, "q19\n")["without_excluded"]
    assert rest["causes"]["missing"]["count"] == 0
    assert rest["coverage"] == 1.0


def test_where_all_that_was_answered_is_excluded_there_is_no_accuracy(place: Path) -> None:
    everything_else = "".join(f"q{i}\n" for i in range(19))
    rest = as_json(place, everything_else)["without_excluded"]
    assert rest["accuracy_over_answered"] is None
    assert (rest["asked"], rest["answered"], rest["coverage"]) == (1, 0, 0.0)
    assert "none was answered" in score(place, everything_else).stdout


def test_unknown_ids_are_one_line_with_their_places(place: Path) -> None:
    result = score(place, "q0\n# note\nq99\nQ3\n")
    one_line_error(result, "2 of 3 ids", "`q99` (line 3)", "`Q3` (line 4)")


def test_other_faults_of_a_list_are_one_line(place: Path) -> None:
    one_line_error(score(place, b"q0\n\xff\xfe\n"), "excluded.txt", "UTF-8")
    one_line_error(score(place, "".join(f"q{i}\n" for i in range(20))), "every query")
    one_line_error(score(place, None, "--exclude", str(place / "gone.txt")), "gone.txt")
    one_line_error(score(place, None, "--exclude", str(place)), "directory")


def test_nothing_is_written_and_gold_stays_as_it_is(place: Path) -> None:
    (place / "excluded.txt").write_text("q0\n")
    before = {p: p.read_bytes() for p in place.rglob("*") if p.is_file()}
    assert score(place, "q0\n").exit_code == 0
    assert {p: p.read_bytes() for p in place.rglob("*") if p.is_file()} == before
