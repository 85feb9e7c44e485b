"""The validator over a user's own file, and over the sizes of task 3 side by side."""

import codecs
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit import LFS, read_lines, write_lines
from tests.kit import edit_line as edit
from tests.test_tracks import INPUT, REFERENCE, write_track
from tests.test_validate import as_json, command


def small(gold: Any = 0, **more: Any) -> dict[str, Any]:
    return {"query": "which tea", "memories": ["green tea", "a cat"], "gold": gold, **more}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Four clean rows: one gold, two, none, and an exact repeat in the pool."""
    rows = [small(), small([0, 1]), small([]), small(1, memories=["tea", "cat", "tea", "tea"])]
    write_lines(tmp_path / "my.jsonl", rows)
    return tmp_path / "my.jsonl"


# A user's own file


def test_a_clean_file(own: Path) -> None:
    result = command(own, code=0)
    assert result.stdout.splitlines() == [
        "own/my.jsonl: 4 rows, 3 with gold, 0 faults",
        "1 tracks, 4 rows, 0 faults",
    ]
    report = as_json(own)
    [track] = report["tracks"]
    assert (track["split"], track["track"]) == ("own", "my.jsonl")
    assert (track["rows"], track["with_gold"], track["faults"]) == (4, 3, 0)
    assert track["repeated_texts"] == 2
    assert (report["faults"], report["fault_count"], report["no_tracks"]) == ([], 0, [])


def test_every_faulty_line_is_named_and_the_others_are_counted(own: Path) -> None:
    rows: list[Any] = [
        small(),
        small(9),
        small(id="1"),
        {"query": "q", "memories": ["m"]},
        small(memories=[]),
        small(**{"a\x00": 1, "a\ufffd": 2}),
        "text",
        small([0, 0]),
        small(id="last"),
    ]
    write_lines(own, rows)
    with own.open("ab") as stream:
        stream.write(b'{"query": \n\xff\n[[[\n')
    report = as_json(own)
    [track] = report["tracks"]
    assert (track["rows"], track["faults"], report["fault_count"]) == (2, 10, 10)
    wanted = {
        2: "gold 9 is no position in 2 memories",
        3: "id `1` already appears on line 1",
        4: "field `gold` is missing",
        5: "`memories` is empty",
        6: "`row` has keys that are equal once repaired",
        7: "a line must hold a JSON object",
        8: "`gold` names a position twice",
        10: "not valid JSON at column",
        11: "not UTF-8 at byte 0",
        12: "not valid JSON at column",
    }
    for fault, (line, said) in zip(report["faults"], wanted.items(), strict=True):
        assert fault.startswith(f"{own}:{line}: "), fault
        assert said in fault
    result = command(own)
    assert result.exit_code == 2
    said = [line for line in result.stdout.splitlines() if line.startswith("fault: ")]
    assert said == [f"fault: {fault}" for fault in report["faults"]]
    assert result.stdout.splitlines()[0] == "own/my.jsonl: 2 rows, 2 with gold, 10 faults"
    assert result.stdout.splitlines()[-1] == "1 tracks, 2 rows, 10 faults"


def test_what_is_repaired_is_reported_with_its_place(own: Path) -> None:
    rows = [small(), small(query="a \u2028 b"), small(memories=["x"])]
    text = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\r\n\r\n"
    text = text.replace('"x"', r'"\ud83d", "\u0000"')
    own.write_bytes(codecs.BOM_UTF8 + text.encode())
    [track] = as_json(own)["tracks"]
    assert (track["rows"], track["faults"]) == (3, 0)
    repaired = {"NUL": 1, "blank line": 1, "byte order mark": 1, "lone surrogate": 1}
    assert track["repaired"] == repaired
    assert track["unusual"] == {"CRLF line end": 3, "U+0085, U+2028 or U+2029 inside a string": 1}
    assert track["places"]["lone surrogate"] == track["places"]["NUL"] == ["my.jsonl:3"]
    assert track["places"]["byte order mark"] == ["my.jsonl:1"]
    said = command(own).stdout
    assert "repaired: lone surrogate x 1 (first at my.jsonl:3)" in said
    assert "kept as it is: CRLF line end x 3 (first at my.jsonl:1, my.jsonl:2, my.jsonl:3)" in said


def test_gz_is_read_like_the_plain_file(own: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "my.jsonl.gz"
    zipped.write_bytes(gzip.compress(own.read_bytes()))
    plain, other = as_json(own)["tracks"][0], as_json(zipped)["tracks"][0]
    assert other == {**plain, "track": "my.jsonl.gz"}


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("my.jsonl", b"", ": the file is empty"),
        ("my.jsonl", b"\n\n", ": the file is empty"),
        ("my.jsonl", LFS.encode(), ":1: this is a Git LFS pointer"),
        ("no.jsonl", None, ": cannot be read"),
        ("no.jsonl.gz", None, ": cannot be read"),
        ("folder.jsonl", None, ": cannot be read"),
    ],
)
def test_a_file_of_nothing_and_one_that_cannot_be_read_are_a_fault(
    tmp_path: Path, name: str, raw: bytes | None, said: str
) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    if raw is not None:
        (tmp_path / name).write_bytes(raw)
    report = as_json(tmp_path / name)
    assert report["fault_count"] == report["tracks"][0]["faults"] == 1
    assert report["faults"][0].startswith(f"{tmp_path / name}{said}")


def test_the_texts_of_a_field_name_cannot_break_the_report(own: Path) -> None:
    own.write_text(r'{"\ud83d\n": 1}' + "\n")
    assert as_json(own)["fault_count"] == 1
    assert len(command(own, code=2).stdout.splitlines()) == 3


# Queries and gold across sizes of task 3


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    """A split with the same three queries at 100 and 300 distractors."""
    for size in (100, 300):
        write_track(tmp_path / "root" / "dev", f"task3/d{size}")
    return tmp_path / "root"


def only_fault(root: Path) -> str:
    report = as_json(root)
    assert report["fault_count"] == 1, report["faults"]
    found: str = report["faults"][0]
    return found


def rename_gold(folder: Path, line: int) -> None:
    """Another text for the gold, in the pool and in the reference alike."""
    reference = read_lines(folder / REFERENCE)[line - 1]
    old = reference["gold"]["selected_memory"]["value"]
    for name in (INPUT, REFERENCE):
        lines = (folder / name).read_text("utf-8").split("\n")
        lines[line - 1] = lines[line - 1].replace(json.dumps(old), json.dumps(old + " changed"))
        (folder / name).write_text("\n".join(lines), "utf-8")


def test_the_same_queries_at_two_sizes_are_clean(sizes: Path) -> None:
    report = as_json(sizes)
    assert report["fault_count"] == 0
    rows = {track["track"]: track["rows"] for track in report["tracks"]}
    assert rows == {"task3/d100": 3, "task3/d300": 3}


def test_another_query_is_a_fault_at_the_larger_size(sizes: Path) -> None:
    place = sizes / "dev" / "task3" / "d300" / INPUT
    edit(place, 2, lambda row: row["input"].update(query="another question"))
    name = read_lines(place)[1]["benchmark_id"]
    fault = only_fault(sizes)
    assert fault == f"{place}:2: `{name}` has another query or gold than in task3/d100"


def test_another_gold_is_a_fault_at_the_larger_size(sizes: Path) -> None:
    folder = sizes / "dev" / "task3" / "d300"
    rename_gold(folder, 3)
    assert only_fault(sizes).startswith(f"{folder / INPUT}:3: ")
    [small_, large] = as_json(sizes)["tracks"]
    assert (small_["faults"], large["faults"]) == (0, 1)


def test_the_order_of_rows_and_the_place_of_the_gold_may_differ(sizes: Path) -> None:
    place = sizes / "dev" / "task3" / "d300" / INPUT
    write_lines(place, read_lines(place)[::-1])
    edit(place, 1, lambda row: row["input"]["candidate_memories"].reverse())
    assert as_json(sizes)["fault_count"] == 0


def test_a_size_without_references_is_compared_by_its_queries(sizes: Path) -> None:
    (sizes / "dev" / "task3" / "d300" / REFERENCE).unlink()
    assert as_json(sizes)["fault_count"] == 0
    place = sizes / "dev" / "task3" / "d300" / INPUT
    edit(place, 1, lambda row: row["input"].update(query="another question"))
    assert only_fault(sizes).startswith(f"{place}:1: ")


def test_golds_are_compared_whichever_size_has_them_first(sizes: Path) -> None:
    write_track(sizes / "dev", "task3/d500")
    (sizes / "dev" / "task3" / "d100" / REFERENCE).unlink()
    folder = sizes / "dev" / "task3" / "d500"
    rename_gold(folder, 2)
    assert only_fault(sizes).startswith(f"{folder / INPUT}:2: ")


def test_one_id_in_two_splits_is_one_fault_and_not_two(sizes: Path) -> None:
    write_track(sizes / "test", "task3/d100", rows=1)
    edit(sizes / "test" / "task3" / "d100" / INPUT, 1, lambda r: r["input"].update(query="other"))
    assert "appears in split `dev` too" in only_fault(sizes)
