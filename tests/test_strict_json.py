"""A key given twice and a line of unbounded length are faults of their line, in every reader."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from memory_scoring.predictions import read_memory_lists
from recallbed.chat_models.budget import read_prices
from recallbed.corpus.custom import load_custom
from recallbed.corpus.jsonl import read_jsonl
from recallbed.corpus.predictions import read_selections
from recallbed.corpus.user_file import MAX_LINE, max_line, read_json_list
from recallbed.corpus.validate import app as validate_app
from recallbed.corpus.validate import validate
from recallbed.errors import DataError, UserError
from recallbed.harness.configurations import read_settings
from recallbed.harness.input_text import STRICT_JSON, RepeatedKey
from tests.kit import run

ROW = '{"query": "tea?", "memories": ["likes tea", "has cat"], "gold": 0}\n'
TWICE = '{"query": "tea?", "memories": ["likes tea", "has cat"], "gold": 0, "gold": 1}\n'


def test_a_key_given_twice_is_a_fault_of_a_users_file(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(ROW + TWICE)
    result = run(validate_app, path)
    assert result.exit_code == 2
    assert f"fault: {path}:2: key `gold` appears twice in one object" in result.stdout
    # A loader must not choose one of the two either.
    with pytest.raises(DataError, match=r"own\.jsonl:2: key `gold` appears twice in one object"):
        load_custom(path)


def test_a_key_given_twice_deep_inside_a_release_is_a_fault(tmp_path: Path) -> None:
    folder = tmp_path / "dev" / "task3" / "d1"
    folder.mkdir(parents=True)
    (folder / "model_input.jsonl").write_text(
        '{"benchmark_id": "q0", "session_id": "q0", "input": {"query": "tea?",'
        ' "candidate_memories": [{"memory_id": "m0", "value": "likes tea"},'
        ' {"memory_id": "m1", "value": "has cat", "value": "has dog"}]}}\n'
    )
    report = validate(tmp_path)
    assert report.fault_count == 1
    assert "model_input.jsonl:1: key `value` appears twice" in report.faults[0]


def test_a_key_given_twice_makes_a_prediction_a_malformed_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        '{"benchmark_id": "q0", "selected_memory_id": "m0", "selected_memory_id": "m1"}\n'
        '{"benchmark_id": "q1", "selected_memory_id": "m0", "memory_items": []}\n'
    )
    selections, lists = read_selections(path), read_memory_lists(path)
    assert [row.name for row in selections.predictions] == ["q1"]
    assert [row.name for row in lists.predictions] == ["q1"]
    for malformed in (selections.malformed, lists.malformed):
        assert malformed.count == 1
        assert "key `selected_memory_id` appears twice" in malformed.faults[0][1]


def test_a_key_given_twice_is_refused_in_lists_settings_and_prices(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('[{"a": 1}, {"a": 1, "a": 2}]')
    with pytest.raises(DataError, match=r"instance \[1\]: key `a` appears twice"):
        list(read_json_list(path))
    path.write_text('{"format": "recallbed settings, version 1", "rows": "x", "rows": "y"}')
    with pytest.raises(UserError, match="key `rows` appears twice"):
        read_settings(path)
    path.write_text('{"gpt": {"in": 1, "out": 2}, "gpt": {"in": 3, "out": 4}}')
    with pytest.raises(UserError, match="key `gpt` appears twice"):
        read_prices(path)


def test_equal_keys_of_different_objects_are_no_repeat() -> None:
    value = {"a": {"a": [{"a": 1}, {"a": 2}]}}
    assert STRICT_JSON.decode(json.dumps(value)) == value
    with pytest.raises(RepeatedKey):
        STRICT_JSON.decode('{"a": 1, "\\u0061": 2}')


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_longer_than_the_limit_is_refused_before_it_is_held(
    tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 200 MB took 3.4 GB. The limit is lowered, so that the test writes little.
    monkeypatch.setenv("RECALLBED_MAX_LINE", "1MB")
    path = tmp_path / ("own.jsonl.gz" if packed else "own.jsonl")
    long = b'{"query": "' + b"x" * 20_000_000 + b'", "memories": ["a"], "gold": 0}\n'
    content = ROW.encode() + long + ROW.encode()
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    faults: list[str] = []
    tracemalloc.start()
    try:
        found = [n for n, _ in read_jsonl(path, {}, None, lambda e: faults.append(str(e)))]  # type: ignore[arg-type]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == [1, 3]
    assert faults == [
        f"{path}:2: longer than 1,000,000 bytes."
        " If it is meant to be so long, set RECALLBED_MAX_LINE, such as 200MB"
    ]
    assert peak < 8_000_000
    with pytest.raises(DataError, match=r":2: longer than 1,000,000 bytes"):
        load_custom(path)
    monkeypatch.setenv("RECALLBED_MAX_LINE", "30MB")
    assert len(load_custom(path).file.rows) == 3


def test_a_line_of_exactly_the_limit_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(ROW)
    monkeypatch.setenv("RECALLBED_MAX_LINE", str(len(ROW)))
    assert len(load_custom(path).file.rows) == 1
    monkeypatch.setenv("RECALLBED_MAX_LINE", str(len(ROW) - 1))
    with pytest.raises(DataError, match=f"own.jsonl:1: longer than {len(ROW) - 1} bytes"):
        load_custom(path)


def test_the_limit_has_a_default_and_must_be_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECALLBED_MAX_LINE", raising=False)
    assert max_line() == MAX_LINE == 32_000_000
    monkeypatch.setenv("RECALLBED_MAX_LINE", "much")
    with pytest.raises(UserError, match="RECALLBED_MAX_LINE much: write a size such as 512MB"):
        max_line()
