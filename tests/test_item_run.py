"""Experiments over items: rows in order, and only the rows of these items are resumed."""

from pathlib import Path

import pytest

from recallbed.errors import UserError
from recallbed.harness.experiment import execute
from recallbed.harness.item_run import Done
from recallbed.harness.run_options import RunOptions
from tests.kit import Items, read_json, rows_of


def run(path: Path, names: str) -> list[str]:
    items = Items({name: lambda: Done("x", calls=2) for name in names}, in_flight=3)
    execute(items, RunOptions(path, resume=True))
    return [row["item"] for row in rows_of(path)]


def test_rows_come_in_the_order_of_the_items_and_are_resumed(tmp_path: Path) -> None:
    assert run(tmp_path, "abc") == ["a", "b", "c"]
    assert run(tmp_path, "abcdefgh") == list("abcdefgh")
    summary = read_json(tmp_path / "summary.json")
    assert summary == {"calls": 16, "tokens_in": 0, "tokens_out": 0, "cost": None}


@pytest.mark.parametrize(("names", "line"), [("acb", 2), ("ab", 3)])
def test_rows_of_other_items_are_refused(tmp_path: Path, names: str, line: int) -> None:
    run(tmp_path, "abc")
    with pytest.raises(UserError, match=rf"rows\.jsonl:{line}: not the row that belongs here"):
        run(tmp_path, names)


def test_a_run_without_a_result_is_an_error_that_keeps_its_rows(tmp_path: Path) -> None:
    items = Items({"a": lambda: Done(error="timeout"), "b": lambda: Done(error="no JSON")})
    with pytest.raises(UserError, match=r"not one of 2 rows could be scored \(timeout: 1; no JSON"):
        execute(items, RunOptions(tmp_path))
    assert [row["error"] for row in rows_of(tmp_path)] == ["timeout", "no JSON"]
    works = {"a": lambda: Done("x"), "b": lambda: Done(error="no JSON")}
    execute(Items(works), RunOptions(tmp_path, retry_failed=True))
    assert [row["error"] for row in rows_of(tmp_path)] == [None, "no JSON"]


def test_a_default_folder_is_named_by_the_fingerprint_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = (execute(Items({"a": Done}), RunOptions()).path for _ in range(2))
    assert first == second
    assert first.parent == Path("runs")
    assert first.name.startswith("items-")
