"""Loading the released layout: what is taken, what is left, and every fault by file and line."""

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import fields
from functools import reduce
from operator import getitem, setitem
from pathlib import Path
from typing import Any

import pytest

from recallbed.corpus import DataError, Memory
from recallbed.corpus.dataset import load_dataset
from recallbed.corpus.layout import released_sizes, split_folder
from recallbed.corpus.records import Task3Row
from recallbed.corpus.tracks import load_task3
from task3.sweep import app
from tests.kit import LFS, WriteRelease, one_line_error, run, write_lines
from tests.kit import edit_line as edit

ROWS = [
    ("which drink in the evening", ["sips mint tea", "mends clocks", "keeps two hens"], 0),
    ("what to fix next", ["rows at dawn", "mends clocks", "bakes rye bread"], 1),
    ("who needs feeding", ["plays the oboe", "collects stamps", "keeps two hens"], 2),
]
INPUT, REFERENCE = "model_input.jsonl", "reference_output.jsonl"


@pytest.fixture
def root(write_release: WriteRelease) -> Path:
    return write_release(ROWS, own={"q0": ["owns a kettle"]})


def place(root: Path, name: str) -> Path:
    return root / "dev" / "task3" / "d2" / name


def fault(root: Path, sizes: tuple[int, ...] = ()) -> DataError:
    with pytest.raises(DataError) as caught:
        load_dataset(root, "dev", sizes)
    return caught.value


def assert_at(error: DataError, path: Path, line: int | None, *words: str) -> None:
    """The fault names its file and line, first thing in its message, and says `words`."""
    assert (error.path, error.line) == (path, line)
    assert str(error).startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert "\n" not in str(error)
    for word in words:
        assert word in str(error)


# What is taken and what is left behind


def test_rows_hold_the_whitelisted_fields_and_no_others(root: Path) -> None:
    assert load_dataset(root, "dev").smallest.rows[1] == Task3Row(
        benchmark_id="q1",
        session_id="q1",
        query="what to fix next",
        candidates=tuple(
            Memory(text, "Preferences/Food")
            for text in ("rows at dawn", "mends clocks", "bakes rye bread")
        ),
        memory_ids=("m0", "m1", "m2"),
        gold=1,
        line=2,
    )


def test_nothing_but_the_whitelist_changes_what_is_loaded(root: Path) -> None:
    plain = load_dataset(root, "dev")
    inner = {"metadata": {"gold": "zz-leak"}, "dialogue": [{"text": "zz-leak"}]}

    def add(row: dict[str, Any]) -> None:
        row |= {"stratum": "zz-leak", "audit_context": {"gold": "zz-leak"}, "extra": ["zz-leak"]}
        row["input"] |= {**inner, "selected_memory": "zz-leak"}
        for candidate in row["input"]["candidate_memories"]:
            candidate |= {"gold": "zz-leak", "evidence": {"text": "zz-leak"}, "score": 1}

    for line in (1, 2, 3):
        edit(place(root, INPUT), line, add)
    loaded = load_dataset(root, "dev")
    assert "zz-leak" not in repr(loaded)
    assert loaded.smallest.rows == plain.smallest.rows
    assert loaded.bank == plain.bank


def test_a_memory_is_a_text_and_a_label() -> None:
    assert [f.name for f in fields(Memory)] == ["text", "label"]
    with pytest.raises(AttributeError):
        Memory("x").memory_id  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises((AttributeError, TypeError)):
        Memory("x").text = "y"  # type: ignore[misc]


@pytest.mark.parametrize("label", [None, "absent"])
def test_a_label_may_be_null_or_missing(root: Path, label: str | None) -> None:
    def unlabel(row: dict[str, Any]) -> None:
        candidate = row["input"]["candidate_memories"][0]
        candidate["label"] = None
        if label == "absent":
            del candidate["label"]

    edit(place(root, INPUT), 1, unlabel)
    assert load_dataset(root, "dev").smallest.rows[0].candidates[0] == Memory("sips mint tea")


def test_references_may_come_in_another_order(root: Path) -> None:
    path = place(root, REFERENCE)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(reversed(lines)), encoding="utf-8")
    rows = load_dataset(root, "dev").smallest.rows
    assert [(row.benchmark_id, row.gold) for row in rows] == [("q0", 0), ("q1", 1), ("q2", 2)]


def test_gold_is_placed_by_text_never_by_stored_id(write_release: WriteRelease) -> None:
    # All ids are equal, so only the text can say which one is meant.
    data = load_dataset(write_release(ROWS, ids=["m1", "m1", "m1"]), "dev")
    assert [row.gold for row in data.smallest.rows] == [0, 1, 2]
    assert data.smallest.repeated_ids == 3


def test_own_memories_come_from_task1_by_session(root: Path) -> None:
    data = load_dataset(root, "dev")
    assert data.own == {"q0": frozenset({"owns a kettle"})}
    assert data.own_known


def test_a_split_without_task1_has_no_own_memories_and_says_so(write_release: WriteRelease) -> None:
    data = load_dataset(write_release(ROWS), "dev")
    assert data.own == {}
    assert not data.own_known


def test_the_bank_holds_each_candidate_text_once_sorted(root: Path) -> None:
    texts = [memory.text for memory in load_dataset(root, "dev").bank]
    assert texts == sorted({text for _, pool, _ in ROWS for text in pool})


def test_a_clone_of_the_release_may_be_named_by_its_top_folder(root: Path) -> None:
    clone = root.parent / "clone"
    (clone / "benchmark_data").mkdir(parents=True)
    (root / "dev").rename(clone / "benchmark_data" / "dev")
    assert len(load_dataset(clone, "dev").smallest.rows) == 3


# Compressed files


def test_gz_is_read_like_the_plain_file(root: Path) -> None:
    plain = load_dataset(root, "dev")
    for name in (INPUT, REFERENCE):
        path = place(root, name)
        path.with_name(name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed = load_dataset(root, "dev")
    assert packed.smallest.path.name == INPUT + ".gz"
    assert packed.smallest.rows == plain.smallest.rows
    # The hash covers the data, not how it is packed.
    assert packed.sha256 == plain.sha256


def packed(root: Path, raw: bytes) -> Path:
    place(root, INPUT).unlink()
    path = place(root, INPUT + ".gz")
    path.write_bytes(raw)
    return path


def test_truncated_gz_is_a_fault_at_the_line_where_it_ends(root: Path) -> None:
    # Enough rows of noise that whole lines come out before the cut.
    rng = random.Random(7)
    lines = ""
    for i in range(200):
        query, text = (f"{rng.getrandbits(4000):x}" for _ in range(2))
        pool = [{"memory_id": "m1", "value": text, "label": None}]
        body = {"query": query, "candidate_memories": pool}
        lines += json.dumps({"benchmark_id": f"noise{i}", "input": body}) + "\n"
    raw = gzip.compress(lines.encode())
    path = packed(root, raw[: len(raw) // 2])
    error = fault(root)
    assert error.path == path
    assert error.line is not None
    assert 1 < error.line < 200
    assert "end-of-stream" in str(error)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda raw: raw[:-6], id="trailer cut"),
        pytest.param(lambda raw: raw[:5], id="header cut"),
        pytest.param(lambda raw: raw[:14] + b"\xff\xff\xff" + raw[17:], id="bytes changed"),
        pytest.param(lambda raw: raw[:-8] + b"\0\0\0\0" + raw[-4:], id="checksum wrong"),
        pytest.param(lambda raw: b"plain text", id="not gzip"),
    ],
)
def test_damaged_gz_is_a_fault_naming_the_file(
    root: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = packed(root, damage(gzip.compress(place(root, INPUT).read_bytes())))
    assert fault(root).path == path


# Faults of a whole file


def test_a_faulty_file_of_task1_is_named_too(root: Path) -> None:
    path = root / "dev" / "task1" / REFERENCE
    edit(path, 1, drop("gold", "memory_items", 0, "value"))
    assert_at(fault(root), path, 1, "`gold.memory_items[0].value` is missing")
    path.write_text(LFS, encoding="utf-8")
    assert_at(fault(root), path, 1, "Git LFS pointer")


def test_an_empty_gz_file_is_empty(root: Path) -> None:
    path = packed(root, gzip.compress(b""))
    assert_at(fault(root), path, None, "empty")


def test_a_split_without_references_cannot_be_scored(root: Path) -> None:
    place(root, REFERENCE).unlink()
    assert load_task3(root / "dev", 2).rows[0].gold is None
    assert "reference_output.jsonl" in str(fault(root))


# Faults of a line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"benchmark_id": "q1", ', "not valid JSON at column"),
        ('{"benchmark_id": "q1"} {}', "not valid JSON at column"),
        ("nonsense", "not valid JSON at column"),
        ('{"benchmark_id": NaN}', "NaN"),
        ('{"benchmark_id": ' + "9" * 5000 + "}", "not valid JSON"),
        ("[" * 200_000, "nested"),
        ('["q1"]', "object, not list"),
        ("null", "object, not NoneType"),
    ],
    ids=["cut", "two objects", "no JSON", "NaN", "huge number", "deep", "a list", "null"],
)
@pytest.mark.parametrize("name", [INPUT, REFERENCE])
def test_a_malformed_line_is_named(root: Path, name: str, line: str, words: str) -> None:
    lines = place(root, name).read_text(encoding="utf-8").splitlines()
    lines[1] = line
    place(root, name).write_text("\n".join(lines), encoding="utf-8")
    assert_at(fault(root), place(root, name), 2, words)


@pytest.mark.parametrize(
    "raw",
    ["thé".encode("latin-1"), b"\xed\xa0\xbd", "tea".encode("utf-16")],
    ids=["latin-1", "surrogate as bytes", "utf-16"],
)
def test_a_line_that_is_not_utf8_is_named(root: Path, raw: bytes) -> None:
    path = place(root, INPUT)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"plays", raw)
    path.write_bytes(b"\n".join(lines))
    assert_at(fault(root), path, 3, "not UTF-8 at byte")


def drop(*path: str | int) -> Callable[[Any], Any]:
    return lambda row: reduce(getitem, path[:-1], row).pop(path[-1])


def put(value: Any, *path: str | int) -> Callable[[Any], None]:
    return lambda row: setitem(reduce(getitem, path[:-1], row), path[-1], value)


CANDIDATE = ("input", "candidate_memories", 1)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (INPUT, drop("benchmark_id"), ("`benchmark_id` is missing",)),
        (INPUT, drop("input"), ("`input` is missing",)),
        (INPUT, drop("input", "query"), ("`input.query` is missing",)),
        (INPUT, drop("input", "candidate_memories"), ("`input.candidate_memories` is missing",)),
        (INPUT, drop(*CANDIDATE, "value"), ("`input.candidate_memories[1].value` is missing",)),
        (
            INPUT,
            drop(*CANDIDATE, "memory_id"),
            ("`input.candidate_memories[1].memory_id` is missing",),
        ),
        (INPUT, put(7, "benchmark_id"), ("`benchmark_id` must be a string", "int")),
        (INPUT, put(None, "input", "query"), ("`input.query` must be a string", "NoneType")),
        (INPUT, put([], "input"), ("`input` must be an object", "list")),
        (INPUT, put({}, "input", "candidate_memories"), ("must be a list", "dict")),
        (INPUT, put("tea", *CANDIDATE), ("candidate_memories[1]` must be an object", "str")),
        (INPUT, put(3.5, *CANDIDATE, "value"), ("[1].value` must be a string", "float")),
        (INPUT, put(["x"], *CANDIDATE, "label"), ("[1].label` must be a string", "list")),
        (INPUT, put([], "input", "candidate_memories"), ("pool of `q1` is empty",)),
        (REFERENCE, drop("benchmark_id"), ("`benchmark_id` is missing",)),
        (REFERENCE, drop("gold"), ("`gold` is missing",)),
        (REFERENCE, drop("gold", "selected_memory"), ("`gold.selected_memory` is missing",)),
        (
            REFERENCE,
            drop("gold", "selected_memory", "value"),
            ("`gold.selected_memory.value` is missing",),
        ),
        (REFERENCE, put(None, "gold", "selected_memory"), ("must be an object", "NoneType")),
        (REFERENCE, put("sails", "gold", "selected_memory", "value"), ("`q1`", "missing from")),
        (REFERENCE, put("q9", "benchmark_id"), ("`q9` has no row in model_input.jsonl",)),
    ],
)
def test_a_faulty_row_is_named_by_file_and_line(
    root: Path, name: str, change: Callable[[Any], None], words: tuple[str, ...]
) -> None:
    edit(place(root, name), 2, change)
    assert_at(fault(root), place(root, name), 2, *words)


def test_a_query_without_reference_is_named_at_its_own_line(root: Path) -> None:
    path = place(root, REFERENCE)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:2]), encoding="utf-8")
    assert_at(fault(root), place(root, INPUT), 3, "`q2` has no row in reference_output.jsonl")


def test_gold_twice_in_its_pool_is_named_at_the_reference(root: Path) -> None:
    edit(place(root, INPUT), 2, put("mends clocks", "input", "candidate_memories", 2, "value"))
    assert_at(fault(root), place(root, REFERENCE), 2, "`q1`", "2 times")


def test_lines_are_counted_as_an_editor_counts_them(root: Path) -> None:
    # Blank lines count; U+2028 within a string doesn't.
    path = place(root, INPUT)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[0] = lines[0].replace("mends", "mends\u2028")
    path.write_text("\n\n".join([*lines, "{"]), encoding="utf-8")
    assert_at(fault(root), path, 7, "not valid JSON")


# Faults between files


def test_a_size_that_is_not_released_lists_those_that_are(root: Path) -> None:
    error = fault(root, (2, 300))
    assert "no released pool of 300" in str(error)
    assert "there are: 2" in str(error)


def test_a_released_pool_smaller_than_its_folder_says_is_named(write_release: WriteRelease) -> None:
    root = write_release([ROWS[0], (ROWS[1][0], ROWS[1][1][:2], 1)])
    assert_at(fault(root, (2,)), place(root, INPUT), 2, "`q1`", "1 distractors", "2")
    # Nested pools fill up from the bank, so there it does no harm.
    assert len(load_dataset(root, "dev").smallest.rows) == 2


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (INPUT, put("other words", "input", "query")),
        (REFERENCE, put("rows at dawn", "gold", "selected_memory", "value")),
    ],
)
def test_a_larger_released_file_must_ask_the_same(
    root: Path, name: str, change: Callable[[Any], None]
) -> None:
    larger = root / "dev" / "task3" / "d3"
    for file in (INPUT, REFERENCE):
        rows = [json.loads(text) for text in place(root, file).read_text("utf-8").splitlines()]
        if file == INPUT:
            for row in rows:
                extra = {"memory_id": "m7", "value": "owns a sledge", "label": None}
                row["input"]["candidate_memories"].append(extra)
        write_lines(larger / file, rows)
    assert sorted(load_dataset(root, "dev", (2, 3)).released) == [2, 3]
    edit(larger / name, 2, change)
    assert_at(fault(root, (3,)), larger / INPUT, 2, "`q1` has another query or gold")


@pytest.mark.parametrize(
    ("small", "large", "line", "words"),
    [(3, 2, None, "`q2` of d2 has no row in d3"), (2, 3, 3, "`q2` is not among the queries of d2")],
)
def test_a_query_that_only_one_size_has_is_named(
    write_release: WriteRelease, small: int, large: int, line: int | None, words: str
) -> None:
    write_release(ROWS[:small])
    larger = [(query, [*pool, "owns a sledge"], gold) for query, pool, gold in ROWS[:large]]
    root = write_release(larger)
    assert_at(fault(root, (3,)), root / "dev" / "task3" / "d3" / INPUT, line, words)


# Folders


def test_sizes_are_found_by_folder_name_ascending(write_release: WriteRelease) -> None:
    for size in (1000, 100, 300):
        root = write_release(ROWS, size=size)
    for other in ("d0", "dx", "d5"):  # d5 holds no file
        (root / "dev" / "task3" / other).mkdir()
    assert released_sizes(root / "dev") == (100, 300, 1000)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder") as caught:
        split_folder(tmp_path / "missing from", "dev")
    assert caught.value.path == tmp_path / "missing from"


def test_a_split_that_is_not_there_lists_those_that_are(root: Path) -> None:
    with pytest.raises(DataError, match=r"no split `test` here \(found: dev\)"):
        split_folder(root, "test")


def test_a_split_without_pools_says_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    with pytest.raises(DataError, match=r"task3/d<N>/model_input\.jsonl"):
        load_dataset(tmp_path, "dev")


# What the user sees


def test_the_command_prints_one_line_and_leaves_no_run(root: Path, tmp_path: Path) -> None:
    edit(place(root, INPUT), 2, drop("input", "query"))
    out = tmp_path / "run"
    result = run(app, "--retriever", "overlap", "--data", root, "--distractors", "2", "--out", out)
    message = f"error: {place(root, INPUT)}:2: field `input.query` is missing"
    assert one_line_error(result) == message
    assert not out.exists()
