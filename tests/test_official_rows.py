"""Official prediction rows of all four tasks: written, filled, checked and read back."""

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from analysis.export import app as export_app
from memory_systems.base import Operation, SystemFailure
from recallbed.corpus import Memory, sample_root
from recallbed.corpus.contract import FILLED, check_format, filled_row, is_filled
from recallbed.corpus.predictions import NameLookup
from recallbed.corpus.records import Turn
from recallbed.corpus.validate import app as validate_app
from retrievers import Retriever
from retrievers.base import RetrieverError
from task1.run import app as run_task1
from task1.score import app as score_task1
from task2.run import app as run_task2
from task2.score import app as score_task2
from task3.score import app as score_task3
from task4.extractive import Extractive
from task4.figures import is_grounded
from task4.run import app as run_task4
from task4.score import app as score_task4
from tests.kit import one_line_error, read_lines, rows_of, run, run_json, swept, write_lines

ABILITIES = [f"task4_ability{n}" for n in range(1, 6)]


def unlucky(text: str) -> bool:
    return zlib.crc32(text.encode()) % 3 == 0


class FailsOften(Extractive):
    """Fails on a third of the dialogues."""

    def ingest(self, dialogue: Sequence[Turn]) -> list[Operation]:
        if unlucky(dialogue[0].text):
            raise SystemFailure("scripted")
        return list(super().ingest(dialogue))


class Lengths(Retriever):
    """Ranks by length, and fails on a third of the queries."""

    def score(self, query: str, pool: Sequence[Memory]) -> list[float]:
        if unlucky(query):
            raise RetrieverError("scripted")
        return [float(zlib.crc32(memory.text.encode()) >> 8) for memory in pool]


def run_of(task: str, out: Path) -> Path:
    if task == "task3":
        swept([f"L={__name__}:Lengths"], out=out, pools="released", distractors=(100,))
    else:
        app = {"task1": run_task1, "task2": run_task2, "task4": run_task4}[task]
        run(app, "--system", f"{__name__}:FailsOften", "--out", out, code=0)
    return out


def export(path: Path, out: Path, *words: object) -> Any:
    return run(export_app, path, "--what", "predictions", "--out", out, *words, code=0)


FILES = {
    "task1": {"task1": "task1.predictions.jsonl"},
    "task2": {"task2": "task2.predictions.jsonl"},
    "task3": {"task3/d100": "L.d100.predictions.jsonl"},
    "task4": {name: f"{name}.predictions.jsonl" for name in ABILITIES},
}
SCORES = {"task1": score_task1, "task2": score_task2, "task3": score_task3, "task4": score_task4}


def figures(task: str, path: Path) -> Any:
    """The scores of a file, without its name, its lines and what says that rows were filled."""
    found = without(run_json(SCORES[task], path), "predictions", "lines", "repaired")
    assert isinstance(found, dict)
    return found


def without(value: Any, *keys: str) -> Any:
    if isinstance(value, list):
        return [without(one, *keys) for one in value]
    if isinstance(value, dict):
        return {key: without(one, *keys) for key, one in value.items() if key not in keys}
    return value


def validated(file: Path, track: str, code: int) -> Any:
    found = run(validate_app, file, "--predictions", track, "--json", code=code)
    return json.loads(found.stdout)


@pytest.mark.parametrize("task", FILES)
def test_exported_files_pass_the_check_only_if_filled_and_score_equal(
    task: str, tmp_path: Path
) -> None:
    path = run_of(task, tmp_path / "run")
    failed = sum(row["error"] is not None for row in rows_of(path))
    assert 0 < failed < len(rows_of(path))
    result = export(path, tmp_path / "bare")
    assert f"{failed} of {len(rows_of(path))} rows failed" in result.stderr
    assert "--fill-failed" not in export(path, tmp_path / "whole", "--fill-failed").stderr
    filled = missing = 0
    for track, name in FILES[task].items():
        whole = validated(tmp_path / "whole" / name, track, code=0)
        assert (whole["faults"], whole["foreign"]) == ([], 0)
        rows = read_lines(sample_root() / "dev" / track / "model_input.jsonl")
        written = read_lines(tmp_path / "whole" / name)
        assert [row["benchmark_id"] for row in written] == [row["benchmark_id"] for row in rows]
        filled += whole["filled"]
        left = len(read_lines(tmp_path / "bare" / name))
        missing += len(rows) - left
        bare = validated(tmp_path / "bare" / name, track, code=2 if left < len(rows) else 0)
        if left < len(rows):
            [fault] = bare["faults"]
            assert f"no row for {len(rows) - left} of {len(rows)}" in fault
        if left:
            scores = [figures(task, tmp_path / folder / name) for folder in ("bare", "whole")]
            assert scores[0] == scores[1]
    assert filled == missing == failed


def test_a_score_says_how_many_rows_were_filled(tmp_path: Path) -> None:
    path = run_of("task1", tmp_path / "run")
    export(path, tmp_path, "--fill-failed")
    failed = sum(row["error"] is not None for row in rows_of(path))
    file = tmp_path / "task1.predictions.jsonl"
    note = f"repaired: row written for a failure: taken as missing x {failed}"
    assert note in run(score_task1, file, code=0).output
    write_lines(file, [row for row in read_lines(file) if is_filled(row)])
    one_line_error(run(score_task1, file), f"row written for a failure: taken as missing: {failed}")


def test_only_a_filled_row_is_one() -> None:
    for task in FILES:
        row = filled_row(task, "x")
        assert is_filled(row)
        for key in row:
            assert not is_filled({**row, key: 1})
            assert not is_filled({k: v for k, v in row.items() if k != key})
        assert not is_filled({**row, "more": 1})
    empty = {"benchmark_id": "x", "memory_items": []}
    assert not is_filled(empty)


# Several files


def test_the_files_of_all_abilities_are_scored_together(tmp_path: Path) -> None:
    path, folder = run_of("task4", tmp_path / "run"), tmp_path / "official"
    export(path, folder, "--fill-failed")
    export(run_of("task1", tmp_path / "run1"), folder)  # of another task: not read
    files = [folder / name for name in FILES["task4"].values()]
    found = run_json(score_task4, folder)
    assert found["files"] == [str(file) for file in files]
    assert figures("task4", folder) == without(
        run_json(score_task4, *files), "predictions", "lines", "repaired"
    )
    each = [run_json(score_task4, file) for file in files]
    for part in ("grounding_proxy", "over_personalization"):
        assert found[part] == {name: one for file in each for name, one in file[part].items()}
    assert found["lines"] == sum(one["lines"] for one in each)
    for one in each:
        for name, dimension in one["dimensions"].items():
            assert without(found["dimensions"][name], "lines") == without(dimension, "lines")
    part = run_json(score_task4, folder, "--ability", 1, "--ability", 4)
    assert list(part["grounding_proxy"]) == ["ability1", "ability4"]


def test_lines_of_several_files_name_their_file(tmp_path: Path) -> None:
    export(run_of("task4", tmp_path / "run"), tmp_path)
    files = [tmp_path / name for name in FILES["task4"].values()][:2]
    rows = read_lines(files[0])
    write_lines(files[1], [*read_lines(files[1]), rows[0], {**rows[1], "benchmark_id": "x"}])
    count = len(read_lines(files[1]))
    found = run_json(score_task4, *files)
    places = [f"{files[0]}:1", f"{files[1]}:{count - 1}"]
    assert found["dimensions"]["pa"]["causes"]["repeated"] == {"count": 1, "lines": places}
    unknown = found["lines_of_no_query"]["unknown"]
    assert unknown == {"count": 1, "lines": [f"{files[1]}:{count}"]}
    text = run(score_task4, *files, code=0).output
    assert f"unknown id: 1 (lines {files[1]}:{count})" in text


def test_runs_of_several_abilities_keep_their_searches(tmp_path: Path) -> None:
    runs = [tmp_path / name for name in ("one", "two")]
    for ability, out in enumerate(runs, 1):
        run(run_task4, "--system", "extractive", "--ability", ability, "--out", out, code=0)
    found = run_json(score_task4, *runs)
    assert {*found["dimensions"]} >= {"pa", "pf_general"}
    assert found["retrieval"]["questions"] == sum(
        run_json(score_task4, one)["retrieval"]["questions"] for one in runs
    )
    mixed = run_json(score_task4, runs[0], runs[1] / "predictions.jsonl")
    assert mixed["retrieval"] is None
    assert without(mixed["dimensions"], "retrieval") == without(found["dimensions"], "retrieval")


def test_files_of_a_sweep_are_scored_on_the_pools_that_their_names_say(tmp_path: Path) -> None:
    out = tmp_path / "run"
    swept([f"L={__name__}:Lengths", "bm25"], out=out, pools="released", distractors=(100,))
    export(out, tmp_path / "official")
    files = [tmp_path / "official" / f"{name}.d100.predictions.jsonl" for name in ("L", "bm25")]
    found = run_json(score_task3, tmp_path / "official")
    assert found == [run_json(score_task3, file) for file in files]
    assert [one["size"] for one in found] == [100, 100]
    shown = run(score_task3, *files, code=0).output
    assert all(f"{file}: " in shown for file in files)
    judge = ["--use", "judge", "--judge-model", "openai:m"]
    one_line_error(run(score_task3, *files, *judge), "a judge reads one file, and here are 2")
    other = files[0].rename(tmp_path / "L.d300.predictions.jsonl")
    one_line_error(run(score_task3, other), "no released pool of 300 distractors")
    assert run_json(score_task3, other, "--distractors", 100)["size"] == 100


# Ids


def shouted(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its ids in capitals and with white space."""

    def loud(value: str) -> str:
        return f" {value.upper()}\t"

    changed = {**row, "benchmark_id": loud(row["benchmark_id"])}
    if "selected_memory_id" in row:
        changed["selected_memory_id"] = loud(row["selected_memory_id"])
    if "responses" in row:
        members = row["responses"]
        changed["responses"] = [{**one, "query_id": loud(one["query_id"])} for one in members]
    return changed


@pytest.mark.parametrize("task", FILES)
def test_case_and_surrounding_space_of_ids_do_not_count(task: str, tmp_path: Path) -> None:
    path = run_of(task, tmp_path / "run")
    export(path, tmp_path)
    files = [tmp_path / next(iter(FILES[task].values()))]
    if task == "task4":
        files.append(path / "predictions.jsonl")  # with responses and query_ids
    for file in files:
        loud = write_lines(tmp_path / "loud.jsonl", map(shouted, read_lines(file)))
        assert figures(task, loud) == figures(task, file)


def test_ids_that_differ_in_case_only_are_found_as_written() -> None:
    lookup = NameLookup(["a", "A", "b "])
    assert [lookup.find(name) for name in ("a", "A", " a", "B", "c")] == [
        "a",
        "A",
        None,
        "b ",
        None,
    ]


def test_two_rows_whose_ids_differ_in_case_only_are_repeated(tmp_path: Path) -> None:
    export(run_of("task1", tmp_path / "run"), tmp_path)
    file = tmp_path / "task1.predictions.jsonl"
    rows = read_lines(file)
    write_lines(file, [*rows, shouted(rows[0])])
    assert run_json(score_task1, file)["causes"]["repeated"]["count"] == 1


# The check


GOOD = {"benchmark_id": "x", "memory_items": [{"value": "likes tea"}]}
TEXT = {"benchmark_id": "x", "answer": "a", "used_memory_fact": ""}


@pytest.mark.parametrize(
    ("track", "row", "fault"),
    [
        ("task1", {**GOOD, "memory_items": None}, "`memory_items` must be a list"),
        ("task2", {**GOOD, "memory_items": ["likes tea"]}, "`memory_items` must hold objects"),
        ("task1", {"benchmark_id": "x"}, "without `memory_items`"),
        ("task1", {**GOOD, "model": "m"}, "has `model`, and task1 has"),
        ("task4_ability1", {**TEXT, "answer": None}, "`answer` must be a string"),
        ("task4_ability5", {"benchmark_id": "x", "responses": []}, "without `answer`"),
        ("task3/d100", {**TEXT}, "without `reason`, `selected_memory_id`"),
        ("task1", {**GOOD, "benchmark_id": 3}, "`benchmark_id` must be a string"),
        ("task1", {**GOOD, "benchmark_id": "nobody"}, "`nobody` is not a benchmark_id of task1"),
        ("task1", "{", "not valid JSON"),
    ],
)
def test_faults_of_a_row(track: str, row: Any, fault: str, tmp_path: Path) -> None:
    first = read_lines(sample_root() / "dev" / track / "model_input.jsonl")[0]["benchmark_id"]
    if isinstance(row, dict) and row["benchmark_id"] == "x":
        row = {**row, "benchmark_id": first}
    file = tmp_path / "p.jsonl"
    write_lines(file, [row]) if isinstance(row, dict) else file.write_text(row + "\n")
    check = partial(run, validate_app, file, "--predictions", track, "--limit", 1)
    found = check(code=2)
    assert f"fault: {file}:1: " in found.output
    assert fault in found.output
    whole = {"benchmark_id": first, "memory_items": []}
    if track in ("task1", "task2"):
        write_lines(file, [whole])
        assert f"{file}: {track}, rows 1, filled for failures 0, faults 0" in check(code=0).output
        write_lines(file, [whole, whole])
        assert f"`{first}` has a row on line 1 too" in check(code=2).output
        write_lines(file, [{**whole, "benchmark_id": first.upper()}])
        assert "is not a benchmark_id" in check(code=2).output  # its loader compares exactly


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("p.jsonl", lambda wire: b"\xef\xbb\xbf" + wire, "byte order mark"),
        ("p.jsonl.gz", gzip.compress, "is compressed"),
        ("p.jsonl", lambda wire: wire.replace(b"likes", b"\\ud83d"), "half of a surrogate pair"),
        ("p.jsonl", lambda wire: wire.replace(b"\n", b"\r\n"), None),
        ("p.jsonl", lambda wire: b"\n" + wire.replace(b"likes", "\u2028用户".encode()), None),
    ],
)
def test_faults_of_a_file(
    name: str, change: Callable[[bytes], bytes], fault: str | None, tmp_path: Path
) -> None:
    """The public scorer reads plain UTF-8, and writes it again."""
    first = read_lines(sample_root() / "dev/task1/model_input.jsonl")[0]["benchmark_id"]
    row = {**GOOD, "benchmark_id": first}
    (tmp_path / name).write_bytes(change(json.dumps(row).encode() + b"\n"))
    faults = check_format(tmp_path / name, "task1", None, "dev", 1).faults
    assert [fault in one for one in faults] == ([] if fault is None else [True])


def test_a_selected_id_that_is_not_in_the_pool_is_only_counted(tmp_path: Path) -> None:
    first = read_lines(sample_root() / "dev/task3/d100/model_input.jsonl")[0]["benchmark_id"]
    row = {"benchmark_id": first, "answer": "", "reason": "", "selected_memory_id": "m999"}
    found = check_format(write_lines(tmp_path / "p.jsonl", [row]), "task3/d100", None, "dev", 1)
    assert (found.faults, found.foreign) == ([], 1)


def test_wrong_options_are_one_line(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "p.jsonl", [GOOD])
    one_line_error(run(validate_app, file, "--predictions", "task5"), "choose one of task1")
    one_line_error(run(validate_app, file, "--limit", 1), "go with --predictions")
    words = (tmp_path, "--out", tmp_path / "x", "--fill-failed")
    one_line_error(run(export_app, *words), "--fill-failed goes with --what predictions")
    one_line_error(run(export_app, tmp_path, "--what", "predictions", "--out", "x"), "manifest")


def test_runs_of_another_kind_are_one_line(tmp_path: Path) -> None:
    one, four = run_of("task1", tmp_path / "one"), run_of("task4", tmp_path / "four")
    for what in ("trec", "pools"):
        words = (one, "--what", what, "--out", tmp_path / "x")
        one_line_error(run(export_app, *words), f"{one}: not a run of recallbed sweep")
    one_line_error(run(score_task2, one), f"{one}: a run of task1, not of task2")
    words = (four, "--predictions", ABILITIES[0])
    one_line_error(run(validate_app, *words), f"{four}: has no official rows of {ABILITIES[0]}")


def test_an_unfinished_run_is_not_exported(tmp_path: Path) -> None:
    path = run_of("task1", tmp_path / "run")
    lines = (path / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (path / "rows.jsonl").write_bytes(b"".join(lines[:-2]))
    words = (path, "--what", "predictions", "--out", tmp_path / "x")
    one_line_error(run(export_app, *words), "Finish the run with --resume")


# Task 4


@pytest.mark.parametrize(
    ("used", "gold", "grounded"),
    [
        ("Likes  TEA", "likes tea", True),
        ("likes tea", "The user likes tea at noon", True),
        ("The user likes tea at noon", "likes tea", True),
        ("likes coffee", "likes tea", False),
        ("", "likes tea", False),
        (" ", "likes tea", False),
        ("likes tea", "", False),
        (FILLED, "likes tea", False),
    ],
)
def test_the_grounding_proxy_by_hand(used: str, gold: str, grounded: bool) -> None:
    assert is_grounded(used, gold) is grounded


def test_the_proxy_counts_every_row_of_an_ability(tmp_path: Path) -> None:
    """Half of the rows name their memory in capitals, one more names none, the rest is missing."""
    golds = {
        row["benchmark_id"]: row["gold"]["selected_memory"]["value"]
        for row in read_lines(sample_root() / "dev/task4_ability5/reference_output.jsonl")
    }
    names = list(golds)
    half = len(names) // 2
    rows = [
        {"benchmark_id": name, "answer": "yes", "used_memory_fact": golds[name].upper()}
        for name in names[:half]
    ]
    rows.append({"benchmark_id": names[half], "answer": "yes", "used_memory_fact": ""})
    file = write_lines(tmp_path / "p.jsonl", rows)
    found = run_json(score_task4, file)["grounding_proxy"]
    assert found == {
        "ability5": {
            "rows": len(names),
            "answered": half + 1,
            "accuracy": pytest.approx(half / len(names), abs=1e-6),
        }
    }
    line = f"grounding proxy, ability5: {half / len(names):.4f} of {len(names)} rows"
    assert line in run(score_task4, file, code=0).output
