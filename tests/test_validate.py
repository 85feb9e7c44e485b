"""`python -m recallbed.corpus.validate`: counts, kinds of fault by file and line, exit codes."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recallbed.corpus import DataError, sample_root
from recallbed.corpus.jsonl import Repairs
from recallbed.corpus.tracks import NAMES
from recallbed.corpus.validate import SHOWN, app, validate
from tests.kit import LFS, ROOT, one_line_error, python, read_lines, run, write_lines
from tests.kit import edit_line as edit
from tests.test_tracks import INPUT, REFERENCE, small_row, write_track

# The table of the README of the public part of `dev`.
README_ROWS = {
    "task1": 410,
    "task2": 410,
    "task3/d100": 410,
    "task4_ability1": 97,
    "task4_ability2": 233,
    "task4_ability3": 74,
    "task4_ability4": 55,
    "task4_ability5": 15,
}
command = partial(run, app)


def as_json(*arguments: object) -> dict[str, Any]:
    result = command(*arguments, "--json")
    assert result.stderr == ""
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (2 if found["fault_count"] else 0)
    return found


shell = partial(python, "-m", "recallbed.corpus.validate", cwd=ROOT)


def per_track(report: dict[str, Any], key: str) -> dict[str, Any]:
    return {f"{track['split']}/{track['track']}": track[key] for track in report["tracks"]}


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A copy of the embedded sample that may be spoilt."""
    return Path(shutil.copytree(sample_root(), tmp_path / "copy"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The root of a release with a small file of every track in `dev`."""
    for name in NAMES:
        if name not in ("task3/d300", "task3/d500", "task3/d700", "task3/d1000"):
            write_track(tmp_path / "small" / "dev", name)
    return tmp_path / "small"


# Clean data


def test_the_sample_is_clean() -> None:
    result = command(sample_root(), code=0)
    assert "fault:" not in result.stdout
    report = as_json(sample_root())
    assert (report["faults"], report["fault_count"], report["no_tracks"]) == ([], 0, [])
    for track in report["tracks"]:
        place = sample_root() / track["split"] / track["track"]
        assert track["rows"] == track["with_gold"] == len(read_lines(place / INPUT)) >= 12


@pytest.mark.parametrize("below", ["", "dev"])
def test_the_real_data_is_clean_with_the_counts_of_its_readme(alpsbench: Path, below: str) -> None:
    report = as_json(alpsbench / below)
    assert (report["faults"], report["fault_count"], report["no_tracks"]) == ([], 0, [])
    wanted = {f"dev/{name}": rows for name, rows in README_ROWS.items()}
    assert per_track(report, "rows") == wanted
    assert per_track(report, "with_gold") == wanted
    assert set(per_track(report, "faults").values()) == {0}
    [pools] = [track for track in report["tracks"] if track["track"] == "task3/d100"]
    # The README: the stored ids repeat in every pool, which holds about ten exact repeats.
    assert pools["pools_with_repeated_ids"] == 410
    assert 9 < pools["repeated_texts"] / 410 < 11


def test_fields_are_counted_two_levels_deep(small: Path) -> None:
    edit(small / "dev" / "task2" / INPUT, 2, lambda row: row["input"].update(extra={"deep": 1}))
    fields = per_track(as_json(small), "fields")["dev/task2"]
    assert fields == {
        "benchmark_id": 6,
        "session_id": 6,
        "input": 3,
        "input.old_dialogue": 3,
        "input.new_dialogue": 3,
        "input.memory": 3,
        "input.extra": 1,
        "gold": 3,
        "gold.answer": 3,
    }


def test_repeats_in_pools_are_counted_and_are_no_fault(small: Path) -> None:
    def repeat(row: dict[str, Any]) -> None:
        pool = row["input"]["candidate_memories"]
        pool[2]["memory_id"] = pool[1]["memory_id"]
        pool[5]["value"] = pool[6]["value"] = pool[7]["value"]

    edit(small / "dev" / "task3" / "d100" / INPUT, 2, repeat)
    report = as_json(small)
    assert report["fault_count"] == 0
    assert per_track(report, "pools_with_repeated_ids")["dev/task3/d100"] == 1
    assert per_track(report, "repeated_texts")["dev/task3/d100"] == 2
    assert "stored ids repeat in 1 pools, 2 exact repeats of texts" in command(small).stdout


def test_every_released_size_is_read(tmp_path: Path) -> None:
    for size in (100, 300, 500, 700, 1000):
        write_track(tmp_path / "dev", f"task3/d{size}", rows=1)
    report = as_json(tmp_path)
    assert list(per_track(report, "rows").items()) == [
        (f"dev/task3/d{size}", 1) for size in (100, 300, 500, 700, 1000)
    ]
    assert report["fault_count"] == 0


# Ten faults of ten kinds


Change = Callable[[Path], None]


def cut_line(number: int) -> Change:
    """Half of a line is lost."""

    def change(path: Path) -> None:
        lines = path.read_text("utf-8").split("\n")
        lines[number - 1] = lines[number - 1][: len(lines[number - 1]) // 2]
        path.write_text("\n".join(lines), "utf-8")

    return change


def latin_1(number: int) -> Change:
    def change(path: Path) -> None:
        lines = path.read_bytes().split(b"\n")
        lines[number - 1] = lines[number - 1].replace(b'"value": "', b'"value": "caf\xe9 ', 1)
        path.write_bytes(b"\n".join(lines))

    return change


def on_line(number: int, change: Callable[[dict[str, Any]], Any]) -> Change:
    return lambda path: edit(path, number, change)


def without_reference(number: int) -> Change:
    """The input stays, what stands beside it in the reference goes."""

    def change(path: Path) -> None:
        rows = read_lines(path.with_name(REFERENCE))
        write_lines(path.with_name(REFERENCE), rows[: number - 1] + rows[number:])

    return change


def repeat_line(number: int) -> Change:
    """A row once more at the end, on a line of its own."""

    def change(path: Path) -> None:
        rows = read_lines(path)
        write_lines(path, [*rows, rows[number - 1]])

    return change


def drop_a_distractor(row: dict[str, Any]) -> None:
    # A text that stands twice can't be the gold.
    pool = row["input"]["candidate_memories"]
    texts = [candidate["value"] for candidate in pool]
    del pool[next(i for i, text in enumerate(texts) if texts.count(text) > 1)]


# Track, the file and line that must be named, what is done to it, and words of the message.
PLANTED: list[tuple[str, str, Change, int, str]] = [
    ("task1", INPUT, cut_line(3), 3, "not valid JSON at column"),
    ("task1", REFERENCE, latin_1(7), 7, "not UTF-8 at byte"),
    (
        "task2",
        INPUT,
        on_line(5, lambda row: row["input"].pop("memory")),
        5,
        "field `input.memory` is missing",
    ),
    ("task2", REFERENCE, repeat_line(2), 25, "appears twice, first on line 2"),
    ("task3/d100", INPUT, on_line(11, drop_a_distractor), 11, "has 100 memories, not 101"),
    (
        "task3/d100",
        REFERENCE,
        on_line(13, lambda row: row["gold"]["selected_memory"].update(value="sails")),
        13,
        "is missing from its pool",
    ),
    (
        "task4_ability1",
        INPUT,
        on_line(4, lambda row: row["input"]["queries"][0].update(query=12)),
        4,
        "`input.queries[0].query` must be a string, not int",
    ),
    ("task4_ability2", INPUT, without_reference(6), 6, "has no row in reference_output.jsonl"),
    (
        "task4_ability3",
        INPUT,
        on_line(2, lambda row: row["input"].update(queries=[])),
        2,
        "`input.queries` is empty",
    ),
    ("task4_ability4", REFERENCE, lambda path: path.write_text(LFS) and None, 1, "Git LFS"),
]


def plant_all(root: Path) -> None:
    for track, file, change, _, _ in PLANTED:
        change(root / "dev" / track / file)


def assert_all_reported(faults: list[str], root: Path) -> None:
    """Each planted fault is reported once; else only the partners of rows that were lost."""
    rest = list(faults)
    for track, file, _, number, words in PLANTED:
        start = f"{root / 'dev' / track / file}:{number}: "
        found = [line for line in rest if line.startswith(start) and words in line]
        assert len(found) == 1, (start, words)
        rest.remove(found[0])
    # A row that can't be read leaves its partner in the other file without one.
    assert [line.split(": ", 1)[0] for line in rest] == [
        f"{root / 'dev' / 'task1' / REFERENCE}:3",
        f"{root / 'dev' / 'task1' / INPUT}:7",
    ]
    assert all("has no row in" in line for line in rest)


def test_ten_planted_faults_are_all_reported(sample: Path) -> None:
    assert len({words for *_, words in PLANTED}) == len(PLANTED) == 10
    plant_all(sample)
    report = as_json(sample)
    assert_all_reported(report["faults"], sample)
    assert report["fault_count"] == len(report["faults"])
    assert sum(per_track(report, "faults").values()) == report["fault_count"]
    lines = command(sample, code=2).stdout.splitlines()
    assert [line for line in lines if line.startswith("fault: ")] == [
        f"fault: {fault}" for fault in report["faults"]
    ]
    assert lines[-1].endswith(f", {report['fault_count']} faults")
    # The other rows are counted all the same, and the untouched track has no fault.
    rows = {
        name: len(read_lines(sample_root() / name / INPUT)) for name in per_track(report, "rows")
    }
    lost = {"dev/task1": 2, "dev/task2": 1, "dev/task3/d100": 1, "dev/task4_ability1": 1}
    lost |= {"dev/task4_ability2": 1, "dev/task4_ability3": 1}
    lost["dev/task4_ability4"] = rows["dev/task4_ability4"]
    assert per_track(report, "rows") == {n: count - lost.get(n, 0) for n, count in rows.items()}
    assert per_track(report, "faults")["dev/task4_ability5"] == 0


@pytest.mark.parametrize(
    "planted", PLANTED, ids=[words.strip("`").replace(" ", "-")[:30] for *_, words in PLANTED]
)
def test_one_planted_fault_alone_is_enough_for_exit_code_2(
    sample: Path, planted: tuple[str, str, Change, int, str]
) -> None:
    track, file, change, line, words = planted
    change(sample / "dev" / track / file)
    result = command(sample / "dev", code=2)
    start = f"fault: {sample / 'dev' / track / file}:{line}: "
    assert [x for x in result.stdout.splitlines() if x.startswith(start) and words in x]


# More kinds


def assert_fault(root: Path, start: str, *words: str) -> None:
    """One fault, with this start, and nothing else is wrong."""
    report = validate(root)
    assert report.fault_count == 1
    [line] = report.faults
    assert line.startswith(start)
    for word in words:
        assert word in line


def test_a_gold_that_occurs_twice_in_its_pool_is_a_fault(small: Path) -> None:
    path = small / "dev" / "task3" / "d100"
    edit(path / INPUT, 2, lambda row: row["input"]["candidate_memories"][9].update(value="text 1 "))
    assert_fault(small, f"{path / REFERENCE}:2: ", "2 times in its pool")


@pytest.mark.parametrize("file", [INPUT, REFERENCE])
def test_a_truncated_gz_is_a_fault_at_the_line_where_it_ends(sample: Path, file: str) -> None:
    path = sample / "dev" / "task2" / file
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    path = path.with_name(file + ".gz")
    path.write_bytes(packed[: len(packed) // 2])
    report = validate(sample)
    assert report.fault_count >= 1
    [line] = [line for line in report.faults if "cannot be read" in line]
    number = int(line.removeprefix(f"{path}:").split(":")[0])
    assert 1 < number <= 24
    # What came before the cut was read.
    [task2] = [track for track in report.tracks if track.track == "task2"]
    assert 0 < task2.rows < 24


@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.parametrize("file", [INPUT, REFERENCE])
def test_an_empty_file_is_a_fault_and_no_track_of_nothing(
    small: Path, name: str, file: str
) -> None:
    path = small / "dev" / name / file
    path.write_bytes(b"\n")
    assert_fault(small, f"{path}: ", "empty")


@pytest.mark.parametrize("name", ["task1", "task3/d100", "task4_ability5"])
def test_references_without_inputs_are_a_fault(small: Path, name: str) -> None:
    # A download that stopped: the track must not drop out of a report that ends with exit code 0.
    (small / "dev" / name / INPUT).unlink()
    assert_fault(small, f"{small / 'dev' / name / REFERENCE}: ", "no model_input.jsonl")
    assert command(small).exit_code == 2


def test_folders_that_are_no_tracks_are_named_and_no_fault(small: Path) -> None:
    (small / "dev" / "notes").mkdir()
    (small / "dev" / "task3" / "dX").mkdir()
    result = command(small, code=0)
    assert "dev/notes" in result.stdout
    assert "dev/task3/dX" in result.stdout
    assert sorted(as_json(small)["no_tracks"]) == ["dev/notes", "dev/task3/dX"]


def test_a_split_without_references_is_clean_and_says_so(small: Path) -> None:
    for path in small.rglob(REFERENCE):
        path.unlink()
    report = as_json(small)
    assert report["fault_count"] == 0
    assert set(per_track(report, "rows").values()) == {3}
    assert set(per_track(report, "with_gold").values()) == {0}
    assert "dev/task1: 3 rows, 0 with gold, 0 faults" in command(small).stdout


def test_more_faults_than_are_shown_are_counted(tmp_path: Path) -> None:
    place = write_track(tmp_path / "dev", "task1", rows=SHOWN + 50)
    rows = read_lines(place / INPUT)
    for row in rows:
        del row["session_id"]
    write_lines(place / INPUT, rows)
    report = as_json(tmp_path)
    assert report["fault_count"] == SHOWN + 50
    assert len(report["faults"]) == SHOWN
    lines = command(tmp_path).stdout.splitlines()
    assert "... and 50 faults more" in lines
    assert lines[-1] == f"1 tracks, 0 rows, {SHOWN + 50} faults"


def test_a_fault_is_one_line_whatever_its_id_holds(small: Path) -> None:
    for number in (2, 3):
        edit(small / "dev" / "task1" / INPUT, number, lambda row: row.update(benchmark_id="a\n\rb"))
    lines = command(small).stdout.splitlines()
    [line] = [line for line in lines if "appears twice" in line]
    assert line.startswith("fault: ")
    assert "`a b`" in line


# Two splits


def test_an_id_in_two_splits_is_a_fault_at_the_second(small: Path) -> None:
    place = write_track(small / "test", "task1")
    for file in (INPUT, REFERENCE):
        for number in (1, 3):
            edit(place / file, number, lambda row, n=number: row.update(benchmark_id=f"other{n}"))
    assert_fault(small, f"{place / INPUT}:2: ", "`q1-`", "split `dev`")


def test_every_id_of_a_copied_split_is_reported(sample: Path) -> None:
    shutil.copytree(sample / "dev", sample / "validation")
    report = as_json(sample)
    once = per_track(as_json(sample_root()), "rows")
    found = per_track(report, "faults")
    assert report["fault_count"] == sum(once.values())
    assert {name: count for name, count in found.items() if name.startswith("validation/")} == {
        name.replace("dev/", "validation/"): count for name, count in once.items()
    }


def test_an_id_in_several_tracks_or_sizes_of_a_split_is_no_fault(small: Path) -> None:
    # All the small files share their ids.
    write_track(small / "dev", "task3/d7")
    assert validate(small).fault_count == 0


# What PATH may be


def test_path_may_be_a_release_its_benchmark_data_or_a_split(small: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    (clone / ".git" / "objects").mkdir(parents=True)
    (clone / "recorded" / "dev" / "task1").mkdir(parents=True)
    shutil.copytree(small, clone / "benchmark_data")
    reports = [
        as_json(path) for path in (clone, clone / "benchmark_data", clone / "benchmark_data/dev")
    ]
    assert reports[0] == reports[1] == reports[2]
    assert per_track(reports[0], "rows") == {
        f"dev/{name}": 3 for name in NAMES if (small / "dev" / name).is_dir()
    }
    assert reports[0]["no_tracks"] == []


def test_path_may_be_the_working_folder(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small / "dev")
    assert per_track(as_json("."), "rows")["dev/task1"] == 3


def test_several_splits_are_reported_apart(tmp_path: Path) -> None:
    for number, split in enumerate(("dev", "test", "validation")):
        pair = small_row("task2", number)
        for file, row in zip((INPUT, REFERENCE), pair, strict=True):
            write_lines(tmp_path / split / "task2" / file, [row])
    (tmp_path / "test" / "task2" / REFERENCE).unlink()
    report = as_json(tmp_path)
    found = per_track(report, "with_gold")
    assert found == {"dev/task2": 1, "test/task2": 0, "validation/task2": 1}


@pytest.mark.parametrize("what", ["nowhere", "empty", "track", "unrelated"])
def test_a_path_with_nothing_to_validate_is_one_line_and_exit_code_2(
    small: Path, tmp_path: Path, what: str
) -> None:
    path = {
        "nowhere": tmp_path / "nowhere",
        "empty": tmp_path / "empty",
        "track": small / "dev" / "task1",
        "unrelated": tmp_path / "unrelated",
    }[what]
    (tmp_path / "empty").mkdir()
    (tmp_path / "unrelated" / "a" / "b").mkdir(parents=True)
    for more in ((), ("--json",)):
        result = command(path, *more)
        one_line_error(result, after_notes=True)
        [line] = result.stderr.splitlines()
        assert line.startswith(f"error: {path}: ")


def test_a_folder_that_may_not_be_read_is_one_line(small: Path) -> None:
    (small / "dev").chmod(0)
    try:
        if os.access(small / "dev", os.R_OK):
            pytest.skip("this user may read everything")
        result = command(small)
    finally:
        (small / "dev").chmod(0o755)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


# Text that was repaired, and text that is unusual


def test_repaired_and_unusual_text_is_counted_with_places(tmp_path: Path) -> None:
    place = write_track(tmp_path / "dev", "task2", rows=8)
    lines = (place / INPUT).read_bytes().rstrip(b"\n").split(b"\n")
    lines[0] = b"\xef\xbb\xbf" + lines[0]
    lines[1] = lines[1].replace(b"old asked", b"old \\u0000 asked")
    lines[1] = lines[1].replace(b"new told", b"new \\u0000\\ud83d told")
    lines[2] = lines[2].replace(b"old told", b"old\xe2\x80\xa8told")
    lines[3] = lines[3].replace(b"old told", b"old " + b"x" * 1_000_001) + b"\r"
    lines.insert(5, b"  ")
    (place / INPUT).write_bytes(b"\n".join(lines) + b"\n")
    reference = (place / REFERENCE).read_bytes()
    (place / REFERENCE).write_bytes(reference.replace(b"keeps", b"\\udc4d", 1))

    report = as_json(tmp_path)
    assert report["fault_count"] == 0
    [track] = report["tracks"]
    assert track["rows"] == track["with_gold"] == 8
    repaired = {"NUL": 2, "blank line": 1, "byte order mark": 1, "lone surrogate": 2}
    assert track["repaired"] == repaired
    other_ends = "U+0085, U+2028 or U+2029 inside a string"
    assert track["unusual"] == {"CRLF line end": 1, other_ends: 1, "line over 1,000,000 bytes": 1}
    # The reference of row 1 is read beside its input, so before the second line of the input.
    assert track["places"] == {
        "NUL": [f"{INPUT}:2"],
        "blank line": [f"{INPUT}:6"],
        "byte order mark": [f"{INPUT}:1"],
        "lone surrogate": [f"{REFERENCE}:1", f"{INPUT}:2"],
        "CRLF line end": [f"{INPUT}:4"],
        other_ends: [f"{INPUT}:3"],
        "line over 1,000,000 bytes": [f"{INPUT}:4"],
    }
    result = command(tmp_path, code=0)
    lines_shown = result.stdout.splitlines()
    assert f"  repaired: NUL x 2 (first at {INPUT}:2)" in lines_shown
    assert f"  repaired: lone surrogate x 2 (first at {REFERENCE}:1, {INPUT}:2)" in lines_shown
    assert f"  kept as it is: {other_ends} x 1 (first at {INPUT}:3)" in lines_shown


def test_all_are_counted_and_the_first_five_places_are_kept(tmp_path: Path) -> None:
    place = write_track(tmp_path / "dev", "task1", rows=9)
    (place / REFERENCE).unlink()
    raw = (place / INPUT).read_bytes().replace(b"first asked", b"first \\u0000")
    raw = raw.replace(b"second told", b"second \\u0000\\u0000")
    (place / INPUT).write_bytes(raw.replace(b"\n", b"\r\n"))
    [track] = as_json(tmp_path)["tracks"]
    assert track["repaired"] == {"NUL": 27}
    assert track["unusual"] == {"CRLF line end": 9}
    # A line with three of a kind is one place.
    for kind in ("NUL", "CRLF line end"):
        assert track["places"][kind] == [f"{INPUT}:{n}" for n in range(1, 6)]


def test_repairs_keep_counts_places_and_what_is_only_seen_apart() -> None:
    repairs = Repairs()
    path = Path("some") / INPUT
    repairs.look(b"{}\r\n", path, 1)
    repairs.look(b"{}\n", path, 2)
    repairs.look("{\u0085}\r\n".encode(), path, 3)
    repairs.look(b"x" * Repairs.LONG, path, 4)
    repairs.look(b"x" * (Repairs.LONG + 1), path, 5)
    repairs.at("elsewhere", path, 9)
    assert dict(repairs) == {}
    assert [repairs.seen[kind] for kind in sorted(repairs.seen)] == [2, 1, 1]
    assert repairs.places["CRLF line end"] == [f"{INPUT}:1", f"{INPUT}:3"]
    assert repairs.places["line over 1,000,000 bytes"] == [f"{INPUT}:5"]
    # A place is remembered without being counted.
    assert repairs.places["elsewhere"] == [f"{INPUT}:9"]
    assert repairs["elsewhere"] == 0


# What is printed where


def test_the_report_is_on_stdout_and_stderr_is_empty(small: Path) -> None:
    result = shell(small)
    assert result.stderr == ""
    assert result.stdout.splitlines()[-1] == "8 tracks, 24 rows, 0 faults"


def test_names_of_fields_may_hold_what_cannot_be_encoded(small: Path) -> None:
    # Names are reported as they are found, and a lone surrogate can't be printed.
    path = small / "dev" / "task1" / INPUT
    path.write_text(path.read_text("utf-8").replace('"input"', '"\\ud83d": 1, "input"', 1), "utf-8")
    for more in ((), ("--json",)):
        result = shell(small, *more)
        assert result.stderr == ""
    assert json.loads(result.stdout)["tracks"][0]["fields"]["\ud83d"] == 1


def test_a_terminal_that_cannot_show_an_id_gets_its_escape(small: Path) -> None:
    for number in (2, 3):
        edit(
            small / "dev" / "task1" / INPUT,
            number,
            lambda row: row.update(benchmark_id="thé 喝茶 \U0001f375"),
        )
    result = shell(small, code=2, PYTHONIOENCODING="ascii")
    assert result.stderr == ""
    assert "`th\\xe9 \\u559d\\u8336 \\U0001f375` appears twice" in result.stdout
    packed = shell(small, "--json", code=2, PYTHONIOENCODING="ascii")
    assert any("`thé 喝茶 \U0001f375`" in line for line in json.loads(packed.stdout)["faults"])


def test_a_reader_that_stops_reading_gets_no_traceback(sample: Path) -> None:
    plant_all(sample)
    process = subprocess.Popen(
        [sys.executable, "-m", "recallbed.corpus.validate", str(sample)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    shown = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=300)
    assert b"Traceback" not in shown


def test_validate_raises_only_where_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no split with a track"):
        validate(tmp_path)
    write_track(tmp_path / "dev", "task1")
    (tmp_path / "dev" / "task1" / INPUT).write_bytes(b"\xff\xfe")
    assert validate(tmp_path).fault_count > 0


# Size


MEASURE = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "recallbed.corpus.validate", sys.argv[1], "--json"],
                      stdout=subprocess.PIPE)
sys.stdout.buffer.write(done.stdout)
print("\\n---\\n", done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.large
def test_100_000_rows_of_task_1_stream_through_in_under_500_mb(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    rows = 100_000
    given, reference = (json.dumps(line) for line in small_row("task1", 7))
    place = tmp_path / "dev" / "task1"
    place.mkdir(parents=True)
    for file, line in ((INPUT, given), (REFERENCE, reference)):
        before, after = line.split("q7-", 1)
        with (place / file).open("w", encoding="utf-8") as stream:
            stream.writelines(f"{before}q{number}-{after}\n" for number in range(rows))
    # A process between: after a fork the peak of the parent, here all of pytest, counts as well.
    done = python("-c", MEASURE, tmp_path, cwd=ROOT)
    output, _, figures = done.stdout.rpartition("\n---\n")
    code, peak = map(int, figures.split())
    peak_bytes = peak if sys.platform == "darwin" else peak * 1024
    assert code == 0
    [track] = json.loads(output)["tracks"]
    assert (track["rows"], track["with_gold"], track["faults"]) == (rows, rows, 0)
    assert 5e6 < peak_bytes < 500e6
    # Rows as small as these would take 250 MB if all were held; streamed they take 70 MB.
    assert peak_bytes < 180e6
    for file in (INPUT, REFERENCE):
        (place / file).unlink()
