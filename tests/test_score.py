"""`python -m task3.score`: exact match, every query under one cause, nothing silent."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from analysis.statistics import Bootstrap
from recallbed.corpus.predictions import meant_ids
from recallbed.harness.fingerprint import canonical
from task3.score import app, score_choices
from tests.kit import WriteRelease, one_line_error, run, write_lines

CAUSES = ("correct", "wrong", "not_in_pool", "null_or_empty", "faulty", "repeated", "missing")


@pytest.fixture
def root(write_release: WriteRelease) -> Path:
    """Queries q0 to q11 whose gold is m1 among m0 to m3."""
    return write_release([(f"what {i}", [f"fact {i} {j}" for j in range(4)], 1) for i in range(12)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The predictions file."""
    return tmp_path / "p.jsonl"


def row(query: object, selected: object = "m1", **more: object) -> dict[str, object]:
    text = {"answer": "a text", "reason": "a reason"}
    return {"benchmark_id": query, **text, "selected_memory_id": selected, **more}


def without(value: dict[str, object], key: str) -> dict[str, object]:
    return {k: v for k, v in value.items() if k != key}


def scores_of(path: Path, root: Path) -> Any:
    return score_choices(path, root, "dev", 3).to_json()


def score(path: Path, root: Path, *words: str, code: int | None = None) -> Result:
    return run(app, path, "--data", root, *words, code=code)


def counts(scores: dict[str, Any]) -> dict[str, int]:
    return {k: tally["count"] for k, tally in scores["causes"].items() if tally["count"]}


@pytest.fixture
def planted(path: Path) -> Path:
    """A file with one of everything that may go wrong."""
    lines: Sequence[object] = [
        row("q9"),  # 1
        row("q0", "m0"),  # 2: wrong
        row("q1", "m77"),  # 3: not in the pool
        row("q2", None),  # 4: null
        row("q3", " "),  # 5: empty
        without(row("q4"), "selected_memory_id"),  # 6
        row("q5", 1),  # 7: a number
        row("q6"),  # 8: stands twice
        row("nobody"),  # 9
        ["q7"],  # 10: not an object
        without(row("q7"), "benchmark_id"),  # 11
        row(7),  # 12
        row("q6"),  # 13
        without(row("q8"), "reason"),  # 14: correct all the same
        row("nobody"),  # 15
        row("q10", "M 1"),  # 16: not in the pool
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text + '{"benchmark_id": "q7",\n' + json.dumps(row("q11", "m2")))  # 17, 18
    return path


def test_every_query_and_every_line_is_counted_once(root: Path, planted: Path) -> None:
    found = scores_of(planted, root)
    causes = found["all"]["causes"]
    assert tuple(causes) == CAUSES
    assert {cause: (tally["count"], tally["lines"]) for cause, tally in causes.items()} == {
        "correct": (2, [1, 14]),
        "wrong": (2, [2, 18]),
        "not_in_pool": (2, [3, 16]),
        "null_or_empty": (2, [4, 5]),
        "faulty": (2, [6, 7]),
        "repeated": (1, [8, 13]),
        "missing": (1, [8]),  # q7 stands on line 8 of model_input
    }
    others = found["lines_of_no_query"]
    assert {cause: (tally["count"], tally["lines"]) for cause, tally in others.items()} == {
        "unknown": (2, [9, 15]),
        "without_benchmark_id": (2, [11, 12]),
        "malformed": (2, [10, 17]),
    }
    assert found["without_answer_or_reason"] == {"count": 1, "lines": [14]}
    assert found["lines"] == 18
    assert sum(tally["count"] for tally in causes.values()) == found["all"]["asked"] == 12


def test_faults_are_named_with_file_line_and_field(root: Path, planted: Path) -> None:
    found = scores_of(planted, root)
    missing, number = found["all"]["causes"]["faulty"]["faults"]
    assert missing.endswith("p.jsonl:6: field `selected_memory_id` is missing")
    assert number.endswith("p.jsonl:7: field `selected_memory_id` must be a string, not int")
    array, cut = found["lines_of_no_query"]["malformed"]["faults"]
    assert "p.jsonl:10: a line must hold a JSON object" in array
    assert "p.jsonl:17: not valid JSON" in cut
    _, numbered = found["lines_of_no_query"]["without_benchmark_id"]["faults"]
    assert "p.jsonl:12: field `benchmark_id`" in numbered


def test_accuracies_and_coverage_say_what_they_are_over(root: Path, planted: Path) -> None:
    scores = scores_of(planted, root)["all"]
    assert (scores["asked"], scores["answered"], scores["coverage"]) == (12, 6, 0.5)
    assert scores["accuracy_over_answered"]["mean"] == pytest.approx(2 / 6, abs=1e-6)
    assert scores["accuracy_unanswered_as_wrong"]["mean"] == pytest.approx(2 / 12, abs=1e-6)


def test_the_text_says_the_same(root: Path, planted: Path) -> None:
    result = score(planted, root, code=0)
    assert result.stderr == ""
    text = " ".join(result.stdout.split())
    for said in (
        "18 lines, scored on dev, task3/d3",
        "all 12 queries",
        "accuracy over answered queries 0.3333 (2 / 6) 95 % [",
        "accuracy, unanswered as wrong 0.1667 (2 / 12) 95 % [",
        "coverage, answered / asked 0.5000 (6 / 12)",
        "selected id not in the pool: 2 (lines 3, 16)",
        "repeated, none counted: 1 (lines 8, 13)",
        "missing, no row: 1 (model_input lines 8)",
        "unknown id: 2 (lines 9, 15)",
        "malformed line: 2 (lines 10, 17)",
        "p.jsonl:7: field `selected_memory_id` must be a string",
        "without answer or reason: 1 (lines 14)",
    ):
        assert said in text, said


def test_json_is_canonical_and_repeats(root: Path, planted: Path) -> None:
    first, second = score(planted, root, "--json").stdout, score(planted, root, "--json").stdout
    assert first == second == canonical(json.loads(first)) + "\n"
    assert json.loads(first) == score_choices(planted, root, "dev", None).to_json()


def test_the_first_lines_are_the_lowest(root: Path, path: Path) -> None:
    write_lines(path, [row(f"q{i}", "m0") for i in range(11, 0, -1)])
    tally = scores_of(path, root)["all"]["causes"]["wrong"]
    assert tally == {"count": 11, "lines": [1, 2, 3, 4, 5]}
    text = " ".join(score(path, root).stdout.split())
    assert "11 (lines 1, 2, 3, 4, 5, ...)" in text


@pytest.mark.parametrize("second", ["m1", "m0", None, 5])
def test_repeats_do_not_count(root: Path, path: Path, second: object) -> None:
    write_lines(path, [row("q0"), row("q1"), row("q0", second)])
    scores = scores_of(path, root)["all"]
    assert counts(scores) == {"correct": 1, "repeated": 1, "missing": 10}
    assert scores["answered"] == 1


def test_intervals_are_over_sessions(root: Path, path: Path) -> None:
    folder = root / "dev" / "task3" / "d3"
    for name in ("model_input.jsonl", "reference_output.jsonl"):
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for i, one in enumerate(rows):
            one["session_id"] = f"s{i // 4}"
        write_lines(folder / name, rows)
    right = [i % 3 == 0 or i > 7 for i in range(12)]
    over = [i for i in range(12) if i != 5]
    write_lines(path, [row(f"q{i}", "m1" if right[i] else "m2") for i in over])
    scores = scores_of(path, root)["all"]
    for key, members in (
        ("accuracy_over_answered", over),
        ("accuracy_unanswered_as_wrong", range(12)),
    ):
        values = np.array([right[i] for i in members], float)
        wanted = Bootstrap([f"s{i // 4}" for i in members]).interval(values)
        lone = Bootstrap([str(i) for i in members]).interval(values)
        assert scores[key]["low"] == pytest.approx(wanted.low, abs=1e-6)
        assert scores[key]["high"] == pytest.approx(wanted.high, abs=1e-6)
        assert abs(wanted.low - lone.low) > 0.01


def test_perfect_accuracy_has_an_interval(root: Path, path: Path) -> None:
    write_lines(path, [row(f"q{i}") for i in range(12)])
    found = scores_of(path, root)["all"]["accuracy_over_answered"]
    assert (found["mean"], found["high"], found["method"]) == (1.0, 1.0, "wilson")
    assert 0.7 < found["low"] < 0.8


@pytest.mark.parametrize("form", ["bom", "crlf", "blank", "gz", "no end"])
def test_equivalent_files_agree(root: Path, tmp_path: Path, form: str) -> None:
    plain = b"".join(
        json.dumps(row(f"q{i}", f"m{i % 3}", answer="\u2028"), ensure_ascii=False).encode() + b"\n"
        for i in range(12)
    )
    (tmp_path / "plain.jsonl").write_bytes(plain)
    path = tmp_path / ("p.jsonl.gz" if form == "gz" else "p.jsonl")
    path.write_bytes(
        {
            "bom": b"\xef\xbb\xbf" + plain,
            "crlf": plain.replace(b"\n", b"\r\n"),
            "blank": plain.replace(b"\n", b"\n\n  \n"),
            "gz": gzip.compress(plain),
            "no end": plain[:-1],
        }[form]
    )
    scores = [scores_of(p, root) for p in (tmp_path / "plain.jsonl", path)]
    assert counts(scores[1]["all"]) == counts(scores[0]["all"]) == {"correct": 4, "wrong": 8}
    step = 3 if form == "blank" else 1  # blank lines are passed over, and numbered all the same
    assert scores[1]["all"]["causes"]["correct"]["lines"] == [1 + step * i for i in (1, 4, 7, 10)]
    expected = {"bom": {"byte order mark": 1}, "blank": {"blank line": 24}}
    assert scores[1]["repaired"] == expected.get(form, {})


UNUSABLE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "blank": (b"\n  \n", "empty"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid x\n", "Git LFS pointer"),
    "a picture": (b"\x89PNG\r\n\x1a\n\xff", "malformed line: 3"),
    "an array": (json.dumps([row("q0"), row("q1")]).encode(), "malformed line: 1"),
    "unknown alone": (json.dumps(row("z")).encode(), "unknown id: 1"),
    "null alone": (json.dumps(row("q0", None)).encode(), "null or empty: 1"),
    "another form": (b'{"query": "q0", "top": 1}', "field `benchmark_id` is missing"),
    "deep": (b'{"a":' * 20000, "malformed line: 1"),
    "cut short": (b'{"benchmark_id": "q0", "selected_mem', "malformed line: 1"),
    "no picks": (b'{"benchmark_id": "q0"}', "field `selected_memory_id` is missing"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_no_usable_row_is_one_line(root: Path, path: Path, kind: str) -> None:
    content, said = UNUSABLE[kind]
    (path).write_bytes(content)
    one_line_error(score(path, root), "p.jsonl", said)


def test_an_unreadable_file_is_one_line(root: Path, tmp_path: Path) -> None:
    one_line_error(score(tmp_path / "gone.jsonl", root), "gone.jsonl")
    one_line_error(score(tmp_path, root), "no predictions.jsonl here")
    whole = gzip.compress(b"".join(json.dumps(row(f"q{i}")).encode() + b"\n" for i in range(12)))
    (tmp_path / "p.jsonl.gz").write_bytes(whole[:-12])
    one_line_error(score(tmp_path / "p.jsonl.gz", root), "cannot be read")


def test_missing_references_are_one_line(root: Path, path: Path) -> None:
    write_lines(path, [row("q0")])
    one_line_error(score(path, root, "--size", "9"), "9 distractors", "one of 3")
    one_line_error(score(path, root, "--split", "test"), "test", "dev")
    (root / "dev" / "task3" / "d3" / "reference_output.jsonl").unlink()
    one_line_error(score(path, root), "references")


def test_a_shared_gold_id_is_reported(write_release: WriteRelease, path: Path) -> None:
    root = write_release(
        [(f"what {i}", [f"fact {i} {j}" for j in range(3)], 1) for i in range(2)],
        ids=["m2", "m1", "m1"],
    )
    write_lines(path, [row("q0"), row("q1")])
    assert score_choices(path, root, "dev", None).to_json()["shared_gold_ids"] == 2
    assert "in 2 pools other memories have the gold's id too" in score(path, root).stdout


def test_ids_differ_by_more_than_case_and_space_unless_the_pool_has_both() -> None:
    """As in the public scorer, with a check for ids that only these tell apart."""
    assert meant_ids(" M1\t", ("m1", "m2", "m1")) == {"m1"}
    assert meant_ids("m3", ("m1", "m2")) == frozenset()
    assert meant_ids("M1", ("m1", "M1")) == {"M1"}
    assert meant_ids(" m1", ("m1", "M1")) == frozenset()


def test_an_id_in_another_case_is_correct(root: Path, path: Path) -> None:
    write_lines(path, [row("q0", " M1 "), row("q1", "M0")])
    found = scores_of(path, root)["all"]["causes"]
    assert (found["correct"]["lines"], found["wrong"]["lines"]) == ([1], [2])
