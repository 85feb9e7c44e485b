"""Further fields of a user's own rows: kept, reported, exported. No retriever sees them: see
test_no_leak.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.breakdown import app as breakdown
from analysis.export import app as export
from recallbed.corpus import DataError
from recallbed.corpus.convert import app as convert
from recallbed.corpus.custom import load_custom
from recallbed.corpus.material import gather
from task3.sweep import app as sweep
from tests.kit import read_lines, rows_of, run, run_json, write_lines
from tests.test_longmemeval import fixture as instances
from tests.test_validate import as_json
from tests.test_validate import command as validate


def row(query: str, **more: Any) -> dict[str, Any]:
    return {"query": query, "memories": ["likes tea", "owns a cat", "runs"], "gold": 0, **more}


FIELDS: list[dict[str, Any]] = [
    {"category": "drinks", "turns": 3, "tags": ["a", {"b": None}], "public": True},
    {"category": "日本語", "turns": 2.5, "memory": "m1"},
    {"category": None},
]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    rows = [row(f"which tea {i}", **more) for i, more in enumerate(FIELDS)]
    return write_lines(tmp_path / "my.jsonl", rows)


def test_a_row_keeps_what_the_file_says(own: Path) -> None:
    file = load_custom(own).file
    assert [dict(row.fields) for row in file.rows] == FIELDS
    assert file.repairs == {}


def test_texts_and_keys_are_cleaned_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    write_lines(path, [row("q", **{"a\x00": {"b\ud83d": ["\x00", "\U0001f44d"]}})])
    file = load_custom(path).file
    assert dict(file.rows[0].fields) == {"a\ufffd": {"b\ufffd": ["\ufffd", "\U0001f44d"]}}
    assert file.repairs == {"NUL": 2, "lone surrogate": 1}


@pytest.mark.parametrize(
    ("value", "said"),
    [("1e999", "`price` is too large"), ("[" * 900 + "]" * 900, "nested too deeply")],
)
def test_a_value_that_cannot_be_kept_is_a_fault(tmp_path: Path, value: str, said: str) -> None:
    path = tmp_path / "my.jsonl"
    path.write_text(json.dumps(row("q")).replace("{", f'{{"price": {value}, ', 1))
    with pytest.raises(DataError, match=said) as error:
        load_custom(path)
    assert str(error.value).startswith(f"{path}:1: ")


def test_only_the_hash_of_the_data_knows_of_them(own: Path, tmp_path: Path) -> None:
    bare = write_lines(tmp_path / "bare" / "my.jsonl", [row(f"which tea {i}") for i in range(3)])
    one, other = gather(own), gather(bare)
    prints = one.fingerprint(), other.fingerprint()
    assert prints[0]["data"].pop("sha256") != prints[1]["data"].pop("sha256")
    assert prints[0] == prints[1]
    assert one.pools.memories == other.pools.memories
    assert one.facts() == other.facts()


def test_validate_counts_them_and_names_slips(tmp_path: Path) -> None:
    rows = [row("a", category="x", golds=[1], session_id="u"), row("b", category="y")]
    path = write_lines(tmp_path / "my.jsonl", rows)
    [track] = as_json(path)["tracks"]
    assert track["further"] == {"category": 2, "golds": 1, "session_id": 1}
    warnings = [
        f"field `{name}` is read as a further field: is `{known}` meant?"
        for name, known in (("golds", "gold"), ("session_id", "session"))
    ]
    assert track["warnings"] == warnings
    lines = validate(path, code=0).stdout.splitlines()
    assert lines[1:-1] == [
        *(f"  further field: {name} x {n}" for name, n in track["further"].items()),
        *(f"  warning: {line}" for line in warnings),
    ]


def test_exported_pools_keep_them(own: Path, tmp_path: Path) -> None:
    run(sweep, "--retriever", "overlap", "--data", own, "--k", 1, "--out", tmp_path / "run", code=0)
    words = ("--what", "pools", "--data", own, "--out", tmp_path / "out")
    run(export, tmp_path / "run", *words, code=0)
    [file] = (tmp_path / "out").glob("*.pools.jsonl")
    assert [dict(row.fields) for row in load_custom(file).file.rows] == FIELDS
    assert len(rows_of(tmp_path / "run")) == 3


def test_longmemeval_keeps_question_type_and_date(tmp_path: Path) -> None:
    given = instances()
    del given[1]["question_type"]
    given[3]["question_type"] = "multi-session"
    (tmp_path / "in.json").write_text(json.dumps(given))
    out = tmp_path / "out.jsonl"
    run(convert, "longmemeval", tmp_path / "in.json", "--level", "session", "--out", out, code=0)
    written = read_lines(out)
    assert written[0]["question_type"] == "single-session-user"
    assert written[0]["question_date"] == "2031/02/09 (Sun) 10:00"
    assert "question_type" not in written[1]
    assert "answer" not in written[0]
    run(sweep, "--retriever", "overlap", "--data", out, "--k", 1, "--out", tmp_path / "r", code=0)
    found = run_json(breakdown, tmp_path / "r", "--data", out, "--by", "question_type")
    cells = [(cell["group"], cell["n"]) for cell in found["cells"]]
    assert cells == [("multi-session", 1), ("single-session-user", 1), ("all queries", 2)]
