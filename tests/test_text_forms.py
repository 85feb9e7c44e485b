"""What editors and other systems do to a file, over all tracks, loader and validator."""

import gzip
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recallbed.corpus import DataError
from recallbed.corpus.jsonl import read_jsonl
from recallbed.corpus.tracks import NAMES
from recallbed.corpus.validate import TrackReport, validate
from tests.kit import write_lines
from tests.test_tracks import INPUT, REFERENCE, read, small_row, write_track

BOM = b"\xef\xbb\xbf"
# The sizes of task 3 differ in nothing that is tested here, so few examples go through the large.
SMALL_NAMES = ("task1", "task2", "task3/d2", *(name for name in NAMES if "task4" in name))
ENDS = {"0085": "\u0085", "2028": "\u2028", "2029": "\u2029"}


def texts(value: Any) -> Iterator[str]:
    """Every text in a typed row."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts(inner)


def report_of(split: Path) -> TrackReport:
    """The validator's report on the only track of a split, without faults."""
    report = validate(split)
    assert report.faults == []
    [found] = report.tracks
    return found


def without_lines(rows: list[Any]) -> list[Any]:
    return [replace(row, line=0) for row in rows]


def rewrite(place: Path, change: Callable[[bytes], bytes], packed: bool = False) -> None:
    """Change the bytes of both files of a track, and pack them if asked."""
    for file in (INPUT, REFERENCE):
        raw = change((place / file).read_bytes())
        if packed:
            (place / file).unlink()
            (place / f"{file}.gz").write_bytes(gzip.compress(raw))
        else:
            (place / file).write_bytes(raw)


# Byte order mark, CRLF, blank lines, no last line feed


def windows(raw: bytes) -> bytes:
    """A file of three rows as the row describes it."""
    first, *rest = raw.rstrip(b"\n").split(b"\n")
    return BOM + b"\r\n".join([first, b"", *rest])


FORMS: dict[str, tuple[Callable[[bytes], bytes], dict[str, int], dict[str, int]]] = {
    # How the bytes are changed, what is repaired in one file, what is seen in one file.
    "all": (windows, {"byte order mark": 1, "blank line": 1}, {"CRLF line end": 2}),
    "byte order mark": (lambda raw: BOM + raw, {"byte order mark": 1}, {}),
    "CRLF": (lambda raw: raw.replace(b"\n", b"\r\n"), {}, {"CRLF line end": 3}),
    "no last line feed": (lambda raw: raw.rstrip(b"\n"), {}, {}),
    "blank first": (lambda raw: b"\n" + raw, {"blank line": 1}, {}),
    "blank last": (lambda raw: raw + b"\n\r\n", {"blank line": 2}, {}),
    "blank between": (lambda raw: raw.replace(b"\n", b"\n \t \n"), {"blank line": 3}, {}),
    "mark, then blank": (
        lambda raw: BOM + b"\r\n" + raw,
        {"byte order mark": 1, "blank line": 1},
        {},
    ),
    "spaces around": (lambda raw: raw.replace(b"\n", b"  \t\n  "), {"blank line": 1}, {}),
}


@pytest.mark.parametrize("packed", [False, True], ids=["jsonl", "jsonl.gz"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_the_same_rows_as_from_the_plain_file(
    tmp_path: Path, name: str, form: str, packed: bool
) -> None:
    change, repaired, seen = FORMS[form]
    place = write_track(tmp_path, name)
    plain = read(tmp_path, name)
    rewrite(place, change, packed)
    rows = read(tmp_path, name)
    assert len(rows) == 3
    assert without_lines(rows) == without_lines(plain)

    # Both files were changed in the same way, and all changes are counted.
    found = report_of(tmp_path)
    assert (found.rows, found.with_gold) == (3, 3)
    assert found.repaired == {kind: 2 * count for kind, count in repaired.items()}
    assert found.unusual == {kind: 2 * count for kind, count in seen.items()}


@pytest.mark.parametrize("name", NAMES)
def test_lines_keep_the_numbers_that_an_editor_shows(tmp_path: Path, name: str) -> None:
    rewrite(write_track(tmp_path, name), windows)
    assert [row.line for row in read(tmp_path, name)] == [1, 3, 4]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", [INPUT, REFERENCE])
def test_a_mark_further_down_is_a_fault_and_hides_no_row(
    tmp_path: Path, name: str, file: str
) -> None:
    # Files joined end to end: the mark of the second is in the middle.
    path = write_track(tmp_path, name) / file
    first, second, rest = path.read_bytes().split(b"\n", 2)
    path.write_bytes(first + b"\n" + BOM + second + b"\n" + rest)
    with pytest.raises(DataError, match=rf"{file}:2: not valid JSON"):
        read(tmp_path, name)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "gb18030"])
@pytest.mark.parametrize("name", SMALL_NAMES)
def test_another_encoding_is_a_named_fault(tmp_path: Path, name: str, encoding: str) -> None:
    path = write_track(tmp_path, name) / INPUT
    given = json.loads(path.read_text("utf-8").split("\n")[0])
    given["session_id"] = "th\u00e9"
    text = json.dumps(given, ensure_ascii=False) + "\n"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(DataError, match=rf"{INPUT}:1: (not UTF-8 at byte|not valid JSON)"):
        read(tmp_path, name)


# Only a line feed ends a record


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_not_cut_and_its_text_comes_back_unchanged(
    tmp_path: Path, name: str, end: str
) -> None:
    # Of two records one holds the character, in every text that is read, as itself.
    pairs = [small_row(name, 0, mark=f"{end}!"), small_row(name, 1)]
    for file, rows in zip((INPUT, REFERENCE), zip(*pairs, strict=True), strict=True):
        raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / file).write_text(raw, encoding="utf-8", newline="\n")
        assert len(raw.splitlines()) > 2
    one, two = read(tmp_path, name)
    assert (one.line, two.line) == (1, 2)
    assert (one.benchmark_id, two.benchmark_id) == (f"q0-{end}!", "q1-")
    marked = [text for text in texts(asdict(one)) if end in text]
    assert len(marked) > 3
    assert all(text.endswith(f"{end}!") for text in texts(asdict(one)))
    assert not any(end in text for text in texts(asdict(two)))

    # An escape in the file means the same character.
    write_lines(tmp_path / "escaped" / name / INPUT, [given for given, _ in pairs])
    write_lines(tmp_path / "escaped" / name / REFERENCE, [other for _, other in pairs])
    assert read(tmp_path / "escaped", name) == [one, two]

    # A raw one is kept and counted a line, an escape harms no reader of lines.
    kind = "U+0085, U+2028 or U+2029 inside a string"
    assert report_of(tmp_path).unusual == {kind: 2}
    assert report_of(tmp_path / "escaped").unusual == {}


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1e"])
@pytest.mark.parametrize("name", NAMES)
def test_between_records_such_a_character_is_no_line_end(
    tmp_path: Path, name: str, end: str
) -> None:
    path = write_track(tmp_path, name) / INPUT
    first, second, third = path.read_text("utf-8").rstrip("\n").split("\n")
    path.write_text(f"{first}\n{second}{end}{third}\n", encoding="utf-8", newline="\n")
    with pytest.raises(DataError, match=rf"{INPUT}:2: not valid JSON at column"):
        read(tmp_path, name)


def test_carriage_returns_alone_are_a_fault_and_not_one_row_of_many(tmp_path: Path) -> None:
    path = write_track(tmp_path, "task1") / INPUT
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r"))
    with pytest.raises(DataError, match=rf"{INPUT}:1: not valid JSON"):
        read(tmp_path, "task1")


@pytest.mark.parametrize("name", SMALL_NAMES)
def test_a_line_of_many_megabytes_is_one_row_and_counted(tmp_path: Path, name: str) -> None:
    given, reference = small_row(name, 0)
    given["padding"] = "x" * 6_000_000
    write_lines(tmp_path / name / INPUT, [given])
    write_lines(tmp_path / name / REFERENCE, [reference])
    (row,) = read(tmp_path, name)
    assert row.benchmark_id == "q0-"
    found = report_of(tmp_path)
    assert found.unusual == {"line over 1,000,000 bytes": 1}
    assert found.places == {"line over 1,000,000 bytes": [f"{INPUT}:1"]}


# Lone surrogates and NUL


REPAIRED = {
    # The text in the file, what it becomes, and the counts.
    "high alone": (r"a \ud83d b", "a \ufffd b", {"lone surrogate": 1}),
    "low alone": (r"a \udc4d b", "a \ufffd b", {"lone surrogate": 1}),
    "at the end": (r"\udbff", "\ufffd", {"lone surrogate": 1}),
    "wrong order": (r"\udc4d\ud83d", "\ufffd\ufffd", {"lone surrogate": 2}),
    "high, then a pair": (r"\ud83d\ud83d\udc4d", "\ufffd\U0001f44d", {"lone surrogate": 1}),
    "NUL": (r"a\u0000b", "a\ufffdb", {"NUL": 1}),
    "both": (r"\u0000\ud800\u0000", "\ufffd\ufffd\ufffd", {"NUL": 2, "lone surrogate": 1}),
    "a pair": (r"\ud83d\udc4d", "\U0001f44d", {}),
    "other controls": (r"\u0001\u001f\u007f\u200b", "\x01\x1f\x7f\u200b", {}),
}


def write_escaped(split: Path, name: str, escaped: str, rows: int = 1) -> None:
    """Small rows whose every text that is read ends in `escaped`, as written in the file."""
    place = write_track(split, name, rows, mark="zzmark")
    rewrite(place, lambda raw: raw.replace(b"zzmark", escaped.encode()))


def repaired_texts(name: str, row: Any, repaired: str) -> int:
    """How many texts are read of a small row and its reference, ids and golds not kept included."""
    kept = sum(text.endswith(repaired) for text in texts(asdict(row)))
    # Not in the row: the id of the reference, and for task 3 the text of the gold.
    return kept + 1 + name.startswith("task3/")


@pytest.mark.parametrize("kind", REPAIRED)
@pytest.mark.parametrize("name", NAMES)
def test_unusable_characters_are_replaced_in_every_text_and_counted(
    tmp_path: Path, name: str, kind: str
) -> None:
    escaped, repaired, counts = REPAIRED[kind]
    write_escaped(tmp_path, name, escaped)
    (row,) = read(tmp_path, name)
    # The same row, typed from text that needed no repair.
    write_track(tmp_path / "plain", name, rows=1, mark=repaired)
    assert [row] == read(tmp_path / "plain", name)
    for text in texts(asdict(row)):
        assert text.endswith(repaired)
        text.encode()
        assert "\0" not in text

    found = report_of(tmp_path)
    number = repaired_texts(name, row, repaired)
    assert found.repaired == {what: number * count for what, count in counts.items()}
    assert found.unusual == {}
    for what in counts:
        # The two files are read side by side, so either place may be the first.
        assert sorted(found.places[what]) == [f"{INPUT}:1", f"{REFERENCE}:1"]


@pytest.mark.parametrize("name", SMALL_NAMES)
def test_inputs_and_references_get_the_same_repairs_and_still_match(
    tmp_path: Path, name: str
) -> None:
    # One file escapes the character, the other holds what it is repaired to.
    place = write_track(tmp_path, name, rows=2, mark="\ufffd")
    raw = (place / INPUT).read_bytes()
    assert rb"\ufffd" in raw
    (place / INPUT).write_bytes(raw.replace(rb"\ufffd", rb"\udead"))
    assert [row.gold is not None for row in read(tmp_path, name)] == [True, True]


@pytest.mark.parametrize("name", SMALL_NAMES)
def test_two_ids_that_are_repaired_to_one_appear_twice(tmp_path: Path, name: str) -> None:
    place = write_track(tmp_path, name, rows=2)
    for file in (INPUT, REFERENCE):
        raw = (place / file).read_bytes()
        (place / file).write_bytes(raw.replace(b"q0-", rb"q\u0000").replace(b"q1-", rb"q\ud800"))
    with pytest.raises(DataError, match=r":2: benchmark_id `q\ufffd` appears twice"):
        read(tmp_path, name)


@pytest.mark.parametrize("name", SMALL_NAMES)
@pytest.mark.parametrize(
    "raw", [b"\xed\xa0\xbd", b"\xc0\x80", b"\x00"], ids=["surrogate", "overlong NUL", "NUL"]
)
def test_raw_bytes_that_no_json_may_hold_are_a_fault(tmp_path: Path, name: str, raw: bytes) -> None:
    write_escaped(tmp_path, name, "zz")
    path = tmp_path / name / INPUT
    path.write_bytes(path.read_bytes().replace(b"zz", raw, 1))
    with pytest.raises(DataError, match=rf"{INPUT}:1: (not UTF-8 at byte|not valid JSON)"):
        read(tmp_path, name)


def test_what_is_left_behind_needs_no_repair(tmp_path: Path) -> None:
    place = write_track(tmp_path, "task1", rows=1)
    raw = (place / INPUT).read_bytes()
    (place / INPUT).write_bytes(raw.replace(b'"input"', rb'"stratum": "\ud83d\u0000", "input"', 1))
    assert report_of(tmp_path).repaired == {}


# All three at once


anything = st.text(st.characters(), max_size=12)
LONE = re.compile("[\0\ud800-\udfff]")


@settings(deadline=None, max_examples=150, derandomize=True, database=None)
@given(
    name=st.sampled_from(SMALL_NAMES),
    mark=anything,
    escape=st.booleans(),
    mark_first=st.booleans(),
    crlf=st.booleans(),
    blanks=st.integers(0, 2),
)
def test_any_text_in_any_form_of_file_is_read_and_can_be_encoded(
    name: str, mark: str, escape: bool, mark_first: bool, crlf: bool, blanks: int
) -> None:
    # Unescaped where it can be: a lone surrogate has no bytes in UTF-8.
    escape = escape or re.search("[\ud800-\udfff]", mark) is not None
    end = (b"\r\n" if crlf else b"\n") * (1 + blanks)
    with tempfile.TemporaryDirectory() as folder:
        split = Path(folder)
        (split / name).mkdir(parents=True)
        for file, row in zip((INPUT, REFERENCE), small_row(name, 0, mark), strict=True):
            line = json.dumps(row, ensure_ascii=escape).encode()
            (split / name / file).write_bytes((BOM if mark_first else b"") + line + end)
        (row,) = read(split, name)
        found = report_of(split)
    # Two surrogate escapes that make a pair are one character by the rules of JSON.
    whole = LONE.sub("\ufffd", json.loads(json.dumps(mark)))
    for text in texts(asdict(row)):
        assert text.endswith(whole)
        text.encode()
    assert found.repaired.get("byte order mark", 0) == 2 * mark_first
    assert found.repaired.get("blank line", 0) == 2 * blanks
    assert found.unusual.get("CRLF line end", 0) == 2 * crlf


def test_what_is_repaired_is_counted_without_places_too(tmp_path: Path) -> None:
    # A plain Counter, as the loader of task 3 passes it, gets the counts alone.
    write_escaped(tmp_path, "task3/d2", r"\u0000", rows=2)
    path = tmp_path / "task3" / "d2" / INPUT
    path.write_bytes(windows(path.read_bytes()))
    repairs: Counter[str] = Counter()
    assert [line for line, _ in read_jsonl(path, repairs)] == [1, 3]
    assert repairs == {"byte order mark": 1, "blank line": 1}
