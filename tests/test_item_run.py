"""Runs over items: rows in order, and only the rows of these items are gone on with."""

from pathlib import Path

import pytest

from recallbed.errors import UserError
from recallbed.harness.item_run import Done, is_item_row, run_items
from recallbed.harness.run_folder import open_run


def run(path: Path, names: str) -> list[str]:
    with open_run(path, {"a": 1}, "resume", sound=is_item_row) as folder:
        run_items(folder, {name: lambda: Done("x") for name in names}, label="t", in_flight=3)
        return [row["item"] for row in folder.rows]


def test_rows_come_in_the_order_of_the_items_and_are_gone_on_with(tmp_path: Path) -> None:
    assert run(tmp_path, "abc") == ["a", "b", "c"]
    assert run(tmp_path, "abcdefgh") == list("abcdefgh")


@pytest.mark.parametrize(("names", "line"), [("acb", 2), ("ab", 3)])
def test_rows_of_other_items_are_refused(tmp_path: Path, names: str, line: int) -> None:
    run(tmp_path, "abc")
    with pytest.raises(UserError, match=rf"rows\.jsonl:{line}: not the row that belongs here"):
        run(tmp_path, names)
